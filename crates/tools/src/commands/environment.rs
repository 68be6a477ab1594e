//! The environment variables of commands. They inherit none from the daemon.

use std::ffi::OsString;

use belay_protocol::Variable;

use crate::config::CommandsConfig;

/// Variables that prevent programs from waiting for a person and from using colours, and git from running programs that
/// a repository names.
///
/// Source: git(1), "Environment Variables"; git-config(1), `GIT_CONFIG_COUNT`. git still checks the owner of a repository
/// (`safe.directory` is not set).
const DEFAULT_VARIABLES: [(&str, &str); 13] = [
    ("LANG", "C.UTF-8"),
    ("TERM", "dumb"),
    ("TMPDIR", "/tmp"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("EDITOR", "false"),
    ("GIT_PAGER", "cat"),
    ("GIT_EDITOR", "false"),
    ("GIT_ASKPASS", "false"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
];

/// git settings that override those of a repository. Hooks do not run; a person has to make a commit that needs them.
const GIT_SETTINGS: [(&str, &str); 4] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("protocol.ext.allow", "never"),
    ("safe.bareRepository", "explicit"),
];

/// The environment, except for the variables of the home directory, which each command gets anew.
pub(super) fn of(config: &CommandsConfig) -> Vec<(OsString, OsString)> {
    // Validation has refused paths that cannot be joined.
    let path = std::env::join_paths(&config.path).unwrap_or_default();
    let mut env: Vec<(OsString, OsString)> = vec![("PATH".into(), path)];
    env.extend(DEFAULT_VARIABLES.iter().map(|(name, value)| (name.into(), value.into())));
    env.push(("GIT_CONFIG_COUNT".into(), GIT_SETTINGS.len().to_string().into()));
    for (index, (key, value)) in GIT_SETTINGS.iter().enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{index}").into(), key.into()));
        env.push((format!("GIT_CONFIG_VALUE_{index}").into(), value.into()));
    }
    env.retain(|(name, _)| name.to_str().is_none_or(|name| !config.environment.contains_key(name)));
    env.extend(config.environment.iter().map(|(name, value)| (name.into(), value.into())));
    env
}

/// Adds the variables of the run's skills. Variables of the operator take precedence.
pub(super) fn with(env: &[(OsString, OsString)], variables: &[Variable]) -> Vec<(OsString, OsString)> {
    let set = |variable: &&Variable| env.iter().all(|(name, _)| *name != *variable.name);
    let more = variables.iter().filter(set).map(|Variable { name, value }| (name.into(), value.expose().into()));
    env.iter().cloned().chain(more).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use belay_protocol::Secret;

    use super::*;

    #[test]
    fn variables_of_skills_come_besides_those_of_every_command() {
        let env = [("PATH".into(), "/bin".into())];
        let variable = |name: &str| Variable { name: name.to_owned(), value: Secret::new("v".to_owned()) };
        let all = with(&env, &[variable("KEY"), variable("PATH")]);
        assert_eq!(all, [("PATH".into(), "/bin".into()), ("KEY".into(), "v".into())]);
    }

    #[test]
    fn variables_of_the_operator_replace_the_defaults() {
        let environment = [("LANG", "de_DE.UTF-8"), ("CARGO_HOME", "/srv/cargo")];
        let config = CommandsConfig {
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            path: vec!["/usr/bin".into(), "/bin".into()],
            ..CommandsConfig::default()
        };
        let env = of(&config);
        let value = |wanted: &str| {
            let values: Vec<_> =
                env.iter().filter(|(name, _)| name == wanted).map(|(_, value)| value.to_str().unwrap()).collect();
            assert_eq!(values.len(), 1, "{wanted}: {values:?}");
            values[0].to_owned()
        };
        for (name, expected) in [
            ("PATH", "/usr/bin:/bin"),
            ("LANG", "de_DE.UTF-8"),
            ("CARGO_HOME", "/srv/cargo"),
            ("GIT_CONFIG_COUNT", "4"),
            ("GIT_CONFIG_KEY_3", "safe.bareRepository"),
            ("GIT_CONFIG_VALUE_0", "false"),
        ] {
            assert_eq!(value(name), expected, "{name}");
        }
    }
}
