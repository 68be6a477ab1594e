//! The kinds of loops that the account of a strike tells apart.

/// The kind of a loop. It decides the sentence and the advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopKind {
    /// One call with one result.
    SameCall,
    /// Different arguments with one result.
    VariedArguments,
    /// Several calls in turn.
    Cycle,
    /// Guesses that get one refusal.
    Guessing,
    /// Edits and runs, with one output.
    EditRun,
    /// A debugger that shows nothing new.
    Debugger,
    /// The environment of the tools does not answer any more.
    DeadEnvironment,
    /// Steps in which every call failed.
    Errors,
    /// Arguments that become longer, with one result.
    GrowingArguments,
    /// A state that does not change.
    Polling,
    /// A target that returns to an earlier state.
    OscillatingWrites,
    /// Different calls without news.
    NoNews,
    /// Repeated text in one answer.
    Chanting,
    /// Repeated lines in one answer.
    RepeatedLines,
    /// Answers that equal earlier ones.
    RepeatedAnswers,
    /// Replies with neither text nor calls.
    EmptyReplies,
    /// Tools that do not exist.
    UnknownTools,
    /// Arguments that tools refuse.
    InvalidArguments,
    /// Calls that were denied.
    Denied,
    /// Compactions that save too little.
    Compactions,
    /// A finding of another model.
    Judged,
    /// A rule of the operator, or a limit.
    OwnRule,
}

impl LoopKind {
    /// The word in the evidence of a run's end.
    pub fn word(self) -> &'static str {
        match self {
            Self::SameCall => "same_call",
            Self::VariedArguments => "varied_arguments",
            Self::Cycle => "cycle",
            Self::Guessing => "guessing",
            Self::EditRun => "edit_run",
            Self::Debugger => "debugger",
            Self::DeadEnvironment => "dead_environment",
            Self::Errors => "errors",
            Self::GrowingArguments => "growing_arguments",
            Self::Polling => "polling",
            Self::OscillatingWrites => "oscillating_writes",
            Self::NoNews => "no_news",
            Self::Chanting => "chanting",
            Self::RepeatedLines => "repeated_lines",
            Self::RepeatedAnswers => "repeated_answers",
            Self::EmptyReplies => "empty_replies",
            Self::UnknownTools => "unknown_tools",
            Self::InvalidArguments => "invalid_arguments",
            Self::Denied => "denied",
            Self::Compactions => "compactions",
            Self::Judged => "judged",
            Self::OwnRule => "own_rule",
        }
    }
}
