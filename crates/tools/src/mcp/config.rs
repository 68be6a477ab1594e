//! Settings of one MCP server: a table `[tools.mcp.NAME]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use belay_protocol::Ask;
use belay_text::near::{did_you_mean, nearest_names};
use globset::Glob;
use serde::{Deserialize, Serialize};
use url::{Host, Url};

/// Settings of one MCP server: a program to start, or an address to call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpServerConfig {
    /// Whether the server is used.
    pub enabled: bool,
    /// The program and its arguments. The program speaks MCP over its standard input and output. Empty: [`Self::url`]
    /// is used.
    pub command: Vec<String>,
    /// The URL of a server that speaks MCP over streamable HTTP. Absent: [`Self::command`] is used.
    pub url: Option<String>,
    /// Environment variables of the program, in addition to `PATH`, `HOME`, `LANG`, `TMPDIR` and `TZ`. Not for secrets.
    pub env: BTreeMap<String, String>,
    /// Names of environment variables of the daemon that the program gets too. Use this for secrets.
    pub env_from: Vec<String>,
    /// Name of the environment variable with the bearer token for [`Self::url`]. Empty: no token.
    pub token_env: String,
    /// Path of the file with the bearer token.
    pub token_file: Option<PathBuf>,
    /// How to log in at [`Self::url`] by OAuth. Absent: a server that asks for it gets a login without any setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oauth: Option<OauthConfig>,
    /// The tools to offer, as globs over the names that the server gives them. Empty: all.
    pub tools: Vec<String>,
    /// Time limit from the start of the server to its first answer, in seconds; 1 to [`MAX_START_TIMEOUT_S`].
    pub start_timeout_s: u64,
    /// Time limit of one call, in seconds; 1 to [`MAX_TIMEOUT_S`].
    pub timeout_s: u64,
    /// Whether calls need an approval.
    pub approval: Ask,
    /// When a tool is offered for the first time.
    pub trust: Trust,
    /// Whether the program runs in the sandbox.
    pub sandbox: bool,
    /// Whether the program has network access in the sandbox, if `[tools.sandbox]` allows it.
    pub network: bool,
    /// Longest result for the model, in bytes; 1024 to [`MAX_SHOWN_BYTES`].
    pub max_output_bytes: usize,
}

/// The table `[tools.mcp.NAME.oauth]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OauthConfig {
    /// The id of a client that is known to the authorization server, or the https address of a document about it. Empty: a
    /// client is registered at each login.
    pub client_id: String,
    /// Path of the file with the secret of the client.
    pub client_secret_file: Option<PathBuf>,
    /// The issuer of the authorization server that knows the client; needed with a secret, which is sent to no other one.
    pub issuer: String,
    /// The scopes to ask for. Empty: those that the server names.
    pub scopes: Vec<String>,
    /// The port of 127.0.0.1 to which the browser is sent back. Absent: a free one.
    pub redirect_port: Option<u16>,
}

/// When a tool is offered for the first time. A tool that has changed since its approval needs a new approval in both
/// cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Immediately. Its first description counts as approved.
    #[default]
    FirstUse,
    /// After `belay mcp approve`.
    Approved,
}

/// Upper end of [`McpServerConfig::timeout_s`]. One hour: longer work belongs in a job.
pub const MAX_TIMEOUT_S: u64 = 3600;

/// Upper end of [`McpServerConfig::start_timeout_s`]. 10 minutes: a first start may download the server.
pub const MAX_START_TIMEOUT_S: u64 = 600;

/// Upper end of [`McpServerConfig::max_output_bytes`]. 1 MiB: a quarter of a million tokens, more than most models
/// accept.
pub const MAX_SHOWN_BYTES: usize = 1024 * 1024;

/// Longest name of a server. 24: leaves 35 of 64 characters for the tool.
pub(super) const MAX_SERVER_NAME: usize = 24;

/// Most servers. 64: the start of the daemon starts each one and lists its tools.
const MAX_SERVERS: usize = 64;

