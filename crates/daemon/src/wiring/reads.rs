//! Verdicts of stop rules, and settings: the gateway shows both and does not understand them.

use std::collections::BTreeMap;
use std::sync::Arc;

use belay_gateway::{JudgeOfRules, Judged, RunJudge, SettingValue, SettingsReport, SettingsSource};
use belay_program::environment::Environment;
use belay_program::paths::Paths;
use belay_protocol::{Event, Message, StopReason};
use belay_settings::{Loaded, SettingsArgs, as_json, descriptions, load};
use belay_stops::rules_of_text;
use belay_trajectory::import::from_messages;
use belay_trajectory::{Judge, TrajectoryEvent};
use serde_json::Value as Json;

/// Judges recorded runs by rules of a request.
pub(super) fn judge() -> JudgeOfRules {
    Arc::new(|text| {
        let rules = rules_of_text(text)?;
        let judge: RunJudge =
            Arc::new(move |messages, compactions| judged(Judge::new(rules.clone()), messages, compactions));
        Ok(judge)
    })
}

fn judged(mut judge: Judge, messages: &[Arc<Message>], compactions: &[Event]) -> Judged {
    let (mut steps, mut step) = (0, None);
    for event in from_messages(messages.iter().map(|message| &**message), compactions) {
        steps += u64::from(matches!(event, TrajectoryEvent::Turn));
        if judge.observe(&event).is_some() {
            step.get_or_insert(steps.max(1));
        }
    }
    let verdict = judge.verdict();
    Judged {
        stopped: verdict.stopped,
        reason: verdict.reason.and_then(StopReason::from_word),
        rule: verdict.rule,
        step,
        at_event: verdict.at_event,
        strikes: verdict.strikes,
        evidence: verdict.evidence,
    }
}

/// Reads the settings of this command line anew.
pub(super) fn settings(start: &Arc<Loaded>, args: &SettingsArgs, env: &Environment, paths: &Paths) -> SettingsSource {
    let (start, args, env, paths) = (start.clone(), args.clone(), env.clone(), paths.clone());
    // Formatted at a request alone: it costs thousands of allocations.
    Arc::new(move || match load(&args, &env, &paths) {
        Ok(now) => {
            let (settings, at_start) = (values(&now), values(&start));
            let keys = settings.keys().chain(at_start.keys());
            let value = |of: &BTreeMap<String, SettingValue>, key: &String| of.get(key).map(|it| it.value.clone());
            let mut changed: Vec<_> =
                keys.filter(|key| value(&settings, key) != value(&at_start, key)).cloned().collect();
            changed.sort();
            changed.dedup();
            SettingsReport { settings, changed, problems: Vec::new() }
        }
        Err(problems) => SettingsReport {
            settings: values(&start),
            changed: Vec::new(),
            problems: problems.iter().map(ToString::to_string).collect(),
        },
    })
}

/// The values by their full keys, masked.
fn values(loaded: &Loaded) -> BTreeMap<String, SettingValue> {
    let Json::Object(entries) = as_json(loaded) else { return BTreeMap::new() };
    let described = descriptions();
    let value = |key: &str, entry: &Json| SettingValue {
        value: entry.get("value").cloned().unwrap_or_default(),
        origin: entry.get("origin").and_then(Json::as_str).unwrap_or_default().to_owned(),
        description: described.get(key).cloned().unwrap_or_default(),
    };
    entries.into_iter().map(|(key, entry)| (key.clone(), value(&key, &entry))).collect()
}
