//! Settings that were removed, and what holds instead.

/// The advice for an unknown key that was a setting before. `None`: it never was one.
pub(super) fn instead_of(key: &str) -> Option<String> {
    if let Some((_, instead)) = OTHERS.iter().find(|(removed, _)| *removed == key) {
        return Some((*instead).to_owned());
    }
    if let Some((rule, value)) = key.strip_prefix("stops.").and_then(|key| RULES.iter().find(|(rule, _)| *rule == key))
    {
        return Some(format!(
            "it is always {value} now: leave it out, or replace the rule by one of the name {rule} in stops.rules"
        ));
    }
    let (_, value) = FIXED.iter().find(|(removed, _)| *removed == key)?;
    Some(format!("it is always {value} now: leave it out"))
}

/// The replacement of the settings of a section that has none left. `None`: it never was one.
pub(super) fn instead_of_section(section: &str) -> Option<String> {
    let removed = OTHERS.iter().chain(FIXED).map(|(key, _)| *key);
    let names =
        removed.filter_map(|key| key.strip_prefix(section)?.strip_prefix('.').filter(|name| !name.contains('.')));
    let each = |name: &str| Some(format!("{name}: {}", instead_of(&format!("{section}.{name}"))?));
    let told: Vec<String> = names.filter_map(each).collect();
    (!told.is_empty()).then(|| format!("the section has no settings any more ({})", told.join("; ")))
}

/// Settings that others have replaced.
const OTHERS: &[(&str, &str)] = &[
    (
        "agent.plan.max_steps_per_execution",
        "it is always 20 now: leave it out, or set agent.executors.NAME.max_steps for an executor of your own",
    ),
    (
        "routines.lightweight_tools",
        "it was removed: with routines.lightweight_max_iterations = 1 no lightweight routine gets tools",
    ),
    ("gateway.max_streams", "it was removed: a quarter of gateway.max_connections may be streams"),
    (
        "tools.commands.timeout_s",
        "it is always 120 now, and tools.commands.max_timeout_s if that is less: leave it out",
    ),
    ("tools.health.within_s", "it is always 3600 now: leave it out, or write a rule in tools.health.rules"),
    ("tools.health.runs", "it is always 2 now: leave it out, or write a rule in tools.health.rules"),
    ("workers.memory_mb", "it was removed: a container has tools.sandbox.memory_mb, as each process of a command"),
    ("context.total_max_chars", "it was removed: all files together have three times context.file_max_chars"),
    ("store.lock_timeout_s", "it was removed: a wait for a lock has a third of store.statement_timeout_s"),
    ("stops.tool_loops.oscillations", "it was removed: loop detection is always the same now"),
    ("stops.tool_loops.stagnation", "it was removed: loop detection is always the same now"),
    ("agent.subagents.enabled", "it was removed: with agent.subagents.max_turns = 0 there are none"),
    ("stops.judge.enabled", "it was removed: with stops.judge.first_step = 0 there is no judge"),
    ("queue.max_bytes_per_sender", "it was removed: one sender may have a quarter of queue.max_bytes"),
    ("llm.api_key_files", "it was removed: use [[llm.fallbacks]] with the same provider and model, and api_key_file"),
    ("sessions.zone", "it was removed: use agent.timezone"),
    ("sessions.keep_events_days", "it was removed: use sessions.keep_details_days, for events and outputs"),
    ("sessions.keep_outputs_days", "it was removed: use sessions.keep_details_days, for events and outputs"),
    ("sessions.titles.enabled", "it was removed: with sessions.titles.after_s = 0 there are no titles"),
    ("sessions.titles.model", "it was removed: use llm.small_model"),
    ("heartbeat.model", "it was removed: use llm.small_model"),
    ("heartbeat.zone", "it was removed: use agent.timezone"),
    ("compaction.model", "it was removed: use llm.small_model"),
    ("streaming.at", "it was removed: use channels.telegram.stream = \"blocks_at_end\" for \"message_end\""),
    ("channels.telegram.bot_username", "it was removed: Telegram is asked"),
    ("attachments.enabled", "it was removed: with attachments.max_count = 0 messages have no files"),
    ("tools.commands.enabled", "it was removed: with tools.commands.allow = [] there is no run_command"),
    ("tools.sandbox.cpu_s", "it was removed: a process has a third of tools.commands.max_timeout_s"),
    ("context.timezone", "it was removed: use agent.timezone"),
    ("skills.enabled", "it was removed: with skills.allow = [] there are none"),
    ("jobs.max_tokens", "it was removed: use limits.tokens_total; a job may ask for fewer"),
    ("workers.max_turns", "it was removed: use jobs.max_steps"),
    ("workers.max_time_s", "it was removed: use agent.subagents.max_time_s"),
    ("backup.zone", "it was removed: use agent.timezone"),
    ("stops.closing_turn", "it was removed: with stops.closing_turn_s = 0 there is no closing turn"),
    ("limits.tokens_in", "it was removed: limits.tokens_total counts the tokens of both kinds"),
    ("limits.tokens_out", "it was removed: limits.tokens_total counts the tokens of both kinds"),
    ("channels.stdin.colour", "it was removed: set the variable NO_COLOR for a terminal without colours"),
    ("channels.stdin.history_file", "it was removed: the history is the file \"history\" in the data directory"),
];

