//! Receives the fragments of a model call, publishes the visible part to readers, and passes the text to the detection
//! of repetition.

use belay_agent_loop::policies::chanting::Chanting;
use belay_crash_point::crash_point;
use belay_protocol::{DeltaSink, Heard, Usage};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::meter::Meter;
use super::speech::{self, Speech};
use crate::live::LiveRun;

/// Publishes the fragments of one step to readers of the run, and watches the text for repetition.
pub(crate) struct LiveSink<'a> {
    run: &'a LiveRun,
    step: u32,
    watch: Option<Watch<'a>>,
    speech: Speech,
    /// The streamed text of a call that is not shown: of a child run, or a separate question.
    unseen: Option<String>,
    /// Bytes of text from the model, shown or not.
    bytes: usize,
    meter: Meter,
    /// The time of its first fragment.
    first: Option<Instant>,
}

/// Limits on the text of a call.
pub(crate) struct Watch<'a> {
    /// Detects repetition.
    pub chanting: Option<&'a mut Chanting>,
    /// Maximum text in bytes; `None`: only the limits of the provider layer apply.
    pub max_bytes: Option<usize>,
    /// Cancelled when the text repeats itself or is too long.
    pub cut: &'a CancellationToken,
}

/// The streamed data of a call.
pub(crate) struct Streamed {
    /// The visible text.
    pub text: String,
    /// Bytes of text from the model.
    pub bytes: usize,
    /// Usage of its requests.
    pub meter: Meter,
    /// The time of its first fragment; `None`: none came.
    pub first: Option<Instant>,
}

impl<'a> LiveSink<'a> {
    pub(crate) fn new(run: &'a LiveRun, step: u32, watch: Option<Watch<'a>>) -> Self {
        Self {
            run,
            step,
            watch,
            speech: Speech::default(),
            unseen: None,
            bytes: 0,
            meter: Meter::default(),
            first: None,
        }
    }

    /// Shows the call to readers. The text of an earlier call of this step is discarded.
    pub(crate) fn shown(&mut self) {
        self.run.output.begin_step(self.step);
    }

    /// Hides the call from readers.
    pub(crate) fn silent(&mut self) {
        self.unseen = Some(String::new());
    }

    /// Ends a complete answer: shows withheld text, unless it is the silent token.
    pub(crate) fn finish(&mut self) {
        let heard = self.speech.finish();
        self.say(&heard);
    }

    /// Returns the streamed data.
    pub(crate) fn end(self) -> Streamed {
        let text = self.unseen.unwrap_or_else(|| self.run.output.partial().text.clone());
        Streamed { text, bytes: self.bytes, meter: self.meter, first: self.first }
    }

    /// A fragment has come.
    fn received(&mut self, bytes: usize) {
        crash_point!("model.received");
        self.first.get_or_insert_with(Instant::now);
        self.run.activity.touch();
        self.meter.piece(bytes);
    }

    fn say(&mut self, heard: &speech::Heard) -> Heard {
        match &mut self.unseen {
            Some(unseen) => {
                unseen.push_str(&heard.text);
                Heard::Nobody
            }
            None => self.run.output.say(self.step, &heard.text, &heard.reasoning),
        }
    }
}

impl DeltaSink for LiveSink<'_> {
    fn sent(&mut self) {
        self.meter.sent();
    }

    fn text(&mut self, piece: &str) -> Heard {
        self.received(piece.len());
        self.bytes += piece.len();
        if let Some(Watch { chanting, max_bytes, cut }) = &mut self.watch {
            let chants = chanting.as_mut().is_some_and(|chanting| chanting.text(piece));
            if chants || max_bytes.is_some_and(|most| self.bytes > most) {
                cut.cancel();
            }
        }
        let heard = self.speech.push(piece);
        self.say(&heard)
    }

    fn reasoning(&mut self, piece: &str) -> Heard {
        self.received(piece.len());
        let heard = self.speech.reasoning(piece);
        self.say(&heard)
    }

    fn call_bytes(&mut self, bytes: usize) {
        self.received(bytes);
    }

    fn reported(&mut self, usage: &Usage) {
        self.meter.reported(usage);
    }

    fn restart(&mut self) {
        self.meter.fail();
        self.speech = Speech::default();
        match &mut self.unseen {
            Some(unseen) => unseen.clear(),
            None => self.run.output.begin_step(self.step),
        }
    }
}