impl Default for McpServerConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            command: Vec::new(),
            url: None,
            env: BTreeMap::new(),
            env_from: Vec::new(),
            token_env: String::new(),
            token_file: None,
            oauth: None,
            tools: Vec::new(),
            start_timeout_s: 30,
            timeout_s: 60,
            approval: Ask::UnlessApproved,
            trust: Trust::FirstUse,
            sandbox: true,
            network: false,
            max_output_bytes: belay_protocol::tool::MAX_OUTPUT_BYTES,
        }
    }
}

/// Returns all problems of all servers, each beginning with its key.
pub(crate) fn validate(servers: &BTreeMap<String, McpServerConfig>) -> Vec<String> {
    let mut problems = Vec::new();
    if servers.len() > MAX_SERVERS {
        problems.push(format!("tools.mcp: must be at most {MAX_SERVERS} servers, are {}", servers.len()));
    }
    for (name, config) in servers {
        let mut of_server = Vec::new();
        of_server.extend(about_name(name));
        config.validate(&mut of_server);
        problems.extend(of_server.into_iter().map(|(key, what)| match key {
            "" => format!("tools.mcp.{name}: {what}"),
            key => format!("tools.mcp.{name}.{key}: {what}"),
        }));
    }
    problems
}

/// A problem: the key below the server, and its description.
type Problem = (&'static str, String);

fn about_name(name: &str) -> Option<Problem> {
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase());
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if starts_well && name.chars().all(fits) && name.len() <= MAX_SERVER_NAME {
        return None;
    }
    let better: String = name.to_lowercase().chars().map(|c| if fits(c) { c } else { '_' }).collect();
    let better: String =
        better.trim_start_matches(|c: char| !c.is_ascii_lowercase()).chars().take(MAX_SERVER_NAME).collect();
    let hint = if better.is_empty() { String::new() } else { did_you_mean(&[&better]) };
    let rule = format!(
        "a server's name is a-z, 0-9 and _, begins with a letter, and has at most {MAX_SERVER_NAME} characters."
    );
    Some(("", format!("{rule}{hint}")))
}

impl McpServerConfig {
    fn validate(&self, problems: &mut Vec<Problem>) {
        match (&self.command[..], &self.url) {
            ([], None) => problems.push(("", "needs a command or a url, for example command = [\"my-server\"]".into())),
            ([_, ..], Some(_)) => problems.push(("", "has both a command and a url; one of them has to go".into())),
            ([program, rest @ ..], None) => {
                about_program(program, rest, problems);
                self.reject_http_settings(problems);
            }
            ([], Some(url)) => {
                self.about_url(url, problems);
                self.reject_program_settings(problems);
            }
        }
        for name in self.env.keys() {
            if !is_variable(name) {
                problems.push(("env", format!("`{name}` is no name of an environment variable")));
            }
        }
        for name in &self.env_from {
            if !is_variable(name) {
                // The value may be the secret itself, so it is not shown.
                problems.push(("env_from", "holds something that is no name of an environment variable; secrets stay out of the settings, only the names of their variables are listed".into()));
            } else if self.env.contains_key(name) {
                problems.push(("env_from", format!("`{name}` is in env too; one of them has to go")));
            }
        }
        for glob in &self.tools {
            if let Err(error) = Glob::new(glob) {
                problems.push((
                    "tools",
                    format!("`{glob}` is no pattern of names: {}; write for example \"read_*\"", error.kind()),
                ));
            }
        }
        let limits = [
            ("start_timeout_s", self.start_timeout_s, MAX_START_TIMEOUT_S),
            ("timeout_s", self.timeout_s, MAX_TIMEOUT_S),
        ];
        for (key, is, most) in limits.into_iter().filter(|(_, is, most)| !(1..=*most).contains(is)) {
            problems.push((key, format!("must be from 1 to {most}, is {is}")));
        }
        if let Some(oauth) = &self.oauth {
            self.about_oauth(oauth, problems);
        }
        if !(1024..=MAX_SHOWN_BYTES).contains(&self.max_output_bytes) {
            let is = self.max_output_bytes;
            problems.push(("max_output_bytes", format!("must be from 1024 to {MAX_SHOWN_BYTES}, is {is}")));
        }
    }

