//! The arguments of the commands that read settings.

use std::path::PathBuf;

use clap::Args;

/// The settings arguments of the command line.
#[derive(Clone, Debug, Default, Args)]
pub struct SettingsArgs {
    /// Read this settings file too; may be given several times, later ones win
    #[arg(long = "config", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Set one value, for example --set llm.provider=rehearsal; wins over every file
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub assignments: Vec<String>,
    /// Let tools work in this directory; the same as tools.workspace, relative to the current directory
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
}

/// Arguments of `belay check` and `belay config show`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The settings.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
