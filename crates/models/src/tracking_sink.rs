//! A sink that records whether a reader has received a piece. After that, a call is never sent again.

use belay_protocol::{DeltaSink, Heard, Usage};

/// Passes everything on to the inner sink.
pub(crate) struct TrackingSink<'a> {
    inner: &'a mut dyn DeltaSink,
    heard: bool,
}

impl<'a> TrackingSink<'a> {
    /// Wraps a sink that has received nothing yet.
    pub(crate) fn new(inner: &'a mut dyn DeltaSink) -> Self {
        Self { inner, heard: false }
    }

    /// Whether a reader has received a piece.
    pub(crate) fn heard(&self) -> bool {
        self.heard
    }

    fn note(&mut self, heard: Heard) -> Heard {
        self.heard |= heard == Heard::Somebody;
        heard
    }
}

impl DeltaSink for TrackingSink<'_> {
    fn sent(&mut self) {
        self.inner.sent();
    }

    fn text(&mut self, piece: &str) -> Heard {
        let heard = self.inner.text(piece);
        self.note(heard)
    }

    fn reasoning(&mut self, piece: &str) -> Heard {
        let heard = self.inner.reasoning(piece);
        self.note(heard)
    }

    fn call_bytes(&mut self, bytes: usize) {
        self.inner.call_bytes(bytes);
    }

    fn reported(&mut self, usage: &Usage) {
        self.inner.reported(usage);
    }

    fn restart(&mut self) {
        self.inner.restart();
    }
}
