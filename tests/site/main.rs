//! `belay-site DIRECTORY` builds the documentation as web pages (`make site`), and fails if a link leads nowhere.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

fn main() -> Result<ExitCode> {
    let output = std::env::args_os().nth(1).context("usage: belay-site DIRECTORY")?;
    let output = Path::new(&output);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("the clone")?;
    let pages = belay_site::build(root, output)?;
    let problems = belay_site::check(output)?;
    for problem in &problems {
        eprintln!("{problem}");
    }
    eprintln!("{pages} pages are in {}", output.display());
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
