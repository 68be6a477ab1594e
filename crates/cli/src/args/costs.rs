//! `belay costs`

use clap::{Args, ValueEnum};

use super::ClientArgs;

/// `belay costs`
#[derive(Debug, Args)]
pub struct CostsArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What the costs are summed by
    #[arg(long, value_enum, default_value_t = CostKeyArg::Day)]
    pub by: CostKeyArg,
    /// Sum the costs since then: 7d, 4w, or a day such as 2026-11-20; whole UTC days [default: 30 days]
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Sum the costs before then [default: now]
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
}

/// The key that costs are summed by.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum CostKeyArg {
    /// UTC days
    Day,
    /// The people and programs that are charged
    Person,
    /// The models that answered
    Model,
    /// The purposes of the runs
    Purpose,
}

impl CostKeyArg {
    /// The word in the request.
    pub fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Person => "person",
            Self::Model => "model",
            Self::Purpose => "purpose",
        }
    }
}
