//! The log lines of a test.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

/// The lines of a test, oldest first. Those of other threads are not among them.
#[derive(Clone, Default)]
pub struct LogLines(Arc<Mutex<Vec<Line>>>);

struct Line {
    level: Level,
    /// The name and the text of each field. The message is one of them.
    fields: Vec<(&'static str, String)>,
}

impl Line {
    fn message(&self) -> &str {
        self.fields.iter().find(|(name, _)| *name == "message").map_or("", |(_, text)| text)
    }
}

impl LogLines {
    /// Collects the lines of this thread until the guard is dropped.
    pub fn collect() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let guard = tracing::subscriber::set_default(lines.clone());
        (lines, guard)
    }

    /// The messages of the lines whose level is as high as this one.
    pub fn at_least(&self, level: Level) -> Vec<String> {
        self.lines().iter().filter(|line| line.level <= level).map(|line| line.message().to_owned()).collect()
    }

    /// The level of the first line with this message; `None`: there is none.
    pub fn level_of(&self, message: &str) -> Option<Level> {
        self.lines().iter().find(|line| line.message() == message).map(|line| line.level)
    }

    /// The names of the fields that contain these words.
    pub fn fields_with(&self, words: &str) -> BTreeSet<&'static str> {
        let lines = self.lines();
        let fields = lines.iter().flat_map(|line| &line.fields);
        fields.filter(|(_, text)| text.contains(words)).map(|(name, _)| *name).collect()
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.push((field.name(), format!("{value:?}")));
    }
}

impl Subscriber for LogLines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line { level: *event.metadata().level(), fields: Vec::new() };
        event.record(&mut line);
        self.lines().push(line);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
