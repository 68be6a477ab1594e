//! `belay jobs …`

use clap::{Args, Subcommand};

use super::{ClientArgs, ROWS_MAX};

/// `belay jobs`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct JobsArgs {
    /// Another subcommand than the list.
    #[command(subcommand)]
    pub command: Option<JobsCommand>,
    /// The list.
    #[command(flatten)]
    pub list: JobsListArgs,
}

/// `belay jobs …`
#[derive(Debug, Subcommand)]
pub enum JobsCommand {
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
pub struct JobsListArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// List only jobs in these states, separated by commas: pending, in_progress, stuck, completed, …
    #[arg(long, value_name = "STATES")]
    pub state: Option<String>,
    /// Show whole ids; commands also accept the beginning of an id if only one id begins so
    #[arg(long)]
    pub full: bool,
    /// List only jobs that this conversation created
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
    /// List at most this many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(ROWS_MAX)))]
    pub limit: u32,
}

/// Arguments of the `belay jobs` subcommands that take an id.
#[derive(Debug, Args)]
pub struct JobArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The job's id, or the beginning of it
    pub id: String,
}

/// `belay jobs create`
#[derive(Debug, Args)]
pub struct CreateJobArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// A one-line title of the job [default: the first line of the task]
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// Make a plan first
    #[arg(long)]
    pub plan: bool,
    /// Run in a sandboxed worker
    #[arg(long)]
    pub worker: bool,
    /// Most steps
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub max_steps: u32,
    /// Most tokens, read and generated, over all attempts
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub max_tokens: u64,
    /// Time limit of one attempt, in minutes
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub max_minutes: u32,
    /// The conversation that creates the job
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
    /// Let the job make this call without a question: `run_command: cargo test`; repeatable
    #[arg(long, value_name = "GRANT")]
    pub allow: Vec<String>,
    /// Give the grants without asking at the terminal
    #[arg(long)]
    pub yes: bool,
    /// Watch the job until it ends, and exit with its verdict
    #[arg(long)]
    pub watch: bool,
    /// What the job has to do; `-` reads it from standard input
    pub task: String,
}
