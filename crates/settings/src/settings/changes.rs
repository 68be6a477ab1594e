//! Compares two sets of settings, and decides which changes can apply while the daemon runs.

use serde_json::{Map, Value as Json};

use super::Settings;

/// The settings and whole sections that a reload applies. All others need a restart.
const RELOADABLE: &[&str] = &[
    "telemetry.log",
    "stops",
    "limits",
    "approvals",
    "routines.define",
    "channels.telegram.allow",
    "channels.telegram.operators",
    "channels.telegram.groups",
    "channels.telegram.pairing",
    "channels.telegram.greeting",
    "channels.matrix.allow",
    "channels.matrix.operators",
    "channels.matrix.rooms",
    "channels.mail.allow",
    "channels.mail.operators",
    "llm.price_usd",
];

/// The list whose elements are compared one by one: a price in it can be reloaded, its models cannot.
const LISTED: &str = "llm.fallbacks";

/// The keys that identify the model of an entry. A price belongs to its model: if one of these needs a restart, so does
/// the price.
const IDENTITY: [&str; 3] = ["provider", "base_url", "model"];

/// Changed settings, by full keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Applied by the reload.
    pub reloaded: Vec<String>,
    /// Applied by the next start only.
    pub needs_restart: Vec<String>,
}

/// Returns the settings after a reload from `running` to `read`, and the changed keys.
///
/// # Errors
/// The settings do not survive serialisation, which would be a bug.
pub fn reloaded(running: &Settings, read: &Settings) -> Result<(Settings, Changes), serde_json::Error> {
    let (mut tree, new) = (serde_json::to_value(running)?, serde_json::to_value(read)?);
    let mut changes = Changes::default();
    take_over(&mut tree, &new, "", &mut changes);
    let mut settings: Settings = serde_json::from_value(tree)?;
    settings.share();
    // Jobs follow a reloadable limit, but take their settings at the start.
    if settings.jobs.max_tokens != running.jobs.max_tokens {
        settings.jobs.max_tokens = running.jobs.max_tokens;
        changes.needs_restart.push("limits.tokens_total (of jobs)".to_owned());
    }
    Ok((settings, changes))
}

/// Copies the reloadable values of `new` to `old`.
fn take_over(old: &mut Json, new: &Json, key: &str, changes: &mut Changes) {
    if old == new {
        return;
    }
    let reloadable = is_reloadable(key);
    match (&mut *old, new) {
        (Json::Object(old), Json::Object(new)) => tables(old, new, key, changes),
        (Json::Array(old), Json::Array(new)) if key == LISTED && old.len() == new.len() => {
            for (at, (old, new)) in old.iter_mut().zip(new).enumerate() {
                take_over(old, new, &format!("{key}[{at}]"), changes);
            }
        }
        _ if reloadable => {
            *old = new.clone();
            changes.reloaded.push(key.to_owned());
        }
        _ => changes.needs_restart.push(key.to_owned()),
    }
}

fn tables(old: &mut Map<String, Json>, new: &Map<String, Json>, key: &str, changes: &mut Changes) {
    let mut names: Vec<String> = old.keys().chain(new.keys()).cloned().collect();
    names.sort_unstable();
    names.dedup();
    let is_model = key == "llm" || key.strip_prefix(LISTED).is_some_and(|rest| rest.ends_with(']'));
    let other_model = is_model && IDENTITY.iter().any(|name| old.get(*name) != new.get(*name));
    for name in names {
        let full = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
        if other_model && name == "price_usd" {
            if old.get(&name) != new.get(&name) {
                changes.needs_restart.push(full);
            }
            continue;
        }
        match (old.get_mut(&name), new.get(&name)) {
            (Some(old), Some(new)) => take_over(old, new, &full, changes),
            (_, _) if !is_reloadable(&full) => changes.needs_restart.push(full),
            (_, Some(new)) => {
                old.insert(name, new.clone());
                changes.reloaded.push(full);
            }
            (_, None) => {
                old.remove(&name);
                changes.reloaded.push(full);
            }
        }
    }
}

