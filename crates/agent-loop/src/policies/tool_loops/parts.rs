//! The parts of the analysis, and the rules beside it. Each can be disabled to measure its effect.

/// A part of the analysis, or a rule beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Kinds of tools by the words of their names.
    Words,
    /// Classes of arguments by their keys.
    Keys,
    /// Kinds of shell commands by their programs.
    Command,
    /// Tables and values of database queries.
    Sql,
    /// Whether a result means yes, no, nothing, or pending.
    Tone,
    /// Masked times, ids and durations.
    Masks,
    /// Numbers that each change gets anew, and numbers of clocks.
    Receipts,
    /// Words of the call that its result repeats.
    Echo,
    /// Words of queries, to recognise rewordings.
    Wording,
    /// The run's clock, to recognise polling.
    Pace,
    /// Cycles of one to five calls.
    Cycles,
    /// Repetitions of one call, and many calls in a row without news.
    Repeats,
    /// Different calls with the same result.
    Varied,
    /// Answers that repeat themselves and tell nothing new.
    Gain,
    /// Steps in a row that failed. A rule of its own.
    Errors,
    /// Repetition in text. A rule of its own.
    Chanting,
    /// Answers that repeat earlier ones. A rule of its own.
    Replies,
}

impl Part {
    /// Every part.
    pub const ALL: [Self; 17] = [
        Self::Words,
        Self::Keys,
        Self::Command,
        Self::Sql,
        Self::Tone,
        Self::Masks,
        Self::Receipts,
        Self::Echo,
        Self::Wording,
        Self::Pace,
        Self::Cycles,
        Self::Repeats,
        Self::Varied,
        Self::Gain,
        Self::Errors,
        Self::Chanting,
        Self::Replies,
    ];

    /// The word on the command line.
    pub fn word(self) -> &'static str {
        self.row().0.trim_start_matches("without ")
    }

    /// The name of the analysis without this part.
    pub fn lack(self) -> &'static str {
        self.row().0
    }

    /// A description of the part.
    pub fn about(self) -> &'static str {
        self.row().1
    }

    /// The built-in rule that this part is, if it is a whole one.
    pub(crate) fn rule(self) -> Option<&'static str> {
        match self {
            Self::Errors => Some("errors_stop"),
            Self::Chanting => Some("chanting"),
            Self::Replies => Some("repeated_replies"),
            _ => None,
        }
    }

    fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::Words => ("without words", "kinds of tools by the words of their names"),
            Self::Keys => ("without keys", "classes of arguments by their keys"),
            Self::Command => ("without command", "kinds of shell commands by their programs"),
            Self::Sql => ("without sql", "tables and values of database queries"),
            Self::Tone => ("without tone", "whether a result says yes, no, nothing, or not yet"),
            Self::Masks => ("without masks", "times, ids and durations that are hidden in texts"),
            Self::Receipts => ("without receipts", "numbers that each change gives out anew, and those of clocks"),
            Self::Echo => ("without echo", "words of the call that its result repeats"),
            Self::Wording => ("without wording", "words of queries, to tell rewordings"),
            Self::Pace => ("without pace", "the run's clock, to tell polling"),
            Self::Cycles => ("without cycles", "cycles of one to five calls"),
            Self::Repeats => {
                ("without repeats", "repetitions of one call, and many calls in a row without anything new")
            }
            Self::Varied => ("without varied", "different calls with the same result"),
            Self::Gain => ("without gain", "what each result adds to what the run knows"),
            Self::Errors => ("without errors", "steps in a row that failed"),
            Self::Chanting => ("without chanting", "repetition in text"),
            Self::Replies => ("without replies", "answers that repeat earlier ones"),
        }
    }
}
