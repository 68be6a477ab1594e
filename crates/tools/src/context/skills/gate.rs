//! Checks whether a skill can be used here, and determines the variables of its commands.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use belay_protocol::{Secret, Variable};
use rustix::fs::{Access, access};
use serde_json::Value;

use super::head::{Head, Needs};
use crate::context::config::{SkillEntry, SkillsConfig, problem_of_variable};

/// The available programs, variables, keys and settings that a skill may require.
#[derive(Debug)]
pub(super) struct Available {
    /// The directories in which commands find programs.
    pub(super) path: Vec<PathBuf>,
    /// Names of the variables that every command gets.
    pub(super) variables: Vec<String>,
    /// API keys, by the name of the skill.
    pub(super) keys: BTreeMap<String, Secret>,
    /// All settings.
    pub(super) settings: Value,
}

/// The variables of a skill, if it can be used.
///
/// # Errors
/// Why it cannot be used, in plain words.
pub(super) fn admit(head: &Head, config: &SkillsConfig, available: &Available) -> Result<Vec<Variable>, String> {
    let name = &head.name;
    if config.allow.as_ref().is_some_and(|allow| !allow.contains(name)) {
        return Err("it is not in skills.allow".to_owned());
    }
    let default = SkillEntry::default();
    let entry = config.entries.get(name).unwrap_or(&default);
    if !entry.enabled {
        return Err(format!("skills.entries.{name}.enabled is false"));
    }
    let variables = variables(head, entry, available)?;
    if !head.needs.always {
        check_requirements(&head.needs, name, &variables, available)?;
    }
    Ok(variables)
}

fn variables(head: &Head, entry: &SkillEntry, available: &Available) -> Result<Vec<Variable>, String> {
    let own = entry.env.iter().map(|(name, value)| Variable { name: name.clone(), value: Secret::new(value.clone()) });
    let mut variables: Vec<Variable> = own.collect();
    let Some(key) = available.keys.get(&head.name) else { return Ok(variables) };
    let Some(primary) = &head.needs.primary_env else {
        return Err(
            "its settings have a key for it, and it does not say in which variable it wants one (primaryEnv)".into()
        );
    };
    if let Some(problem) = problem_of_variable(primary, key.expose()) {
        return Err(format!("it wants its key in a variable that {problem}"));
    }
    variables.retain(|variable| variable.name != *primary);
    variables.push(Variable { name: primary.clone(), value: key.clone() });
    Ok(variables)
}

fn check_requirements(needs: &Needs, skill: &str, variables: &[Variable], available: &Available) -> Result<(), String> {
    let os = std::env::consts::OS;
    if !needs.os.is_empty() && !needs.os.iter().any(|wanted| wanted.eq_ignore_ascii_case(os)) {
        return Err(format!("it is for {}, and this is {os}", needs.os.join(", ")));
    }
    let requires = &needs.requires;
    if let Some(missing) = requires.bins.iter().find(|program| !available.has_program(program)) {
        return Err(format!("it needs the program {missing}, which is in no directory of tools.commands.path"));
    }
    if !requires.any_bins.is_empty() && !requires.any_bins.iter().any(|program| available.has_program(program)) {
        let any = requires.any_bins.join(", ");
        return Err(format!("it needs one of the programs {any}, and none is in a directory of tools.commands.path"));
    }
    // Commands do not get the daemon's own variables, so these do not count.
    let has =
        |name: &String| available.variables.contains(name) || variables.iter().any(|variable| variable.name == *name);
    if let Some(missing) = requires.env.iter().find(|name| !has(name)) {
        return Err(format!(
            "it needs the variable {missing}: set it in skills.entries.{skill} (env, or api_key_env for a key) or in \
             tools.commands.environment"
        ));
    }
    if let Some(missing) = requires.config.iter().find(|key| !available.is_set(key)) {
        return Err(format!("it needs the setting {missing}"));
    }
    Ok(())
}

impl Available {
    fn has_program(&self, name: &str) -> bool {
        let plain = !name.is_empty() && !name.contains(['/', '\0']);
        let runs = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
        plain && self.path.iter().any(|dir| runs(&dir.join(name)))
    }

