//! Where the fragments of a model call go: to whoever reads along, as far as they may be read, and past the watch for texts
//! that go in circles.

use belay_agent_loop::policies::chanting::Chanting;
use belay_protocol::{DeltaSink, Heard, Usage};
use tokio_util::sync::CancellationToken;

use super::meter::Meter;
use super::speech::{self, Speech};
use crate::live::LiveRun;

/// Publishes the fragments of one step to whoever watches the run, and hears whether the text goes in circles.
pub(crate) struct LiveSink<'a> {
    run: &'a LiveRun,
    step: u32,
    watch: Option<Watch<'a>>,
    speech: Speech,
    /// What was streamed, where nobody is shown anything: another run asked, or it is an aside.
    unseen: Option<String>,
    /// Bytes of text that the model has sent, whatever became of them.
    bytes: usize,
    meter: Meter,
}

/// How the text of a call is watched.
pub(crate) struct Watch<'a> {
    /// Sees whether it repeats itself.
    pub chanting: Option<&'a mut Chanting>,
    /// Most bytes of text; `None`: any number, up to the bounds of the provider layer.
    pub max_bytes: Option<usize>,
    /// Cancelled when it repeats itself or is too long.
    pub cut: &'a CancellationToken,
}

/// What a call has streamed.
pub(crate) struct Streamed {
    /// The text, as far as it may be read.
    pub text: String,
    /// Bytes of text that the model has sent.
    pub bytes: usize,
    /// What its requests have streamed and reported.
    pub meter: Meter,
}

impl<'a> LiveSink<'a> {
    pub(crate) fn new(run: &'a LiveRun, step: u32, watch: Option<Watch<'a>>) -> Self {
        Self { run, step, watch, speech: Speech::default(), unseen: None, bytes: 0, meter: Meter::default() }
    }

    /// The same, shown to whoever watches: what was said before in this step is forgotten.
    pub(crate) fn shown(&mut self) {
        self.run.output.begin_step(self.step);
    }

    /// The same, showing nobody anything.
    pub(crate) fn silent(&mut self) {
        self.unseen = Some(String::new());
    }

    /// The answer is whole: what was held back is shown, if it is not the silent token.
    pub(crate) fn finish(&mut self) {
        let heard = self.speech.finish();
        self.say(&heard);
    }

    /// What has been streamed.
    pub(crate) fn end(self) -> Streamed {
        let text = self.unseen.unwrap_or_else(|| self.run.output.partial().text.clone());
        Streamed { text, bytes: self.bytes, meter: self.meter }
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
        self.run.activity.touch();
        self.bytes += piece.len();
        if let Some(Watch { chanting, max_bytes, cut }) = &mut self.watch {
            let chants = chanting.as_mut().is_some_and(|chanting| chanting.text(piece));
            if chants || max_bytes.is_some_and(|most| self.bytes > most) {
                cut.cancel();
            }
        }
        self.meter.piece(piece.len());
        let heard = self.speech.push(piece);
        self.say(&heard)
    }

    fn reasoning(&mut self, piece: &str) -> Heard {
        self.run.activity.touch();
        self.meter.piece(piece.len());
        let heard = self.speech.reasoning(piece);
        self.say(&heard)
    }

    fn call_bytes(&mut self, bytes: usize) {
        self.run.activity.touch();
        self.meter.piece(bytes);
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
