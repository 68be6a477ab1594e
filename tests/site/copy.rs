//! The copy of the documents that mdBook reads, and the files that they link.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// Documents in these directories are no pages: examples, and the notes of changes.
const NOT_PAGES: [&str; 2] = ["examples", "changes"];

/// The pages below `docs`, as paths relative to it, in order. Neither examples nor notes of changes nor the table of contents belong to them.
///
/// # Errors
/// A directory cannot be read.
pub fn documents(root: &Path) -> Result<Vec<String>> {
    let docs = root.join("docs");
    let mut pages: Vec<String> = files(&docs)?
        .iter()
        .filter_map(|path| path.strip_prefix(&docs).ok())
        .filter(|path| {
            path.extension().is_some_and(|extension| extension == "md")
                && !NOT_PAGES.iter().any(|folder| path.starts_with(folder))
        })
        .map(|path| path.to_string_lossy().into_owned())
        .filter(|page| page != "SUMMARY.md")
        .collect();
    pages.sort();
    Ok(pages)
}

/// Copies the table of contents and the pages to `target`. Links to other files lead below `source/` there. Returns these files, and
/// linked directories, as paths relative to `root`.
pub(crate) fn pages(root: &Path, target: &Path, pages: &[String]) -> Result<BTreeSet<PathBuf>> {
    let mut linked = BTreeSet::new();
    std::fs::create_dir_all(target)?;
    std::fs::copy(root.join("docs/SUMMARY.md"), target.join("SUMMARY.md")).context("docs/SUMMARY.md")?;
    for page in pages {
        let text = std::fs::read_to_string(root.join("docs").join(page)).with_context(|| format!("docs/{page}"))?;
        let text = outside_code(&text, |text| with_targets(root, page, text, pages, &mut linked))?;
        let path = target.join(page);
        std::fs::create_dir_all(path.parent().context("a directory")?)?;
        std::fs::write(&path, text)?;
    }
    Ok(linked)
}

/// Copies the linked files below `source/` as plain text, and writes a list of the files of each linked directory.
pub(crate) fn sources(root: &Path, output: &Path, linked: &BTreeSet<PathBuf>) -> Result<()> {
    for path in linked {
        if root.join(path).is_dir() {
            let mut items = String::new();
            for file in files(&root.join(path))? {
                let file = file.strip_prefix(root)?;
                copy(root, output, file)?;
                let name = escaped(&file.strip_prefix(path)?.to_string_lossy());
                items.push_str(&format!("<li><a href=\"{}\">{name}</a></li>\n", as_text(&name)));
            }
            let name = escaped(&path.to_string_lossy());
            let page = format!(
                "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{name}</title></head>\n<body>\n<h1>{name}</h1>\n\
                 <ul>\n{items}</ul>\n</body>\n</html>\n"
            );
            let place = output.join("source").join(path);
            std::fs::create_dir_all(&place)?;
            std::fs::write(place.join("index.html"), page)?;
        } else {
            copy(root, output, path)?;
        }
    }
    Ok(())
}

fn copy(root: &Path, output: &Path, file: &Path) -> Result<()> {
    let target = output.join("source").join(as_text(&file.to_string_lossy()));
    std::fs::create_dir_all(target.parent().context("a directory")?)?;
    std::fs::copy(root.join(file), &target).with_context(|| file.display().to_string())?;
    Ok(())
}

/// The name of the copy of a file. mdBook takes each `.md` in a link for a page.
fn as_text(file: &str) -> String {
    file.strip_suffix(".md").map_or_else(|| format!("{file}.txt"), |stem| format!("{stem}-md.txt"))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

/// All files below a directory, in order. Hidden ones are left out.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Changes each line outside of fenced blocks.
fn outside_code(text: &str, mut change: impl FnMut(&str) -> Result<String>) -> Result<String> {
    let (mut changed, mut fenced) = (String::new(), false);
    for line in text.split_inclusive('\n') {
        let fence = line.trim_start().starts_with("```");
        if fence || fenced {
            changed.push_str(line);
        } else {
            changed.push_str(&change(line)?);
        }
        fenced ^= fence;
    }
    Ok(changed)
}

/// The line of a page with each link to a file that is no page changed to its copy.
fn with_targets(
    root: &Path,
    page: &str,
    line: &str,
    pages: &[String],
    linked: &mut BTreeSet<PathBuf>,
) -> Result<String> {
    let mut changed = String::new();
    let mut rest = line;
    while let Some((before, link)) = rest.split_once("](") {
        let Some((target, after)) = link.split_once(')') else { break };
        let new = new_target(root, page, target, pages, linked)?.unwrap_or_else(|| target.to_owned());
        changed.push_str(&format!("{before}]({new})"));
        rest = after;
    }
    changed.push_str(rest);
    Ok(changed)
}

fn new_target(
    root: &Path,
    page: &str,
    target: &str,
    pages: &[String],
    linked: &mut BTreeSet<PathBuf>,
) -> Result<Option<String>> {
    let (file, anchor) =
        target.split_once('#').map_or((target, String::new()), |(file, anchor)| (file, format!("#{anchor}")));
    if file.is_empty() || file.contains(':') {
        return Ok(None);
    }
    let folder = Path::new("docs").join(page);
    let path = plain(&folder.parent().context("a directory")?.join(file));
    let in_docs = path.strip_prefix("docs").ok().map(|path| path.to_string_lossy().into_owned());
    let up = "../".repeat(page.matches('/').count());
    // A directory with an overview, such as `adr/`, is that page.
    for name in in_docs.iter().flat_map(|path| [path.clone(), format!("{path}/README.md")]) {
        if pages.contains(&name) {
            // mdBook serves a README as the index of its directory.
            let name = name.replace("README.md", "index.md");
            return Ok(Some(format!("{up}{name}{anchor}")));
        }
    }
    let place = root.join(&path);
    ensure!(place.exists() && !path.starts_with(".."), "docs/{page}: {target} leads to no file");
    // The text of a file has no anchors.
    let new = if place.is_dir() {
        format!("{up}source/{}/index.html", path.display())
    } else {
        format!("{up}source/{}", as_text(&path.to_string_lossy()))
    };
    linked.insert(path);
    Ok(Some(new))
}

/// The path without `.` and `..`, as far as possible.
pub(crate) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some_and(|name| name != "..") => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}
