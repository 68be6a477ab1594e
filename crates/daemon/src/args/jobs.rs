//! `belay jobs …`

use clap::{Args, Subcommand};

use super::{ClientArgs, ROWS_MAX};

/// `belay jobs`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct JobsArgs {
    /// Another subcommand than the list.
    #[command(subcommand)]
    pub(crate) command: Option<JobsCommand>,
    /// The list.
    #[command(flatten)]
    pub(crate) list: JobsListArgs,
}

/// `belay jobs …`
#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// List jobs, newest first
    List(JobsListArgs),
    /// Show one job, its current activity, and its result
    Show(JobArgs),
    /// Create a job: work in the background
    Create(CreateJobArgs),
    /// Send a message to a running job
    Tell {
        /// The job.
        #[command(flatten)]
        job: JobArgs,
        /// The message; `-` reads it from standard input
        text: String,
    },
    /// Cancel a job
    Cancel(JobArgs),
    /// Accept the result of a job
    Accept(JobArgs),
    /// Watch a job until it ends, and exit with its verdict
    Watch(JobArgs),
}

/// `belay jobs list`
#[derive(Debug, Args)]
pub(crate) struct JobsListArgs {
    /// The daemon.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// List only jobs in these states, separated by commas: pending, in_progress, stuck, completed, …
    #[arg(long, value_name = "STATES")]
    pub(crate) state: Option<String>,
    /// Show whole ids; commands also accept the beginning of an id if only one id begins so
    #[arg(long)]
    pub(crate) full: bool,
    /// List only jobs that this conversation created
    #[arg(long, value_name = "KEY")]
    pub(crate) session: Option<String>,
    /// List at most this many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(ROWS_MAX)))]
    pub(crate) limit: u32,
}

/// Arguments of the `belay jobs` subcommands that take an id.
#[derive(Debug, Args)]
pub(crate) struct JobArgs {
    /// The daemon.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// The job's id, or the beginning of it
    pub(crate) id: String,
}

/// `belay jobs create`
#[derive(Debug, Args)]
pub(crate) struct CreateJobArgs {
    /// The daemon.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// A one-line title of the job [default: the first line of the task]
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    /// Make a plan first
    #[arg(long)]
    pub(crate) plan: bool,
    /// Run in a sandboxed worker
    #[arg(long)]
    pub(crate) worker: bool,
    /// Most steps
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) max_steps: u32,
    /// Most tokens, read and generated, over all attempts
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) max_tokens: u64,
    /// Time limit of one attempt, in minutes
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) max_minutes: u32,
    /// The conversation that creates the job
    #[arg(long, value_name = "KEY")]
    pub(crate) session: Option<String>,
    /// Let the job make this call without a question: `run_command: cargo test`; repeatable
    #[arg(long, value_name = "GRANT")]
    pub(crate) allow: Vec<String>,
    /// Give the grants without asking at the terminal
    #[arg(long)]
    pub(crate) yes: bool,
    /// Watch the job until it ends, and exit with its verdict
    #[arg(long)]
    pub(crate) watch: bool,
    /// What the job has to do; `-` reads it from standard input
    pub(crate) task: String,
}
