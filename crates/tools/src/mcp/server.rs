//! A configured server, with its secrets.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::Secret;
use globset::{Glob, GlobSet, GlobSetBuilder};

use crate::mcp::config::McpServerConfig;
use crate::mcp::http::Remote;
use crate::mcp::oauth::Logins;
use crate::mcp::program::Program;
use crate::mcp::revision::Spoken;
use crate::mcp::server_error::ServerError;

/// Environment variables that every server program inherits from the daemon: the paths of programs and files, and the
/// locale.
const INHERITED: [&str; 5] = ["PATH", "HOME", "LANG", "TMPDIR", "TZ"];

/// A configured server.
#[derive(Clone, Debug)]
pub struct Server {
    name: Arc<str>,
    config: McpServerConfig,
    endpoint: Endpoint,
    wanted: GlobSet,
    spoken: Spoken,
    /// The secret of the client for logins, until the login takes it.
    client_secret: Option<Secret>,
}

/// How a server is reached.
#[derive(Clone, Debug)]
pub(super) enum Endpoint {
    /// As a program of this machine.
    Program(Program),
    /// By its URL.
    Remote(Remote),
}

/// Inputs from the daemon for the configuration of a server.
pub struct ServerInputs<'a> {
    /// Working directory of programs: the workspace.
    pub directory: &'a Path,
    /// Reads a variable of the daemon's environment.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// The bearer token for a URL.
    pub token: Option<Secret>,
    /// The secret of the client for logins at a URL.
    pub client_secret: Option<Secret>,
}

impl Server {
    /// Creates a server from validated settings.
    ///
    /// # Errors
    /// A sentence that names the key: a variable of `env_from` is not set, or the URL cannot be used.
    pub fn new(name: &str, config: &McpServerConfig, surroundings: ServerInputs<'_>) -> Result<Self, String> {
        let client_secret = surroundings.client_secret;
        let endpoint = match &config.url {
            Some(url) => Remote::new(url, surroundings.token)
                .map(Endpoint::Remote)
                .map_err(|error| format!("tools.mcp.{name}.url: {error}"))?,
            None => Endpoint::Program(Program {
                argv: config.command.clone(),
                env: environment(name, config, surroundings.variable)?,
                directory: surroundings.directory.to_owned(),
                sandbox: config.sandbox,
                network: config.network,
            }),
        };
        let mut wanted = GlobSetBuilder::new();
        for glob in &config.tools {
            wanted.add(Glob::new(glob).map_err(|error| format!("tools.mcp.{name}.tools: {error}"))?);
        }
        let wanted = wanted.build().map_err(|error| format!("tools.mcp.{name}.tools: {error}"))?;
        let (name, config, spoken) = (name.into(), config.clone(), Spoken::default());
        Ok(Self { name, config, endpoint, wanted, spoken, client_secret })
    }

    /// Name of the server in the settings.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn config(&self) -> &McpServerConfig {
        &self.config
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether the server is an address instead of a program of this machine.
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self.endpoint, Endpoint::Remote(_))
    }

    /// The revision that the server has spoken last, as far as this daemon has connected to it.
    pub(super) fn spoken(&self) -> &Spoken {
        &self.spoken
    }

    /// Gives the server a login in place of a token, if it can have one. Names the server to `logins` in any case.
    pub(super) fn set_login(&mut self, logins: &mut Logins, directory: &Path) {
        let why = match &mut self.endpoint {
            Endpoint::Program(_) => "it is a program",
            Endpoint::Remote(remote) if remote.has_token() => "its token is in the settings",
            Endpoint::Remote(remote) => {
                let settings = (self.config.oauth.clone().unwrap_or_default(), self.client_secret.take());
                remote.set_login(logins.add(&self.name, remote.url().clone(), settings, directory));
                return;
            }
        };
        logins.add_other(&self.name, why);
    }

    /// Whether the settings select this tool of the server.
    pub(super) fn wants(&self, tool: &str) -> bool {
        self.config.tools.is_empty() || self.wanted.is_match(tool)
    }

    /// Adds a hint for the operator to a start failure. A program without network access cannot download itself, and
    /// `npx` tries for minutes before it reports that. Nothing is added to a failure that names its cause.
    pub(super) fn explain(&self, trouble: ServerError) -> ServerError {
        let Endpoint::Program(Program { sandbox: true, network, .. }) = &self.endpoint else { return trouble };
        let hint = match &trouble {
            ServerError::Ended(how) if how.contains("tools.sandbox.show") => return trouble,
            // As of shells and of the launcher: a program was not found, or may not be executed.
            ServerError::Ended(how) if ["exit code 127", "exit code 126"].contains(&how.split([';', '.']).next().unwrap_or_default()) => {
                ". It runs in the sandbox, and a program that it starts is missing or hidden there: name the directory of \
                 that program in tools.sandbox.show"
                    .to_owned()
            }
            _ if *network => return trouble,
            _ => self.network_hint(),
        };
        match trouble {
            ServerError::Silent { what, limit, noise } => ServerError::Silent { what, limit, noise: noise + &hint },
            ServerError::Ended(how) => ServerError::Ended(how + &hint),
            other => other,
        }
    }

    /// Time limit from the start to the first answer.
    pub(super) fn start_limit(&self) -> Duration {
        Duration::from_secs(self.config.start_timeout_s)
    }

    fn network_hint(&self) -> String {
        format!(
            ". It runs in the sandbox, which has no network: a program that downloads itself (npx, uvx) or calls a service \
             needs network = true in [tools.mcp.{}] and in [tools.sandbox]; or install it beforehand",
            self.name
        )
    }

    /// Time limit of one call.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.config.timeout_s)
    }
}