    fn about_oauth(&self, oauth: &OauthConfig, problems: &mut Vec<Problem>) {
        if self.url.is_none() {
            problems.push(("oauth", "a program is sent no token".into()));
        } else if !self.token_env.is_empty() || self.token_file.is_some() {
            problems.push(("oauth", "has no effect beside token_env or token_file; one of them has to go".into()));
        }
        if oauth.client_secret_file.is_some() && oauth.client_id.is_empty() {
            problems
                .push(("oauth.client_secret_file", "is the secret of a client, and oauth.client_id names none".into()));
        }
        let is_issuer = |url: &Url| url.scheme() == "https" || (url.scheme() == "http" && is_loopback(url));
        if !oauth.issuer.is_empty() && !Url::parse(&oauth.issuer).is_ok_and(|url| is_issuer(&url)) {
            problems.push(("oauth.issuer", "must be an address that begins with https://".into()));
        } else if oauth.issuer.is_empty() && oauth.client_secret_file.is_some() {
            let why = "is missing: it names the authorization server that gets the secret of oauth.client_secret_file, \
                       for example \"https://login.example.org\"";
            problems.push(("oauth.issuer", why.into()));
        }
        if oauth.client_id.contains(|c: char| c.is_control()) {
            problems.push(("oauth.client_id", "holds a control character".into()));
        }
        // Source: RFC 6749, section 3.3.
        let fits =
            |scope: &String| !scope.is_empty() && scope.chars().all(|c| matches!(c, '!' | '#'..='[' | ']'..='~'));
        if let Some(scope) = oauth.scopes.iter().find(|scope| !fits(scope)) {
            problems.push((
                "oauth.scopes",
                format!("`{scope}` is no scope; each entry of the list is one, without spaces"),
            ));
        }
        if oauth.redirect_port == Some(0) {
            problems.push(("oauth.redirect_port", "must be from 1 to 65535, is 0".into()));
        }
    }

    fn reject_http_settings(&self, problems: &mut Vec<Problem>) {
        for (key, set) in [("token_env", !self.token_env.is_empty()), ("token_file", self.token_file.is_some())] {
            if set {
                problems.push((
                    key,
                    "a program is sent no token; name the variable that it reads its secret from in env_from".into(),
                ));
            }
        }
    }

    fn reject_program_settings(&self, problems: &mut Vec<Problem>) {
        let keys = [("env", !self.env.is_empty()), ("env_from", !self.env_from.is_empty()), ("network", self.network)];
        for (key, set) in keys {
            if set {
                problems.push((key, "has no effect on a url, whose server runs elsewhere".into()));
            }
        }
    }

    fn about_url(&self, address: &str, problems: &mut Vec<Problem>) {
        let url = match Url::parse(address) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.host().is_some() => url,
            other => {
                let with_scheme = format!("http://{address}");
                let lacks_it = !address.contains("://") && Url::parse(&with_scheme).is_ok();
                let hint = if lacks_it { did_you_mean(&[&with_scheme]) } else { String::new() };
                let found = match other {
                    Ok(url) if !lacks_it => format!(", and {}: is none", url.scheme()),
                    _ => String::new(),
                };
                problems
                    .push(("url", format!("must be an address that begins with http:// or https://{found}.{hint}")));
                return;
            }
        };
        if !url.username().is_empty() || url.password().is_some() {
            problems.push((
                "url",
                "holds a name or a password; a token belongs into the place that token_env or token_file names".into(),
            ));
        }
        let has_token = !self.token_env.is_empty() || self.token_file.is_some();
        if has_token && url.scheme() == "http" && !is_loopback(&url) {
            problems.push(("url", "would send the token unencrypted to another machine; use https://".into()));
        }
    }
}