fn is_reloadable(key: &str) -> bool {
    let under = |whole: &str| key.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let of_fallback = key.strip_prefix(LISTED).and_then(|rest| rest.split_once("].")).map(|(_, name)| name);
    RELOADABLE.iter().any(|whole| under(whole))
        || of_fallback.is_some_and(|name| name.split('.').next() == Some("price_usd"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn settings(text: &str) -> Settings {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn what_can_be_reloaded_is_taken_over_and_the_rest_waits_for_a_restart() {
        let running = settings(
            "[gateway]\nlisten = \"127.0.0.1:1\"\n[[llm.fallbacks]]\nprovider = \"groq\"\nmodel = \"a\"\n\
             [limits]\nusd_per_day_for = { job = 1.0 }\n",
        );
        let read = settings(
            "[gateway]\nlisten = \"127.0.0.1:2\"\n[telemetry]\nlog = \"debug\"\n\
             [[llm.fallbacks]]\nprovider = \"groq\"\nmodel = \"b\"\nprice_usd = { input = 1, output = 2 }\n\
             [llm]\nprice_usd = { input = 3, output = 4 }\n[limits]\nusd_per_day = 2.0\n\
             [channels.telegram]\nallow = [7]\nmax_age_s = 1\ngroups = { allow = [-1] }\n\
             [[approvals.rules]]\ntool = \"run_command\"\nask = \"always\"\n\
             [tools.mcp.x]\nurl = \"https://example.org/mcp\"\n",
        );
        let (now, changes) = reloaded(&running, &read).unwrap();
        assert_eq!(
            changes.reloaded,
            [
                "approvals.rules",
                "channels.telegram.allow",
                "channels.telegram.groups.allow",
                "limits.usd_per_day",
                "limits.usd_per_day_for.job",
                "llm.price_usd",
                "telemetry.log"
            ]
        );
        assert_eq!(
            changes.needs_restart,
            [
                "channels.telegram.max_age_s",
                "gateway.listen",
                "llm.fallbacks[0].model",
                "llm.fallbacks[0].price_usd",
                "tools.mcp.x"
            ]
        );
        let mut expected = read.clone();
        expected.gateway = running.gateway.clone();
        expected.channels.telegram.max_age_s = running.channels.telegram.max_age_s;
        expected.llm.fallbacks = running.llm.fallbacks.clone();
        expected.tools.mcp.clear();
        assert_eq!(now, expected);
        let (same, nothing) = reloaded(&now, &now).unwrap();
        assert_eq!((same, nothing), (now, Changes::default()));
    }

    #[test]
    fn the_limit_of_jobs_waits_for_a_restart_in_each_reload() {
        let [running, read] = ["900", "100"].map(|tokens| {
            let mut settings = settings(&format!("[limits]\ntokens_total = {tokens}\n"));
            settings.share();
            settings
        });
        let (now, changes) = reloaded(&running, &read).unwrap();
        assert_eq!((now.limits.run.tokens_total, now.jobs.max_tokens), (Some(100), 900));
        assert_eq!(changes.reloaded, ["limits.tokens_total"]);
        assert_eq!(changes.needs_restart, ["limits.tokens_total (of jobs)"]);
        let (again, changes) = reloaded(&now, &read).unwrap();
        assert_eq!(changes.needs_restart, ["limits.tokens_total (of jobs)"]);
        assert_eq!(again, now);
        let (back, changes) = reloaded(&again, &running).unwrap();
        assert_eq!((back, changes.needs_restart), (running, Vec::new()));
    }

    #[test]
    fn a_price_is_taken_over_for_the_model_in_force_alone() {
        let model = |provider: &str, url: &str, model: &str, price: &str| {
            format!("provider = \"{provider}\"\nbase_url = \"{url}\"\nmodel = \"{model}\"\n{price}\n")
        };
        let (none, old, new) = ("", "price_usd = { input = 1, output = 1 }", "price_usd = { input = 9, output = 9 }");
        let before = |price| model("openai", "https://a", "m", price);
        for (before, after, reloaded_price, waits) in [
            (before(old), model("openai", "https://a", "m", new), true, false),
            (before(none), model("openai", "https://a", "m", new), true, false),
            (before(old), model("openai", "https://a", "m", none), true, false),
            (before(old), model("openai", "https://a", "other", new), false, true),
            (before(old), model("openai", "https://b", "m", new), false, true),
            (before(old), model("groq", "https://a", "m", new), false, true),
            (before(none), model("openai", "https://a", "other", new), false, true),
            (before(old), model("openai", "https://a", "other", none), false, true),
            (before(old), model("openai", "https://a", "other", old), false, false),
        ] {
            for (section, key) in [("[llm]", "llm.price_usd"), ("[[llm.fallbacks]]", "llm.fallbacks[0].price_usd")] {
                let running = settings(&format!("{section}\n{before}"));
                let read = settings(&format!("{section}\n{after}"));
                let (now, changes) = reloaded(&running, &read).unwrap();
                let is_in = |keys: &[String]| keys.iter().any(|named| named.starts_with(key));
                assert_eq!(
                    (is_in(&changes.reloaded), is_in(&changes.needs_restart)),
                    (reloaded_price, waits),
                    "{section}\n{after}: {changes:?}"
                );
                let expected = if reloaded_price { &read } else { &running };
                assert_eq!(now.llm, expected.llm);
            }
        }
    }
}
