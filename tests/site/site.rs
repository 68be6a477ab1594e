//! The site of this clone is complete, leads nowhere wrong, loads nothing from elsewhere, and can be searched.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the clone").to_owned()
}

#[test]
fn every_document_is_a_page_of_the_site_and_every_link_leads_somewhere() -> Result<()> {
    let site = tempfile::tempdir()?;
    let pages = belay_site::build(&root(), site.path())?;
    ensure!(pages > 60, "{pages} pages: the documents are not found");
    for page in belay_site::documents(&root())? {
        let html = page.replace("README.md", "index.md").replace(".md", ".html");
        ensure!(site.path().join(&html).is_file(), "docs/{page} has no page {html}");
    }
    let problems = belay_site::check(site.path())?;
    ensure!(problems.is_empty(), "{problems:#?}");

    let names = std::fs::read_dir(site.path())?.flatten().map(|entry| entry.path());
    let index =
        names.into_iter().find(|path| path.to_string_lossy().contains("searchindex")).context("no search index")?;
    let index = std::fs::read_to_string(index)?;
    for words in ["guide/tutorial.html", "reference/stop-reasons.html"] {
        ensure!(index.contains(words), "the search index does not know {words}");
    }
    Ok(())
}
