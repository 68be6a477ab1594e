//! What is counted, and the figures of one script.

use std::collections::BTreeMap;

use crate::daemon::Reading;
use crate::scripts::Script;

/// A count that the table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Count {
    WriteStatements,
    ReadStatements,
    WalPages,
    FileBytes,
    Syncs,
    FilesOpened,
    Allocations,
    AllocatedBytes,
    ModelBytes,
    FixedBytes,
}

impl Count {
    pub(crate) const ALL: [Self; 10] = [
        Self::WriteStatements,
        Self::ReadStatements,
        Self::WalPages,
        Self::FileBytes,
        Self::Syncs,
        Self::FilesOpened,
        Self::Allocations,
        Self::AllocatedBytes,
        Self::ModelBytes,
        Self::FixedBytes,
    ];

    /// The name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WriteStatements => "write-statements",
            Self::ReadStatements => "read-statements",
            Self::WalPages => "wal-pages",
            Self::FileBytes => "file-bytes",
            Self::Syncs => "syncs",
            Self::FilesOpened => "files-opened",
            Self::Allocations => "allocations",
            Self::AllocatedBytes => "allocated-bytes",
            Self::ModelBytes => "model-bytes",
            Self::FixedBytes => "fixed-bytes",
        }
    }

    /// Whether it depends on how busy the machine is: which writes join one commit, which buffers are free again, and how many
    /// timers fall into the time.
    pub(crate) fn depends_on_load(self, script: Script) -> bool {
        match self {
            Self::WalPages | Self::FileBytes | Self::Syncs | Self::Allocations | Self::AllocatedBytes => true,
            Self::ReadStatements => matches!(script, Script::Start | Script::Idle),
            // A start looks at every process of the machine.
            Self::FilesOpened => script == Script::Start,
            // Which facts of a long stream join one commit is chance on a busy machine, and each commit writes its events.
            Self::WriteStatements => script == Script::Stream,
            Self::ModelBytes | Self::FixedBytes => false,
        }
    }

    /// The largest difference between two runs of the same program that says nothing, in the unit of the count.
    pub(crate) fn noise(self, script: Script) -> f64 {
        match (self, script) {
            // A start looks at every process of the machine several times, and timers read beside it.
            (Self::ReadStatements, Script::Start) => 4.0,
            (Self::Allocations, Script::Start) => 5000.0,
            (Self::AllocatedBytes, Script::Start) => 512.0 * 1024.0,
            // Whether the buffer of a piece, 8 KiB, is free again when the next of 200 comes is chance.
            (Self::AllocatedBytes, Script::Stream) => 640.0 * 1024.0,
            // Whether a timer falls into the minute is chance.
            (Self::ReadStatements, Script::Idle) => 5.0,
            (Self::AllocatedBytes, Script::Idle) => 16.0 * 1024.0,
            // So is whether the check of the database files, once a minute, falls into it once or twice.
            (Self::Allocations, Script::Idle) => 40.0,
            // Whether the writes of a step join one commit is chance on a busy machine.
            (Self::Syncs, Script::ToolRound) => 1.0,
            (Self::WriteStatements | Self::ReadStatements | Self::Syncs, _) => 0.5,
            (Self::FilesOpened, Script::Start) => 10.0,
            (Self::FilesOpened, _) => 0.5,
            (Self::WalPages, Script::ToolRound) => 2.0,
            (Self::FileBytes, Script::ToolRound) => 12.0 * 1024.0,
            (Self::WalPages, _) => 1.0,
            (Self::FileBytes, _) => 4096.0,
            (Self::Allocations, _) => 20.0,
            (Self::AllocatedBytes, _) => 8192.0,
            (Self::ModelBytes | Self::FixedBytes, _) => 16.0,
        }
    }
}

/// Counts of the table. One that is missing was not counted.
pub(crate) type Counted = BTreeMap<Count, f64>;

/// The bytes of requests to the model.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// Those of all requests.
    pub(crate) bytes: u64,
    /// The fixed ones of the last request: before the conversation.
    pub(crate) fixed: u64,
}

/// What one repetition of a script costs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) counts: Counted,
    /// What is only printed.
    pub(crate) printed: BTreeMap<&'static str, f64>,
    /// How long it took, in minutes.
    pub(crate) minutes: f64,
    /// The share of the processors that other programs used meanwhile.
    pub(crate) others: f64,
}

