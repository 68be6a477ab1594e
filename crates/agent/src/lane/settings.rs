//! The options of a conversation for all its runs, shown and changed by commands. A change takes effect at once: queue
//! rules from the next message on, all other options from the next turn on.

use belay_protocol::{ChannelId, RunOptions};

use super::{CommandResult, Lane, LeaseLost, unchanged};
use crate::submission::{Change, Setting, SettingCommand};

impl Lane {
    /// Shows a setting, or changes it in the store and then in the lane. `channel`: the channel of the command.
    pub(super) async fn set(
        &mut self,
        command: SettingCommand,
        channel: &ChannelId,
    ) -> Result<CommandResult, LeaseLost> {
        if command.change == Change::Show {
            return Ok(Ok(self.shown(command.setting, channel)));
        }
        let options = command.applied_to(self.options.clone());
        if let Err(error) = self.services.store.lanes.set_options(&self.lease, options.clone()).await {
            return unchanged(&error);
        }
        self.options = options;
        Ok(Ok(match command.change {
            Change::Default => format!("Reset. {}", self.shown(command.setting, channel)),
            _ => self.shown(command.setting, channel),
        }))
    }

    fn shown(&self, setting: Setting, channel: &ChannelId) -> String {
        let options = &self.options;
        let or_default = |word: Option<&'static str>| word.unwrap_or("default");
        match setting {
            Setting::Queue => {
                let rules = self.rules_of(&RunOptions::default(), channel);
                let waiting = match self.queue.len() {
                    0 => "Nothing waits.".to_owned(),
                    1 => "1 message is queued.".to_owned(),
                    n => format!("{n} messages are queued."),
                };
                format!(
                    "Queue: {} (debounce {} ms, cap {}, drop {}). {waiting}",
                    rules.mode.word(),
                    rules.debounce.as_millis(),
                    rules.cap,
                    rules.drop.word()
                )
            }
            Setting::Thinking => format!("Thinking: {}.", or_default(options.thinking.map(|level| level.word()))),
            Setting::Reasoning => format!("Reasoning: {}.", or_default(options.reasoning.map(|shown| shown.word()))),
            Setting::Verbose => {
                let word = options.verbose.map(|on| if on { "on" } else { "off" });
                format!("Verbose: {}.", or_default(word))
            }
            Setting::Model => self.model_shown(),
            Setting::Callback => match options.callback_url.as_deref().map(belay_protocol::callback::origin_of) {
                Some(origin) => format!("Callback: {origin}."),
                None => "Callback: none.".to_owned(),
            },
        }
    }

    fn model_shown(&self) -> String {
        let info = self.services.run.model.info();
        let label = if info.rehearsal { " (the built-in stand-in, not a model)" } else { "" };
        let configured = format!("{} by {}{label}", info.model, info.provider);
        match &self.options.model {
            Some(chosen) if *chosen != info.model => format!("Model: {chosen}, chosen here. Configured: {configured}."),
            _ => format!("Model: {configured}."),
        }
    }
}
