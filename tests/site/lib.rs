//! The documentation as web pages: mdBook's library, on a copy of `docs` in which each link has a target within the site.
//!
//! The pages link files besides other pages: examples, alert rules, a recorded benchmark. [`build`] copies these files below `source/`
//! as plain text, so that a browser shows them, and lists the files of a linked directory. [`mod@check`] reads the finished pages.
//!
//! **Does not know** any other crate of the workspace.

mod check;
mod copy;

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use mdbook_driver::MDBook;
use mdbook_driver::config::Config;

pub use check::check;
pub use copy::documents;

/// The title, the search and the looks of the site.
const CONFIG: &str = include_str!("book.toml");

/// Builds the pages of the clone at `root` into the directory `output`, and returns the number of pages. What is in `output` is removed
/// before.
///
/// # Errors
/// A document is not in `docs/SUMMARY.md`, a link leads to no file, or a page cannot be built or written.
pub fn build(root: &Path, output: &Path) -> Result<usize> {
    let work = tempfile::tempdir().context("a temporary directory")?;
    let pages = copy::documents(root)?;
    let summary = std::fs::read_to_string(root.join("docs/SUMMARY.md")).context("docs/SUMMARY.md")?;
    let unlisted: Vec<_> = pages.iter().filter(|page| !summary.contains(&format!("]({page})"))).collect();
    ensure!(unlisted.is_empty(), "docs/SUMMARY.md does not list {unlisted:?}");
    let linked = copy::pages(root, &work.path().join("src"), &pages)?;
    let mut config: Config = CONFIG.parse().context("tests/site/book.toml")?;
    let output = std::path::absolute(output).context("the output")?;
    config.build.build_dir.clone_from(&output);
    MDBook::load_with_config(work.path(), config)?.build()?;
    copy::sources(root, &output, &linked)?;
    Ok(pages.len())
}