impl Figures {
    /// The mean over `times` repetitions between the readings of `span`, without the cost of a reading, which is the
    /// difference of the two in `reading`.
    pub(crate) fn of(span: [&Reading; 2], reading: [&Reading; 2], sent: Sent, times: usize) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let each = |of: &dyn Fn(&Reading) -> u64| {
            let difference = |[from, to]: [&Reading; 2]| of(to) as f64 - of(from) as f64;
            ((difference(span) - difference(reading)) / times as f64).max(0.0)
        };
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let (model_bytes, fixed_bytes, repetitions) =
            (sent.bytes as f64 / times as f64, sent.fixed as f64, times as f64);
        let minutes = (minutes(span) - minutes(reading)).max(0.0) / repetitions;
        let mut figures = Self { minutes, ..Self::default() };
        figures.counts.extend([
            (Count::WriteStatements, each(&|it| it.writer_statements)),
            (Count::ReadStatements, each(&|it| it.reader_statements)),
            (Count::Allocations, each(&|it| it.allocations.count)),
            (Count::AllocatedBytes, each(&|it| it.allocations.bytes)),
            (Count::ModelBytes, model_bytes),
            (Count::FixedBytes, fixed_bytes),
        ]);
        figures.printed.insert("context switches", each(&|it| it.switches));
        let Some(calls) = &span[1].calls else { return figures };
        let call = |of: fn(&crate::calls::Calls) -> u64| each(&|it| it.calls.as_ref().map_or(0, of));
        figures.counts.extend([
            (Count::WalPages, call(|calls| calls.wal_pages)),
            (Count::FileBytes, call(|calls| calls.file_bytes)),
            (Count::Syncs, call(|calls| calls.syncs)),
            (Count::FilesOpened, call(|calls| calls.opens)),
        ]);
        figures.printed.insert("wake-ups", call(|calls| calls.waits));
        figures.printed.insert("files of /proc", call(|calls| calls.process_opens));
        // Once a second at most, so their number follows the speed of the machine.
        figures.printed.insert("files of the workspace", call(|calls| calls.workspace_opens));
        figures.printed.insert("checkpoint bytes", call(|calls| calls.database_bytes));
        for class in calls.classes.keys().copied() {
            let of = |it: &Reading| it.calls.as_ref().and_then(|calls| calls.classes.get(class).copied()).unwrap_or(0);
            figures.printed.insert(class, each(&of));
        }
        figures
    }

    /// Takes off what the timers of an idle daemon cost in the same time: a slow machine takes longer, and more of them
    /// fall into it.
    pub(crate) fn without_timers(mut self, idle_minute: &Counted) -> Self {
        for (count, figure) in &mut self.counts {
            let timers = idle_minute.get(count).copied().unwrap_or_default() * self.minutes;
            *figure = (*figure - timers).max(0.0);
        }
        self
    }

    /// Adds the figures of the traced run. Tracing makes the daemon slow, so that the other figures of that run count
    /// for nothing.
    pub(crate) fn with_traced(mut self, traced: Self) -> Self {
        for (count, figure) in traced.counts {
            self.counts.entry(count).or_insert(figure);
        }
        for (name, figure) in traced.printed {
            self.printed.entry(name).or_insert(figure);
        }
        self
    }
}

/// The time between two readings, in minutes. A start takes none: its timers belong to it.
fn minutes([from, to]: [&Reading; 2]) -> f64 {
    match (from.at, to.at) {
        (Some(from), Some(to)) => to.duration_since(from).as_secs_f64() / 60.0,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn timers_that_fall_into_a_slow_repetition_are_not_its_cost() {
        let begun = Instant::now();
        let reading = |seconds, reader_statements| Reading {
            at: Some(begun + Duration::from_secs(seconds)),
            reader_statements,
            ..Reading::default()
        };
        // A reading takes 2 s and a statement. Ten repetitions take 30 s, with 3 statements each, and a timer reads every
        // 4 s.
        let (zero, first, last) = (reading(0, 0), reading(2, 1), reading(34, 1 + 30 + 8 + 1));
        let figures = Figures::of([&first, &last], [&zero, &first], Sent::default(), 10);
        assert!((figures.counts[&Count::ReadStatements] - 3.8).abs() < 1e-9, "{figures:?}");
        let figures = figures.without_timers(&[(Count::ReadStatements, 15.0)].into());
        assert!((figures.counts[&Count::ReadStatements] - 3.05).abs() < 1e-9, "{figures:?}");
    }
}
