//! `belay man`: manual pages, made from the definition of the command line.
//!
//! They have no date and no version of the build, so the same source gives the same bytes. On a terminal the program `man`
//! shows the page; elsewhere it is printed.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use belay_program::exit::{Exit, Failure};
use belay_program::output::Output;
use clap::Command;
use clap_mangen::Man;
use tokio::io::AsyncWriteExt;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::ManArgs;

/// The program that shows a page of standard input, and its arguments: man-db and mandoc take these.
const VIEWER: (&str, [&str; 2]) = ("man", ["-l", "-"]);

/// Opens or prints the page of `program`, or writes the page of each command. Hidden commands have none.
///
/// Existing pages in the directory are replaced. A failure may leave some of the pages written.
pub async fn man(program: Command, args: &ManArgs, out: Output<'_>) -> Result<Exit, Failure> {
    match &args.dir {
        Some(dir) => written(program, dir),
        None if out.is_terminal() => opened(program, out).await,
        None => {
            out.line(String::from_utf8_lossy(&page(program)?).trim_end());
            Ok(Exit::Fine)
        }
    }
}

/// The page of the program, as roff.
fn page(program: Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    let rendered = Man::new(program.disable_help_subcommand(true)).render(&mut page);
    rendered.map_err(|error| Failure::new(Exit::Internal, format!("the manual page cannot be made: {error}")))?;
    Ok(page)
}

/// Opens the page. A machine whose `man` is missing, or shows no page of standard input, prints the help of the program,
/// which a person can read; roff is for programs.
async fn opened(mut program: Command, out: Output<'_>) -> Result<Exit, Failure> {
    let page = page(program.clone())?;
    let is_shown = shown(&page).await.is_ok_and(|status| status.success() || status.code().is_none());
    if !is_shown {
        out.line(program.render_long_help().to_string().trim_end());
    }
    Ok(Exit::Fine)
}

/// Shows the page with [`VIEWER`], until the person leaves it.
async fn shown(page: &[u8]) -> io::Result<ExitStatus> {
    // Ctrl-C is a key of the pager, which goes on; without a handler it would end this program before it.
    let _interrupts = signal(SignalKind::interrupt())?;
    let (viewer, args) = VIEWER;
    let mut viewer = tokio::process::Command::new(viewer).args(args).stdin(Stdio::piped()).spawn()?;
    if let Some(mut input) = viewer.stdin.take() {
        // A viewer that ends before it has read the page reports that by its status.
        let _ = input.write_all(page).await;
    }
    viewer.wait().await
}

fn written(program: Command, dir: &Path) -> Result<Exit, Failure> {
    let written = std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(program, dir));
    written.map_err(|error| {
        Failure::new(Exit::Internal, format!("the manual pages cannot be written to {}: {error}", dir.display()))
            .next("Name a directory that you may write to with --dir.")
    })?;
    Ok(Exit::Fine)
}
