//! Settings that were removed, and what holds instead.

/// What an unknown key that was a setting before means now. `None`: it never was one.
pub(super) fn instead_of(key: &str) -> Option<String> {
    if let Some((_, instead)) = OTHERS.iter().find(|(removed, _)| *removed == key) {
        return Some((*instead).to_owned());
    }
    let (_, value) = FIXED.iter().find(|(removed, _)| *removed == key)?;
    Some(format!("it is always {value} now: leave it out"))
}

/// Settings that others have replaced.
const OTHERS: &[(&str, &str)] = &[
    (
        "stops.tool_loops.oscillations",
        "it was removed: stops.tool_loops.repeated_answers counts writes that return a target to an earlier state too",
    ),
    (
        "stops.tool_loops.stagnation",
        "it was removed: four times stops.tool_loops.repeats calls in a row without news are a loop",
    ),
    ("channels.stdin.colour", "it was removed: set the variable NO_COLOR for a terminal without colours"),
    ("channels.stdin.history_file", "it was removed: the history is the file \"history\" in the data directory"),
];

/// Constants.
const FIXED: &[(&str, &str)] = &[
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
        let known = crate::settings::Settings::known_keys();
        for (key, _) in OTHERS.iter().chain(FIXED) {
            assert!(!known.iter().any(|known| known == key), "{key} is a setting");
        }
    }
}
