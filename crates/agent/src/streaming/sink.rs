//! Where the fragments of a model call go: to whoever reads along, as far as they may be read, and past the watch for texts
//! that go in circles.

use belay_agent_loop::policies::chanting::Chanting;
use belay_protocol::{DeltaSink, Heard};
use tokio_util::sync::CancellationToken;

use super::speech::{self, Speech};
use crate::live::LiveRun;

/// Publishes the fragments of one step to whoever watches the run, and hears whether the text goes in circles.
pub(crate) struct LiveSink<'a> {
    run: &'a LiveRun,
    step: u32,
    /// Where the text is watched, and what is cancelled when it repeats itself.
    chanting: Option<(&'a mut Chanting, &'a CancellationToken)>,
    speech: Speech,
    /// What was streamed, where nobody is shown anything: another run asked, or it is an aside.
    unseen: Option<String>,
    /// Bytes of text that the model has sent, whatever became of them.
    bytes: usize,
}

/// What a call has streamed.
pub(crate) struct Streamed {
    /// The text, as far as it may be read.
    pub(crate) text: String,
    /// Bytes of text that the model has sent.
    pub(crate) bytes: usize,
}

impl<'a> LiveSink<'a> {
    pub(crate) fn new(
        run: &'a LiveRun,
        step: u32,
        chanting: Option<(&'a mut Chanting, &'a CancellationToken)>,
    ) -> Self {
        Self { run, step, chanting, speech: Speech::default(), unseen: None, bytes: 0 }
    }

    /// The same, shown to whoever watches: what was said before in this step is forgotten.
    pub(crate) fn shown(&mut self) {
        self.run.begin_step(self.step);
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
        let text = self.unseen.unwrap_or_else(|| self.run.partial().text.clone());
        Streamed { text, bytes: self.bytes }
    }

    fn say(&mut self, heard: &speech::Heard) -> Heard {
        match &mut self.unseen {
            Some(unseen) => {
                unseen.push_str(&heard.text);
                Heard::Nobody
            }
            None => self.run.say(self.step, &heard.text, &heard.reasoning),
        }
    }
}

impl DeltaSink for LiveSink<'_> {
    fn text(&mut self, piece: &str) -> Heard {
        self.run.touch();
        if let Some((chanting, cut)) = &mut self.chanting
            && chanting.text(piece)
        {
            cut.cancel();
        }
        self.bytes += piece.len();
        let heard = self.speech.push(piece);
        self.say(&heard)
    }

    fn reasoning(&mut self, piece: &str) -> Heard {
        self.run.touch();
        self.say(&speech::Heard { text: String::new(), reasoning: piece.to_owned() })
    }

    fn restart(&mut self) {
        self.speech = Speech::default();
        match &mut self.unseen {
            Some(unseen) => unseen.clear(),
            None => self.run.begin_step(self.step),
        }
    }
}