/// Thresholds of built-in rules, by the names of the rules.
const RULES: &[(&str, &str)] = &[
    ("errors_notice", "3"),
    ("errors_stop", "5"),
    ("empty_replies", "3"),
    ("repeated_replies", "2"),
    ("unknown_tools", "5"),
    ("invalid_arguments", "5"),
    ("approval_reasks", "3"),
    ("compactions_without_gain", "3"),
];

/// Constants.
const FIXED: &[(&str, &str)] = &[
    ("agent.plan.max_attempts", "2"),
    ("agent.subagents.max_depth", "2"),
    ("stops.tool_loops.repeats", "5"),
    ("stops.tool_loops.max_period", "5"),
    ("stops.tool_loops.same_result", "5"),
    ("stops.tool_loops.same_short_result", "8"),
    ("stops.tool_loops.alternating", "8"),
    ("stops.tool_loops.polls", "24"),
    ("stops.tool_loops.repeated_answers", "4"),
    ("stops.judge.min_interval", "5"),
    ("stops.judge.max_interval", "15"),
    ("stops.judge.confidence", "0.9"),
    ("stops.judge.history", "20"),
    ("queue.debounce_ms", "500"),
    ("agent.subagents.max_concurrent", "8"),
    ("sessions.announce_reset", "true"),
    ("routines.grace_s", "60"),
    ("routines.max_tokens", "4096"),
    ("heartbeat.file", "\"HEARTBEAT.md\""),
    ("approvals.credential_expires_s", "300"),
    ("attachments.link_hours", "24"),
    ("tools.sandbox.open_files", "1024"),
    ("workers.cpu_shares", "1024"),
    ("agent.plan.max_executions", "20"),
    ("agent.subagents.max_live", "4"),
    ("agent.subagents.max_total", "16"),
    ("llm.connect_timeout_s", "10"),
    ("queue.stuck_warn_s", "120"),
    ("compaction.reserve_tokens", "20000"),
    ("compaction.timeout_s", "180"),
    ("compaction.identifiers", "\"strict\""),
    ("compaction.max_per_turn", "3"),
    ("memory.embeddings.timeout_s", "10"),
    ("streaming.min_chars", "800"),
    ("streaming.max_chars", "1200"),
    ("streaming.break", "\"paragraph\""),
    ("streaming.idle_ms", "1000"),
    ("streaming.preview_ms", "1000"),
    ("gateway.max_unauthenticated", "256"),
    ("gateway.max_buffered_bytes", "1572864"),
    ("transcription.timeout_s", "60"),
    ("transcription.max_bytes", "25000000"),
    ("attachments.max_pdf_pages", "100"),
    ("tools.max_file_bytes", "2097152"),
    ("tools.max_picture_bytes", "16777216"),
    ("tools.max_write_bytes", "2097152"),
    ("tools.max_read_lines", "2000"),
    ("tools.max_list_entries", "500"),
    ("tools.outputs.max_bytes", "16777216"),
    ("tools.web.max_bytes", "2097152"),
    ("tools.web.timeout_s", "30"),
    ("tools.search.results", "5"),
    ("tools.search.timeout_s", "20"),
    ("skills.max_prompt_chars", "18000"),
    ("jobs.max_open", "10000"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_setting_says_what_holds_instead_and_no_setting_is_in_the_list() {
        assert_eq!(instead_of("tools.polls"), None);
        assert_eq!(instead_of("tools.max_read_lines").as_deref(), Some("it is always 2000 now: leave it out"));
        let of_rule = instead_of("stops.errors_stop").unwrap_or_default();
        assert!(of_rule.starts_with("it is always 5 now") && of_rule.contains("the name errors_stop"), "{of_rule}");
        let gone = instead_of_section("agent.plan").unwrap_or_default();
        assert!(
            gone.contains("max_attempts: it is always 2 now") && gone.contains("executors.NAME.max_steps"),
            "{gone}"
        );
        let known = crate::settings::Settings::known_keys();
        let rules = RULES.iter().map(|(rule, _)| format!("stops.{rule}"));
        let removed: Vec<String> = OTHERS.iter().chain(FIXED).map(|(key, _)| (*key).to_owned()).chain(rules).collect();
        for (at, key) in removed.iter().enumerate() {
            assert!(!known.contains(key), "{key} is a setting");
            assert!(!removed[..at].contains(key), "{key} is there twice");
        }
    }
}