    /// Whether a setting exists and is not false, zero or empty.
    fn is_set(&self, key: &str) -> bool {
        match key.split('.').try_fold(&self.settings, |value, name| value.get(name)) {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(list)) => !list.is_empty(),
            Some(Value::Object(table)) => !table.is_empty(),
            Some(Value::Number(number)) => number.as_f64() != Some(0.0),
            Some(Value::Bool(true)) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn available() -> Available {
        Available {
            path: vec!["/usr/bin".into(), "/bin".into()],
            variables: vec!["EVERYWHERE".into()],
            keys: BTreeMap::from([("weather".to_owned(), Secret::new("hush".into()))]),
            settings: json!({"tools": {"web": {"enabled": true}, "shell": {"enabled": false}}, "n": 0, "list": []}),
        }
    }

    fn head(name: &str, needs: &str) -> Head {
        super::super::head::read(&format!("---\nname: {name}\ndescription: d\nmetadata: {needs}\n---\n")).unwrap()
    }

    #[test]
    fn a_skill_is_of_use_where_everything_it_needs_is_there() {
        for (needs, why) in [
            ("{}", ""),
            ("{os: [linux, darwin]}", ""),
            ("{os: [plan9]}", "it is for plan9"),
            ("{requires: {bins: [sh]}}", ""),
            ("{requires: {bins: [sh, no-such-program]}}", "the program no-such-program"),
            ("{requires: {bins: [/bin/sh]}}", "the program /bin/sh"),
            ("{requires: {anyBins: [no-such-program, sh]}}", ""),
            ("{requires: {anyBins: [no-such-program]}}", "one of the programs no-such-program"),
            ("{requires: {env: [EVERYWHERE, CITY]}}", ""),
            ("{requires: {env: [HOME_TOWN]}}", "the variable HOME_TOWN"),
            ("{requires: {config: [tools.web.enabled, tools]}}", ""),
            ("{requires: {config: [tools.shell.enabled]}}", "the setting tools.shell.enabled"),
            ("{requires: {config: [n]}}", "the setting n"),
            ("{requires: {config: [list]}}", "the setting list"),
            ("{requires: {config: [tools.web.enabled.deeper]}}", "the setting tools.web.enabled.deeper"),
            ("{always: true, os: [plan9], requires: {bins: [no-such-program]}}", ""),
        ] {
            let entry = SkillEntry { env: BTreeMap::from([("CITY".into(), "Bonn".into())]), ..SkillEntry::default() };
            let config =
                SkillsConfig { entries: BTreeMap::from([("other".to_owned(), entry)]), ..SkillsConfig::default() };
            let admitted = admit(&head("other", needs), &config, &available());
            match (why, admitted) {
                ("", Ok(variables)) => assert_eq!(variables.len(), 1, "{needs}"),
                (why, Err(error)) if !why.is_empty() => assert!(error.contains(why), "{needs}: {error}"),
                (_, other) => panic!("{needs}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_key_gets_the_name_that_the_skill_defines() {
        let config = SkillsConfig::default();
        let variables =
            admit(&head("weather", "{primaryEnv: WEATHER_KEY, requires: {env: [WEATHER_KEY]}}"), &config, &available());
        let variables = variables.unwrap();
        assert_eq!((&*variables[0].name, variables[0].value.expose()), ("WEATHER_KEY", "hush"));
        for needs in ["{}", "{primaryEnv: PATH}", "{primaryEnv: LD_PRELOAD}", "{primaryEnv: 'A B'}"] {
            let refused = admit(&head("weather", needs), &config, &available()).unwrap_err();
            assert!(!refused.contains("hush"), "{refused}");
        }
    }

    #[test]
    fn the_operator_selects_the_skills() {
        let config = SkillsConfig { allow: Some(vec!["a".into()]), ..SkillsConfig::default() };
        assert!(admit(&head("a", "{}"), &config, &available()).is_ok());
        assert!(admit(&head("b", "{}"), &config, &available()).unwrap_err().contains("skills.allow"));
        let off = SkillEntry { enabled: false, ..SkillEntry::default() };
        let config = SkillsConfig { entries: BTreeMap::from([("a".to_owned(), off)]), ..SkillsConfig::default() };
        assert!(admit(&head("a", "{}"), &config, &available()).unwrap_err().contains("enabled is false"));
    }
}
