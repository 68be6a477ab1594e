//! What the finished pages link and load.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use regex::Regex;

use crate::copy::plain;

/// The problems of the pages in a directory: links and anchors that lead nowhere, and things that browsers would load from another site.
/// Each names its page.
///
/// # Errors
/// A file cannot be read.
pub fn check(site: &Path) -> Result<Vec<String>> {
    let mut files = BTreeSet::new();
    walk(site, &mut files)?;
    let mut pages = BTreeMap::new();
    for path in files.iter().filter(|path| has(path, "html")) {
        pages.insert(path.clone(), Page::read(&std::fs::read_to_string(path)?)?);
    }
    let mut problems = Vec::new();
    for (path, page) in &pages {
        let name = path.strip_prefix(site)?.display();
        problems.extend(
            page.loaded.iter().filter(|address| elsewhere(address)).map(|address| format!("{name} loads {address}")),
        );
        let links = page
            .links
            .iter()
            .chain(&page.loaded)
            .filter(|address| !elsewhere(address) && !address.starts_with("data:"));
        for address in links.filter(|address| !address.starts_with("mailto:")) {
            if let Some(problem) = problem(site, path, address, &files, &pages) {
                problems.push(format!("{name}: {address}: {problem}"));
            }
        }
    }
    // Imports and fonts of style sheets.
    let loads = Regex::new(r#"(?:url\(|@import)\s*["']?([^"')\s;]+)"#)?;
    for path in files.iter().filter(|path| has(path, "css")) {
        let text = std::fs::read_to_string(path)?;
        let name = path.strip_prefix(site)?.display();
        for address in loads.captures_iter(&text).map(|found| found.extract::<1>().1[0]) {
            let file = address.split(['#', '?']).next().unwrap_or_default();
            if elsewhere(address) {
                problems.push(format!("{name} loads {address}"));
            } else if !address.starts_with("data:") && !path.with_file_name(file).exists() {
                problems.push(format!("{name}: {address}: there is no such file"));
            }
        }
    }
    Ok(problems)
}

fn problem(
    site: &Path,
    page: &Path,
    address: &str,
    files: &BTreeSet<PathBuf>,
    pages: &BTreeMap<PathBuf, Page>,
) -> Option<&'static str> {
    let (file, anchor) = address.split_once('#').unwrap_or((address, ""));
    let file = file.split('?').next().unwrap_or_default();
    let target = match file.strip_prefix('/') {
        _ if file.is_empty() => page.to_owned(),
        Some(below) => site.join(below),
        None => plain(&page.parent()?.join(file)),
    };
    let target = if target.is_dir() { target.join("index.html") } else { target };
    if !files.contains(&target) {
        return Some("there is no such file");
    }
    let missing = pages.get(&target).is_some_and(|page| !anchor.is_empty() && !page.anchors.contains(anchor));
    missing.then_some("the page has no such anchor")
}

/// Whether an address names another site.
fn elsewhere(address: &str) -> bool {
    address.starts_with("//") || address.contains("://")
}

/// What the script of a page with a runnable block loads.
const PLAYGROUND: &str = "https://play.rust-lang.org/meta/crates";

/// What the tags of a page say.
#[derive(Default)]
struct Page {
    anchors: BTreeSet<String>,
    /// What a person may follow.
    links: Vec<String>,
    /// What a browser loads by itself.
    loaded: Vec<String>,
}

impl Page {
    fn read(html: &str) -> Result<Self> {
        // The text of scripts has no tags; their own tags stay.
        let html = Regex::new(r"(?s)(<script[^>]*>).*?</script>")?.replace_all(html, "$1");
        let tags = Regex::new(r#"<([a-zA-Z][a-zA-Z0-9]*)((?:[^>"']|"[^"]*"|'[^']*')*)>"#)?;
        let attributes = Regex::new(r#"\s([a-z-]+)=(?:"([^"]*)"|'([^']*)')"#)?;
        let mut page = Self::default();
        for tag in tags.captures_iter(&html) {
            for attribute in attributes.captures_iter(&tag[2]) {
                let value = attribute.get(2).or_else(|| attribute.get(3)).context("a value")?;
                let value = value.as_str().replace("&amp;", "&").replace("&quot;", "\"").replace("&#x27;", "'");
                match (&tag[1], &attribute[1]) {
                    (_, "id") => {
                        page.anchors.insert(value);
                    }
                    ("a", "href") => page.links.push(value),
                    // mdBook's script asks the Rust playground for its crates where there is such a block.
                    (_, "class") if value.split_whitespace().any(|class| class == "playground") => {
                        page.loaded.push(PLAYGROUND.to_owned());
                    }
                    // `link` loads style sheets, icons and fonts.
                    ("link", "href") | (_, "src" | "srcset" | "poster" | "data") => page.loaded.push(value),
                    _ => {}
                }
            }
        }
        Ok(page)
    }
}

fn has(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

fn walk(directory: &Path, found: &mut BTreeSet<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            walk(&path, found)?;
        } else {
            found.insert(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The problems of two pages in a fresh directory.
    fn problems(page: &str) -> Vec<String> {
        let site = tempfile::tempdir().unwrap();
        std::fs::create_dir(site.path().join("guide")).unwrap();
        std::fs::write(site.path().join("guide/a.html"), page).unwrap();
        std::fs::write(site.path().join("b.html"), "<h2 id=\"there\">b</h2>").unwrap();
        check(site.path()).unwrap()
    }

    #[test]
    fn links_that_lead_nowhere_and_foreign_things_are_problems() {
        for (page, expected) in [
            (r#"<a href="../b.html#there">b</a>"#, None),
            (r#"<a href="https://example.org/">elsewhere</a>"#, None),
            (r#"<code>&lt;a href="gone.html"></code>"#, None),
            (r#"<script>let x = '<a href="gone.html">';</script>"#, None),
            (r#"<a href="../b.html#gone">b</a>"#, Some("no such anchor")),
            (r##"<p id="here"><a href="#gone">b</a>"##, Some("no such anchor")),
            (r#"<a class="x" href="gone.html">b</a>"#, Some("no such file")),
            (r#"<img src="gone.png">"#, Some("no such file")),
            (r#"<script src="https://example.org/x.js"></script>"#, Some("loads https://example.org/x.js")),
            (r#"<pre class="a playground">"#, Some("loads https://play.rust-lang.org/")),
            (r#"<link rel="stylesheet" href="//example.org/x.css">"#, Some("loads //example.org/x.css")),
        ] {
            let found = problems(page);
            match expected {
                None => assert!(found.is_empty(), "{page}: {found:?}"),
                Some(text) => assert!(found.len() == 1 && found[0].contains(text), "{page}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_font_of_another_site_in_a_style_sheet_is_a_problem() {
        let site = tempfile::tempdir().unwrap();
        std::fs::write(site.path().join("a.css"), "@font-face { src: url('https://example.org/f.woff2'); }").unwrap();
        assert_eq!(check(site.path()).unwrap(), ["a.css loads https://example.org/f.woff2"]);
    }
}
