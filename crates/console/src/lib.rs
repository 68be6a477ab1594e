//! The files of the console, embedded in the binary.
//!
//! **For**: the gateway, which serves them. **Does not know**: HTTP, or what the pages show; they are clients of the
//! public API. Their sources are in `assets`, as browsers read them: there is no build step.

use std::borrow::Cow;

use rust_embed::RustEmbed;

#[derive(RustEmbed)]
#[folder = "assets"]
struct Assets;

/// The path of the page.
pub const PAGE: &str = "index.html";

/// A file of the console.
#[derive(Clone, Debug)]
pub struct File {
    /// Its content.
    pub bytes: Cow<'static, [u8]>,
    /// Its media type.
    pub media_type: &'static str,
    /// A validator, in quotes: it differs when the content does. Source: RFC 9110, 8.8.3.
    pub etag: String,
}

/// Returns the file at this path, relative to the folder and without `.` and `..`. `None`: there is none.
pub fn file(path: &str) -> Option<File> {
    let file = Assets::get(path)?;
    let etag: String = file.metadata.sha256_hash()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    Some(File { bytes: file.data, media_type: media_type(path), etag: format!("\"{etag}\"") })
}

/// The paths of all files.
pub fn paths() -> impl Iterator<Item = Cow<'static, str>> {
    Assets::iter()
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("webmanifest") => "application/manifest+json; charset=utf-8",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_a_media_type_that_a_browser_accepts_for_it() {
        for path in paths() {
            let file = file(&path).unwrap_or_else(|| panic!("{path} is listed"));
            assert!(!file.bytes.is_empty() && file.etag.len() == 34, "{path}: {}", file.etag);
            assert_ne!(file.media_type, "text/plain; charset=utf-8", "{path}: a browser would not run or apply it");
        }
        assert!(file(PAGE).is_some());
    }

    #[test]
    fn nothing_outside_of_the_folder_is_a_file() {
        for path in ["", "/", "../Cargo.toml", "lib/../../Cargo.toml", "lib", "lib/", "none.js", "/etc/passwd"] {
            assert!(file(path).is_none(), "{path}");
        }
    }

    /// The files that a file imports before it runs.
    fn imports(path: &str) -> Vec<String> {
        let file = file(path).unwrap_or_else(|| panic!("{path} is imported"));
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let text = String::from_utf8_lossy(&file.bytes).into_owned();
        // A statement may have several lines, of which the last one names the file.
        let names = text.lines().filter(|line| line.starts_with("import ") || line.starts_with('}'));
        let names = names.filter_map(|line| line.split_once(" from '.")?.1.strip_suffix("';"));
        names
            .map(|name| match name.strip_prefix("./") {
                Some(above) => above.to_owned(),
                None => format!("{folder}{name}").trim_start_matches('/').to_owned(),
            })
            .collect()
    }

    /// Without this the browser learns of a file only when it has read the one that imports it.
    #[test]
    fn the_page_names_all_files_that_the_first_page_needs() {
        let page = file(PAGE).unwrap();
        let page = String::from_utf8_lossy(&page.bytes).into_owned();
        let named: Vec<&str> = page
            .lines()
            .filter_map(|line| {
                line.strip_prefix("<link rel=\"modulepreload\" href=\"console/assets/")?.strip_suffix("\">")
            })
            .collect();
        let mut needed = vec!["app.js".to_owned(), "pages/now.js".to_owned()];
        let mut next = 0;
        while let Some(path) = needed.get(next) {
            for import in imports(path) {
                if !needed.contains(&import) {
                    needed.push(import);
                }
            }
            next += 1;
        }
        needed.sort_unstable();
        let mut sorted = named.clone();
        sorted.sort_unstable();
        assert!(needed.len() > 10, "{needed:?}");
        assert_eq!(sorted, needed);
    }

    /// A page must not load anything from elsewhere, and the policy of the gateway refuses inline scripts and styles.
    #[test]
    fn no_file_names_another_site_to_load_from_and_no_page_has_an_inline_script() {
        for path in paths().filter(|path| !path.starts_with("vendor/")) {
            let file = file(&path).unwrap_or_else(|| panic!("{path} is listed"));
            let text = String::from_utf8_lossy(&file.bytes);
            for forbidden in ["innerHTML", "dangerouslySetInnerHTML", "eval(", "new Function", "document.write"] {
                assert!(!text.contains(forbidden), "{path} has {forbidden}");
            }
            for loaded in ["src=\"http", "href=\"http", "from 'http", "import('http", "url(http", "@import"] {
                assert!(!text.contains(loaded), "{path} has {loaded}");
            }
            if path.ends_with(".html") {
                assert_eq!(
                    text.matches("<script").count(),
                    text.matches("<script type=\"module\" src=").count(),
                    "{path}"
                );
                assert!(!text.contains(" style=") && !text.contains("<style"), "{path}");
            }
        }
    }
}
