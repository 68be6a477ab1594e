//! Settings that several sections have in common: one key each, handed to the sections that follow it.

use belay_channels::Stream;
use belay_run::SendAt;
use belay_schedule::Zone;

use super::Settings;

/// Seconds of a command's longest time for one second of processor time of each of its processes.
const SECONDS_PER_CPU_SECOND: u32 = 3;

impl Settings {
    /// Hands the common settings to the sections that follow them. Serialised settings do not contain what is handed
    /// on.
    pub(super) fn share(&mut self) {
        if let Some(zone) = self.agent.timezone.clone().filter(|zone| Zone::named(zone).is_ok()) {
            self.sessions.zone.clone_from(&zone);
            self.heartbeat.zone.clone_from(&zone);
            self.backup.zone.clone_from(&zone);
            self.context.timezone = Some(zone);
        }
        let small = self.llm.small_model.as_ref();
        self.sessions.titles.model = small.cloned();
        self.heartbeat.model = small.cloned();
        self.compaction.model = small.cloned();
        self.jobs.max_tokens = self.limits.run.tokens_total.unwrap_or(0);
        self.workers.max_turns = self.jobs.max_steps;
        self.workers.max_time_s = self.agent.subagents.max_time_s;
        let cpu_s = self.tools.commands.max_timeout_s / SECONDS_PER_CPU_SECOND;
        self.tools.sandbox.cpu_s = u64::from(cpu_s.max(1));
        self.streaming.at = match self.channels.telegram.stream {
            Stream::BlocksAtEnd => SendAt::MessageEnd,
            Stream::Off | Stream::Preview | Stream::Blocks => SendAt::TextEnd,
        };
    }

    /// Problems of the common settings that no section checks.
    pub(super) fn shared_problems(&self) -> Vec<String> {
        let zone = self.agent.timezone.as_deref().and_then(|zone| Zone::named(zone).err());
        let blank = self.llm.small_model.as_ref().is_some_and(|model| model.trim().is_empty());
        let small = "llm.small_model: must not be empty; leave it out for the configured model";
        let zone = zone.map(|error| format!("agent.timezone: {error}"));
        zone.into_iter().chain(blank.then(|| small.to_owned())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::reloaded;

    #[test]
    fn a_common_setting_reaches_each_section_and_stays_there_after_a_reload() {
        let text = "[agent]\ntimezone = \"Europe/Berlin\"\nsubagents.max_time_s = 60\n[llm]\nsmall_model = \"small\"\n\
                    [limits]\ntokens_total = 900\n[jobs]\nmax_steps = 7\n[tools.commands]\nmax_timeout_s = 30\n\
                    [channels.telegram]\nstream = \"blocks_at_end\"\n";
        let mut settings: Settings = toml::from_str(text).expect("settings");
        settings.share();
        let (after, _) = reloaded(&settings, &settings).expect("a reload");
        for settings in [settings, after] {
            let zones = [&settings.sessions.zone, &settings.heartbeat.zone, &settings.backup.zone];
            assert_eq!(
                (zones, settings.context.timezone.as_deref()),
                ([&"Europe/Berlin".to_owned(); 3], Some("Europe/Berlin"))
            );
            let models = [&settings.sessions.titles.model, &settings.heartbeat.model, &settings.compaction.model];
            assert!(models.into_iter().all(|model| model.as_deref() == Some("small")), "{models:?}");
            assert_eq!((settings.jobs.max_tokens, settings.tools.sandbox.cpu_s), (900, 10));
            assert_eq!((settings.workers.max_turns, settings.workers.max_time_s), (7, 60));
            assert_eq!(settings.streaming.at, SendAt::MessageEnd);
        }
    }

    #[test]
    fn what_nobody_has_set_is_as_the_sections_have_it() {
        let mut settings = Settings::default();
        settings.share();
        assert_eq!(settings, Settings::default());
        settings.agent.timezone = Some("Mars/Olympus".to_owned());
        settings.llm.small_model = Some(" ".to_owned());
        settings.share();
        assert_eq!(settings.sessions.zone, "UTC");
        let problems = settings.shared_problems();
        assert!(problems.len() == 2 && problems[0].starts_with("agent.timezone: "), "{problems:?}");
    }
}
