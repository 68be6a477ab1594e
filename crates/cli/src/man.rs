//! `belay man`: manual pages, made from the definition of the command line.
//!
//! They have no date and no version of the build, so the same source gives the same bytes.

use std::path::PathBuf;

use belay_program::exit::{Exit, Failure};
use belay_program::output::Output;
use clap::{Args, Command};
use clap_mangen::Man;

/// `belay man`
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write the pages of all commands into this directory, belay.1, belay-run.1 and so on; without it, belay.1 is
    /// printed
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Prints the page of `program`, or writes the page of each command. Hidden commands have none.
///
/// Existing pages in the directory are replaced. A failure may leave some of the pages written.
pub fn man(program: Command, args: &ManArgs, out: Output<'_>) -> Result<Exit, Failure> {
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        let rendered = Man::new(program.disable_help_subcommand(true)).render(&mut page);
        rendered.map_err(|error| Failure::new(Exit::Internal, format!("the manual page cannot be made: {error}")))?;
        out.line(String::from_utf8_lossy(&page).trim_end());
        return Ok(Exit::Fine);
    };
    let written = std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(program, dir));
    written.map_err(|error| {
        Failure::new(Exit::Internal, format!("the manual pages cannot be written to {}: {error}", dir.display()))
            .next("Name a directory that you may write to with --dir.")
    })?;
    Ok(Exit::Fine)
}