fn about_program(program: &str, rest: &[String], problems: &mut Vec<Problem>) {
    if program.trim().is_empty() {
        problems.push(("command", "begins with an empty word; the first is the program".into()));
    } else if rest.is_empty() && program.contains(' ') && !program.contains('/') {
        let words: Vec<String> = program.split_whitespace().map(|word| format!("{word:?}")).collect();
        problems.push(("command", format!("no shell splits it. Did you mean [{}]?", words.join(", "))));
    }
    if [program].into_iter().chain(rest.iter().map(String::as_str)).any(|word| word.contains('\0')) {
        problems.push(("command", "holds a zero byte, which no argument can".into()));
    }
}

/// Whether a URL names this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.len() <= 64
}

/// Finds a server by name.
///
/// # Errors
/// A sentence for the person who mistyped the name, with the most similar name or all names.
pub fn find<'a>(servers: &'a BTreeMap<String, McpServerConfig>, name: &str) -> Result<&'a McpServerConfig, String> {
    servers.get(name).ok_or_else(|| {
        let known: Vec<&str> = servers.keys().map(String::as_str).collect();
        let near = nearest_names(name, &known, 1);
        match (near.is_empty(), known.is_empty()) {
            (_, true) => format!("there is no MCP server {name}: [tools.mcp] names none"),
            (false, _) => format!("there is no MCP server {name}.{}", did_you_mean(&near)),
            (true, _) => format!("there is no MCP server {name}; there are {}", known.join(", ")),
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn problems(name: &str, table: &str) -> Vec<String> {
        let config: McpServerConfig = toml_of(table);
        validate(&BTreeMap::from([(name.to_owned(), config)]))
    }

    /// The crate has no TOML parser; JSON has the same shape.
    fn toml_of(table: &str) -> McpServerConfig {
        serde_json::from_str(table).unwrap()
    }

    #[test]
    fn valid_settings_are_accepted() {
        for table in [
            r#"{"command":["my-server"]}"#,
            r#"{"command":["/opt/my server"],"env":{"A":"b"},"env_from":["MY_KEY"],"tools":["read_*"],"sandbox":false}"#,
            r#"{"url":"https://example.org/mcp","token_env":"MY_TOKEN","approval":"always","trust":"approved"}"#,
            r#"{"url":"http://127.0.0.1:8000/mcp","token_env":"MY_TOKEN","timeout_s":3600}"#,
        ] {
            assert_eq!(problems("files_2", table), Vec::<String>::new(), "{table}");
        }
    }

    #[test]
    fn every_mistake_is_reported_with_its_key_and_a_fix() {
        for (name, table, expected) in [
            ("a", r#"{}"#, "tools.mcp.a: needs a command or a url, for example command = [\"my-server\"]"),
            (
                "a",
                r#"{"command":["x"],"url":"http://localhost/"}"#,
                "tools.mcp.a: has both a command and a url; one of them has to go",
            ),
            ("My-Files", r#"{"command":["x"]}"#, "Did you mean my_files?"),
            ("7", r#"{"command":["x"]}"#, "begins with a letter"),
            (
                "a",
                r#"{"command":["npx -y server"]}"#,
                "tools.mcp.a.command: no shell splits it. Did you mean [\"npx\", \"-y\", \"server\"]?",
            ),
            ("a", r#"{"command":[" "]}"#, "tools.mcp.a.command: begins with an empty word"),
            ("a", r#"{"command":["x","a\u0000b"]}"#, "zero byte"),
            (
                "a",
                r#"{"url":"localhost:8000/mcp"}"#,
                "tools.mcp.a.url: must be an address that begins with http:// or https://. Did you mean http://localhost:8000/mcp?",
            ),
            (
                "a",
                r#"{"url":"ftp://h/"}"#,
                "tools.mcp.a.url: must be an address that begins with http:// or https://, and ftp: is none.",
            ),
            ("a", r#"{"url":"http://me:secret@h/"}"#, "tools.mcp.a.url: holds a name or a password"),
            ("a", r#"{"url":"http://example.org/","token_env":"T"}"#, "would send the token unencrypted"),
            ("a", r#"{"url":"https://h/","env":{"A":"b"}}"#, "tools.mcp.a.env: has no effect on a url"),
            ("a", r#"{"command":["x"],"token_env":"T"}"#, "tools.mcp.a.token_env: a program is sent no token"),
            ("a", r#"{"command":["x"],"oauth":{}}"#, "tools.mcp.a.oauth: a program is sent no token"),
            ("a", r#"{"url":"https://h/","token_env":"T","oauth":{}}"#, "tools.mcp.a.oauth: has no effect beside"),
            ("a", r#"{"url":"https://h/","oauth":{"scopes":["a b"]}}"#, "tools.mcp.a.oauth.scopes: `a b` is no scope"),
            (
                "a",
                r#"{"url":"https://h/","oauth":{"redirect_port":0}}"#,
                "oauth.redirect_port: must be from 1 to 65535",
            ),
            ("a", r#"{"url":"https://h/","oauth":{"client_id":"a\nb"}}"#, "oauth.client_id: holds a control character"),
            (
                "a",
                r#"{"url":"https://h/","oauth":{"client_secret_file":"/s","issuer":"https://as/"}}"#,
                "oauth.client_secret_file: is the secret of a client, and oauth.client_id names none",
            ),
            (
                "a",
                r#"{"url":"https://h/","oauth":{"client_secret_file":"/s","client_id":"a"}}"#,
                "oauth.issuer: is missing: it names the authorization server that gets the secret",
            ),
            (
                "a",
                r#"{"url":"https://h/","oauth":{"issuer":"http://as.example/"}}"#,
                "oauth.issuer: must be an address that begins with https://",
            ),
            ("a", r#"{"command":["x"],"env":{"A B":"c"}}"#, "tools.mcp.a.env: `A B` is no name"),
            ("a", r#"{"command":["x"],"env":{"A":"c"},"env_from":["A"]}"#, "`A` is in env too"),
            ("a", r#"{"command":["x"],"tools":["a[b"]}"#, "tools.mcp.a.tools: `a[b` is no pattern of names"),
            ("a", r#"{"command":["x"],"timeout_s":0}"#, "tools.mcp.a.timeout_s: must be from 1 to 3600, is 0"),
            (
                "a",
                r#"{"command":["x"],"start_timeout_s":601}"#,
                "tools.mcp.a.start_timeout_s: must be from 1 to 600, is 601",
            ),
            (
                "a",
                r#"{"command":["x"],"max_output_bytes":1}"#,
                "tools.mcp.a.max_output_bytes: must be from 1024 to 1048576, is 1",
            ),
        ] {
            let found = problems(name, table);
            assert!(found.len() == 1 && found[0].contains(expected), "{table}: {found:?}");
        }
    }

    #[test]
    fn a_secret_in_place_of_a_name_is_not_repeated() {
        let found = problems("a", r#"{"command":["x"],"env_from":["sk-hush"]}"#);
        assert!(found.len() == 1 && !found[0].contains("hush"), "{found:?}");
    }

    #[test]
    fn a_mistyped_server_is_answered_with_the_nearest() {
        let servers = ["files", "weather"].map(|name| (name.to_owned(), McpServerConfig::default())).into();
        assert!(find(&servers, "files").is_ok());
        assert_eq!(find(&servers, "file").unwrap_err(), "there is no MCP server file. Did you mean files?");
        assert_eq!(find(&servers, "qqq").unwrap_err(), "there is no MCP server qqq; there are files, weather");
        assert!(find(&BTreeMap::new(), "a").unwrap_err().contains("names none"));
    }
}
