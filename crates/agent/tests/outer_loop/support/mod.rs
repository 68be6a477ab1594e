//! An agent in a test: who talks to it, what it talks to.

mod channel;
mod setup;
mod talker;
mod tool;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use belay_agent_loop::StopRules;
use belay_agent_loop::policies::RulesFile;
use belay_protocol::{Clock, UnixMillis};
use belay_testkit::scripted_model::ScriptedModel;

pub(crate) use self::channel::{ProbeChannel, Shows, Trouble};
pub(crate) use self::setup::{Running, Setup, faulty, ports};
pub(crate) use self::talker::{Talker, end_of, rest_of};
pub(crate) use self::tool::TestTool;

/// Longest wait for anything, in paused time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// A clock that is moved by hand.
pub(crate) struct TestClock(AtomicI64);

impl TestClock {
    /// Stands at the beginning of every test.
    pub(crate) fn new() -> Self {
        Self(AtomicI64::new(1_795_000_000_000))
    }

    pub(crate) fn forward(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).expect("in range"), Ordering::SeqCst);
    }

    pub(crate) fn set(&self, ms: i64) {
        self.0.store(ms, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::SeqCst))
    }
}

/// Rules as the settings write them: the content of `[stops]`, with `[limits]` as a table in it.
pub(crate) fn rules(toml: &str) -> Arc<StopRules> {
    let file: RulesFile = toml::from_str(toml).expect("rules");
    Arc::new(StopRules::compile(&file.stops, &file.run_limits()))
}

/// The same model, which is never asked to write the account of what leaves a conversation: a rule does.
pub(crate) fn by_rule(model: ScriptedModel) -> ScriptedModel {
    model.with_info(|info| info.rehearsal = true)
}

/// What the model saw in its request number `n`, from 1, as one text for simple assertions.
pub(crate) fn saw(model: &ScriptedModel, n: usize) -> Vec<String> {
    model.seen()[n - 1].messages.iter().map(|message| message.text().to_owned()).collect()
}