/// The complete environment of a program. Variables of the settings take precedence.
fn environment(
    name: &str,
    config: &McpServerConfig,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Vec<(OsString, OsString)>, String> {
    let unset = |key: &String| format!("tools.mcp.{name}.env_from: the variable {key} is not set");
    let inherited = INHERITED
        .iter()
        .filter(|key| !config.env.contains_key(**key) && !config.env_from.iter().any(|named| named == *key));
    let mut env: Vec<(OsString, OsString)> =
        inherited.filter_map(|key| Some(((*key).into(), variable(key)?))).collect();
    for key in &config.env_from {
        env.push((key.into(), variable(key).ok_or_else(|| unset(key))?));
    }
    env.extend(config.env.iter().map(|(key, value)| (key.into(), value.into())));
    Ok(env)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn server(config: &str) -> Result<Server, String> {
        let variable = |key: &str| match key {
            "PATH" => Some("/bin".into()),
            "MY_KEY" => Some("hush".into()),
            "OTHER" => Some("not for servers".into()),
            _ => None,
        };
        let surroundings =
            ServerInputs { directory: Path::new("/w"), variable: &variable, token: None, client_secret: None };
        Server::new("s", &serde_json::from_str(config).unwrap(), surroundings)
    }

    #[test]
    fn a_start_failure_without_network_names_the_setting() {
        let silent =
            || ServerError::Silent { what: "`initialize`", limit: Duration::from_secs(10), noise: "; noise".into() };
        let hint = "the sandbox, which has no network: a program that downloads itself (npx, uvx) or calls a service needs \
                    network = true in [tools.mcp.s] and in [tools.sandbox]";
        for (config, explained) in [
            (r#"{"command":["npx"]}"#, true),
            (r#"{"command":["npx"],"network":true}"#, false),
            (r#"{"command":["npx"],"sandbox":false}"#, false),
            (r#"{"url":"https://example.org/mcp"}"#, false),
        ] {
            let server = server(config).unwrap();
            for trouble in [silent(), ServerError::Ended("exit code 1".into())] {
                let words = server.explain(trouble.clone()).to_string();
                assert!(words.starts_with(&trouble.to_string()), "{words}");
                assert_eq!(words.contains(hint), explained, "{config}: {words}");
            }
            assert_eq!(server.explain(ServerError::Stopped), ServerError::Stopped);
        }
        for (config, how, added) in [
            (r#"{"command":["x"]}"#, "exit code 127", "name the directory of that program in tools.sandbox.show"),
            (r#"{"command":["x"],"network":true}"#, "exit code 126; it wrote x", "tools.sandbox.show"),
            (r#"{"command":["x"],"sandbox":false}"#, "exit code 127", ""),
            (
                r#"{"command":["x"]}"#,
                "exit code 1. /a exists, but the sandbox hides it: name / in tools.sandbox.show",
                "",
            ),
        ] {
            let ServerError::Ended(words) = server(config).unwrap().explain(ServerError::Ended(how.into())) else {
                panic!("it has ended")
            };
            let hint = words.strip_prefix(how).unwrap();
            assert!(hint.contains(added) && hint.is_empty() == added.is_empty(), "{words}");
            assert!(!words.contains("network"), "{words}");
        }
    }

    #[test]
    fn a_program_inherits_only_the_listed_variables() {
        let server = server(r#"{"command":["x"],"env":{"A":"b"},"env_from":["MY_KEY"]}"#).unwrap();
        let Endpoint::Program(program) = server.endpoint() else { panic!("a program") };
        let env = [("PATH", "/bin"), ("MY_KEY", "hush"), ("A", "b")].map(|(key, value)| (key.into(), value.into()));
        assert_eq!(program.env, env);
        assert!(!format!("{program:?}").contains("hush"));
    }

    #[test]
    fn a_missing_secret_is_reported_by_its_variable() {
        let error = server(r#"{"command":["x"],"env_from":["NOT_THERE"]}"#).unwrap_err();
        assert_eq!(error, "tools.mcp.s.env_from: the variable NOT_THERE is not set");
    }

    #[test]
    fn without_globs_every_tool_is_wanted() {
        let all = server(r#"{"command":["x"]}"#).unwrap();
        let some = server(r#"{"command":["x"],"tools":["read_*","list"]}"#).unwrap();
        for (tool, wanted) in [("read_file", true), ("list", true), ("listing", false), ("write", false)] {
            assert!(all.wants(tool));
            assert_eq!(some.wants(tool), wanted, "{tool}");
        }
    }
}
