//! `belay check`: checks the settings and their requirements without starting, and reports all problems at once.

mod directories;
mod mail;
mod matrix;
#[cfg_attr(not(feature = "mcp"), path = "check/no_mcp.rs")]
mod mcp;
mod names;
mod unit;
mod workspace;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use belay_delegates::{WorkerHostKind, WorkersConfig};
use belay_gateway::ControlGroup;
use belay_models::{CandidateConfig, ProbeReport, candidates};
use belay_parts::{Chosen, gateway_failure, meaning, refuse_store, transcriber};
use belay_program::causes::words;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output, Tone};
use belay_program::paths::Paths;
use belay_settings::secrets::{Secrets, UNSEEN, check_all, unseen_words};
use belay_settings::{CheckArgs, Problem, Settings, load, own_files_problems, refused, sandbox_config};
use belay_store::SqlStore;
use belay_tools::PathResolution;
use belay_tools::sandbox::{Offers, Policy, Sandbox, SandboxConfig};
use clap::Args;
use secrecy::ExposeSecret;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tokio::net::{TcpListener, UnixStream};

pub(crate) use directories::{refuse_workspace, writable};

/// Arguments of `belay check`.
#[derive(Debug, Args)]
pub struct CheckUnitArgs {
    /// The arguments that `config show` has too.
    #[command(flatten)]
    pub check: CheckArgs,
    /// Check as if this systemd unit started Belay, with its credentials and those of its drop-ins
    #[arg(long, value_name = "FILE")]
    pub unit: Option<PathBuf>,
}

/// The state of one checked item, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// As it should be.
    Ok,
    /// Works, but the operator should know about it.
    Note,
    /// Currently not available.
    OutOfReach,
    /// Refused: the settings have to change.
    Refused,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    what: &'static str,
    state: State,
    detail: String,
}

impl Finding {
    fn new(what: &'static str, state: State, detail: impl Into<String>) -> Self {
        Self { what, state, detail: detail.into() }
    }

    /// Converts a failure of the start to a finding.
    fn failed(what: &'static str, failure: &Failure) -> Self {
        let state = if failure.exit == Exit::Refused { State::Refused } else { State::OutOfReach };
        let next = failure.next.as_ref().map(|next| format!("; {next}")).unwrap_or_default();
        Self::new(what, state, format!("{}{next}", failure.what))
    }
}

/// Checks everything that a start needs.
pub async fn check(args: &CheckUnitArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let CheckUnitArgs { check: args, unit } = args;
    let (env, about_unit) = match unit {
        Some(unit) => with_unit(env, unit)?,
        None => (env.clone(), Vec::new()),
    };
    let env = &env;
    let paths = Paths::find(env)?.with_named(&args.settings.files);
    let loaded = match load(&args.settings, env, &paths) {
        Ok(loaded) => loaded,
        Err(problems) => return report_refused(&problems, args.json, out),
    };
    let settings = &loaded.settings;
    let secrets = match check_all(&loaded, env) {
        Ok(secrets) => secrets,
        Err(problems) => return report_refused(&problems, args.json, out),
    };
    let running = UnixStream::connect(&paths.control_socket).await.is_ok();
    let mut findings = vec![
        Finding::new("settings", State::Ok, "every key and value is understood"),
        directories::data(&paths),
        directories::store(settings, &paths, env, running),
        directories::workspace(settings, &paths, env),
        listener(settings, &secrets, env, running).await,
    ];
    findings.extend(loaded.hidden_notices().map(|line| Finding::new("settings", State::Note, line)));
    findings.extend(about_unit);
    findings.extend(control_group(settings, &paths));
    findings.extend(model(settings, &secrets).await);
    findings.extend(telegram(settings));
    findings.extend(matrix::account(settings, &secrets).await);
    findings.extend(mail::account(settings, &secrets).await);
    findings.extend(transcription(settings, &secrets));
    findings.extend(embeddings(settings, &secrets));
    findings.extend(names::executors(settings));
    findings.extend(names::hooks(settings, env));
    findings.extend(names::approvals(settings));
    findings.push(workspace::paths(&PathResolution::find()));
    findings.extend(workspace::own_files(&own_files_problems(settings, env, &paths)));
    let (mut about_sandbox, works) = sandbox(&sandbox_config(settings, env, &paths), &paths);
    findings.append(&mut about_sandbox);
    findings.extend(workers(settings, works));
    findings.extend(mcp::servers(settings, &paths, env).await);
    Ok(report(&findings, args.json, out))
}

/// Adds the credentials of a systemd unit to the environment.
fn with_unit(env: &Environment, unit: &Path) -> Result<(Environment, Vec<Finding>), Failure> {
    let unreadable = |error| Failure::new(Exit::UnusableInput, format!("--unit {error}"));
    let (credentials, findings) = unit::read(unit).map_err(unreadable)?;
    Ok((env.clone().with_unit(unit.to_owned(), credentials), findings))
}

/// The environment that a systemd unit gives to the daemon, as far as it can be read from here.
///
/// # Errors
/// The unit cannot be read (65).
pub(crate) fn environment_of_unit(env: &Environment, unit: &Path) -> Result<Environment, Failure> {
    with_unit(env, unit).map(|(env, _)| env)
}

/// Reports that the settings themselves are refused: nothing else can be checked.
fn report_refused(problems: &[Problem], as_json: bool, out: Output<'_>) -> Result<Exit, Failure> {
    if !as_json {
        return Err(refused(problems));
    }
    out.json(&json!({ "ok": false, "problems": problems, "findings": [] }));
    Ok(Exit::Refused)
}

fn report(findings: &[Finding], as_json: bool, out: Output<'_>) -> Exit {
    let exit = match findings.iter().map(|finding| finding.state).max() {
        Some(State::Refused) => Exit::Refused,
        Some(State::OutOfReach) => Exit::OutOfReach,
        Some(State::Ok | State::Note) | None => Exit::Fine,
    };
    if as_json {
        out.json(&json!({ "ok": exit == Exit::Fine, "problems": [], "findings": findings }));
    } else {
        out.table(&findings.iter().map(row).collect::<Vec<_>>());
    }
    exit
}

fn row(finding: &Finding) -> Vec<Cell> {
    let (word, tone) = match finding.state {
        State::Ok => ("ok", Tone::Good),
        State::Note => ("note", Tone::Warn),
        State::OutOfReach => ("out of reach", Tone::Bad),
        State::Refused => ("refused", Tone::Bad),
    };
    vec![Cell::new(word, tone), finding.what.into(), finding.detail.as_str().into()]
}

/// Checks the group of the control socket; `None` if none is configured.
fn control_group(settings: &Settings, paths: &Paths) -> Option<Finding> {
    let found = ControlGroup::find(&settings.gateway.control_group);
    let reached = found.and_then(|group| group.map(|group| group.reaches(&paths.control_socket)).transpose());
    match reached {
        Ok(None) => None,
        Ok(Some(())) => {
            let group = &settings.gateway.control_group;
            Some(Finding::new(
                "gateway",
                State::Ok,
                format!("members of the group {group} are operators on the control socket"),
            ))
        }
        Err(error) => Some(Finding::failed("gateway", &gateway_failure(&error))),
    }
}

async fn listener(settings: &Settings, secrets: &Secrets, env: &Environment, running: bool) -> Finding {
    let finding = |state, detail: String| Finding::new("gateway", state, detail);
    let Some(address) = settings.gateway.listen_address() else {
        return finding(State::Note, "off: the control socket alone".into());
    };
    let bound = match TcpListener::bind(address).await {
        Ok(bound) => bound,
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && running => {
            return finding(State::Note, format!("{address} is taken by the Belay that is running"));
        }
        Err(error) => return finding(State::OutOfReach, format!("gateway.listen: {address}: {error}")),
    };
    let open = bound.local_addr().is_ok_and(|address| !address.ip().to_canonical().is_loopback());
    let token = secrets.gateway.token.is_some() || secrets.gateway.operator_token.is_some();
    match (open, token) {
        (true, false) => {
            let what =
                "can be reached from other machines, and there is no token; set BELAY_TOKEN, or listen on 127.0.0.1";
            let unseen = unseen_words("belay_token", env);
            finding(State::Refused, format!("gateway.listen: {address} {what}{unseen}"))
        }
        (_, true) => finding(State::Ok, format!("{address} is free; a token is asked for")),
        (false, false) => finding(State::Ok, format!("{address} is free; everybody on this machine is an operator")),
    }
}

async fn model(settings: &Settings, secrets: &Secrets) -> Vec<Finding> {
    let finding = |state, detail| Finding::new("model", state, detail);
    let chosen = match Chosen::find(settings, secrets).await {
        Ok(chosen) => chosen,
        Err(failure) => return vec![Finding::failed("model", &failure)],
    };
    let mut findings: Vec<_> = chosen.notice.iter().map(|notice| finding(State::Note, notice.clone())).collect();
    for (at, candidate) in candidates(&chosen.config, &chosen.keys).into_iter().enumerate() {
        let found = check_candidate(&candidate, &chosen.http).await;
        // Only the first candidate can prevent a start; problems of the others are notes.
        let state = if at == 0 { found.state } else { found.state.min(State::Note) };
        findings.push(Finding { state, ..found });
    }
    let info = chosen.provider.info();
    if info.price.is_none() && !info.rehearsal {
        let without_effect = |what| {
            let detail = format!("{what} has no effect: the price of the model is not known; set llm.price_usd");
            Finding::new("limits", State::Note, detail)
        };
        findings.extend(about_money(settings).into_iter().map(without_effect));
    }
    findings
}

/// Checks one candidate.
async fn check_candidate(candidate: &CandidateConfig, http: &reqwest::Client) -> Finding {
    let finding = |state, detail| Finding::new("model", state, detail);
    let name = &candidate.name;
    if let Some(lacks) = &candidate.lacks {
        return finding(State::Refused, format!("{name} has no key and is left out: {lacks}"));
    }
    let keys = [&candidate.keys.openai, &candidate.keys.anthropic, &candidate.keys.configured];
    if keys.into_iter().flatten().any(|key| key.expose_secret() == UNSEEN) {
        return finding(
            State::Note,
            format!("{name}: its key is a credential that cannot be read from here; it was not asked"),
        );
    }
    match belay_models::probe(&candidate.config, &candidate.keys, http).await {
        Ok(ProbeReport::Ready) => finding(State::Ok, format!("{name} is offered")),
        Ok(ProbeReport::NotProbed) => finding(State::Ok, format!("{name}; it can only be tried by asking it")),
        Ok(ProbeReport::Unlisted { reason }) => {
            finding(State::Note, format!("{name}: the server answers but lists no models ({reason})"))
        }
        Ok(ProbeReport::ModelUnknown { nearest, offered }) => {
            let hint = nearest.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            finding(State::Refused, format!("llm.model: {name} is not among the {offered} models of the server{hint}"))
        }
        Ok(ProbeReport::KeyRefused { status }) => {
            finding(State::Refused, format!("{name}: the provider refuses the key (HTTP {status})"))
        }
        Ok(ProbeReport::Unreachable { reason }) => finding(State::OutOfReach, format!("{name}: {reason}")),
        Err(error) => finding(State::Refused, format!("{name}: {}", words(&error))),
    }
}

/// The limits and rules that depend on money.
fn about_money(settings: &Settings) -> Vec<String> {
    let limits = &settings.limits;
    let limits_for = &limits.usd_per_day_for;
    let keys = [
        ("limits.usd_per_day", limits.usd_per_day),
        ("limits.usd_per_run", limits.run.usd_per_run),
        ("limits.usd_per_session", limits.run.usd_per_session),
    ];
    let limits = keys.into_iter().filter(|(_, usd)| usd.is_some()).map(|(key, _)| key.to_owned());
    let purposes = limits_for.keys().map(|purpose| format!("limits.usd_per_day_for.{}", purpose.word()));
    let rules = settings.stops.rules.iter().enumerate().filter(|(_, rule)| {
        let when = serde_json::to_value(&rule.when).unwrap_or_default();
        has_key(&when, &["run_usd", "session_usd"])
    });
    limits
        .chain(purposes)
        .chain(rules.map(|(index, rule)| format!("the money in stops.rules[{index}] (`{}`)", rule.name)))
        .collect()
}

/// Whether one of these keys occurs anywhere in a value.
fn has_key(value: &Json, keys: &[&str]) -> bool {
    match value {
        Json::Object(table) => table.iter().any(|(key, value)| keys.contains(&key.as_str()) || has_key(value, keys)),
        Json::Array(items) => items.iter().any(|item| has_key(item, keys)),
        _ => false,
    }
}

/// Checks the Telegram channel. The check of all secrets has already found its token.
fn telegram(settings: &Settings) -> Option<Finding> {
    let config = &settings.channels.telegram;
    let finding = |state, detail: &str| Some(Finding::new("telegram", state, detail));
    match (config.enabled, config.allow.is_empty() && config.operators.is_empty() && !config.pairing) {
        (false, _) => None,
        (true, true) => finding(State::Note, "channels.telegram.allow is empty: nobody may talk to the bot"),
        (true, false) => finding(State::Ok, "token and secret are there"),
    }
}

/// Checks the settings of transcription; `None` if it is off. Sends nothing: a request would cost money.
fn transcription(settings: &Settings, secrets: &Secrets) -> Option<Finding> {
    let base = settings.transcription.base_url.as_ref()?;
    Some(match transcriber(settings, secrets.transcription.as_ref()) {
        Ok(_) => Finding::new("transcription", State::Ok, format!("recordings are sent to {base}; it was not asked")),
        Err(failure) => Finding::failed("transcription", &failure),
    })
}

/// Checks the settings of the search by meaning; `None` if it is off. Sends nothing.
fn embeddings(settings: &Settings, secrets: &Secrets) -> Option<Finding> {
    let base = settings.memory.embeddings.base_url.as_ref()?;
    let store = SqlStore::in_memory().map_err(|error| refuse_store(&error));
    Some(match store.and_then(|store| meaning(settings, secrets.embeddings.as_ref(), Arc::new(store))) {
        Ok(_) => Finding::new("embeddings", State::Ok, format!("notes are sent to {base}; it was not asked")),
        Err(failure) => Finding::failed("embeddings", &failure),
    })
}

/// Checks whether workers can be started, if they are enabled. A problem is a note: everything else works without
/// workers.
fn workers(settings: &Settings, sandbox_works: bool) -> Vec<Finding> {
    let WorkersConfig { enabled, host, docker_socket, .. } = &settings.workers;
    if !enabled {
        return Vec::new();
    }
    let finding = |state, detail: String| Finding::new("workers", state, detail);
    let none = |why: String| finding(State::Note, format!("run_in_worker is not offered: {why}"));
    let room = match host {
        WorkerHostKind::Sandbox if settings.tools.sandbox.policy == Policy::Off => {
            none("workers need the sandbox, and tools.sandbox.policy is off".into())
        }
        WorkerHostKind::Sandbox if !sandbox_works => none("workers need the sandbox, which does not work here".into()),
        WorkerHostKind::Sandbox => finding(State::Ok, "workers live in the sandbox of commands".into()),
        WorkerHostKind::Container => match std::os::unix::net::UnixStream::connect(docker_socket) {
            Ok(_) => finding(State::Ok, format!("workers live in containers; {} answers", docker_socket.display())),
            Err(error) => none(format!("{}: {error}", docker_socket.display())),
        },
    };
    std::iter::once(room).chain(names::host_tools(settings)).collect()
}

/// Checks what this machine offers to the sandbox of commands, piece by piece, and whether the configured sandbox
/// works. A problem is a note: commands are refused then, and everything else works. Also returns whether it works.
fn sandbox(config: &SandboxConfig, paths: &Paths) -> (Vec<Finding>, bool) {
    let finding = |state, detail: String| Finding::new("sandbox", state, detail);
    if config.policy == Policy::Off {
        let off = finding(State::Note, "tools.sandbox.policy is off: commands run without a sandbox".to_owned());
        return (vec![off], false);
    }
    let state = |there: bool| if there { State::Ok } else { State::Note };
    let mut findings: Vec<_> =
        Offers::look(config).lines().into_iter().map(|(there, detail)| finding(state(there), detail)).collect();
    // Any directory is enough for this test; the workspace may not exist yet.
    let place = paths.data.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
    let belay = std::env::current_exe().map_err(|error| format!("the program of Belay is not found: {error}"));
    let probed = belay.and_then(|belay| Sandbox::probe(config, place, &belay).map_err(|missing| missing.0));
    let works = probed.is_ok();
    findings.push(match probed {
        Ok(_) => finding(State::Ok, format!("the policy {} works here", config.policy.word())),
        Err(why) => finding(State::Note, format!("commands are refused: {why}")),
    });
    (findings, works)
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    #[test]
    fn every_limit_and_rule_that_counts_money_is_known() {
        let mut settings = Settings::default();
        assert!(about_money(&settings).is_empty());
        settings.limits.usd_per_day = Some(1.0);
        settings.limits.usd_per_day_for.insert(belay_protocol::Purpose::Heartbeat, 0.5);
        settings.limits.run.usd_per_run = Some(1.0);
        settings.limits.run.usd_per_session = Some(1.0);
        let rules = [
            r#"{"name":"text","when":{"any":[{"says":"run_usd"},{"calls":"session_usd"}]}}"#,
            r#"{"name":"deep","when":{"any":[{"steps":3},{"not":{"all":[{"session_usd":1.0}]}}]}}"#,
        ];
        settings.stops.rules = rules.map(|rule| serde_json::from_str(rule).expect("a rule")).into();
        let expected = [
            "limits.usd_per_day",
            "limits.usd_per_run",
            "limits.usd_per_session",
            "limits.usd_per_day_for.heartbeat",
            "the money in stops.rules[1] (`deep`)",
        ];
        assert_eq!(about_money(&settings), expected);
    }

    #[test]
    fn the_worst_finding_gives_the_exit_code() {
        let finding = |state| Finding::new("x", state, "");
        for (states, exit) in [
            (vec![State::Ok, State::Note], Exit::Fine),
            (vec![State::Ok, State::OutOfReach], Exit::OutOfReach),
            (vec![State::OutOfReach, State::Refused, State::Ok], Exit::Refused),
        ] {
            let findings: Vec<_> = states.into_iter().map(finding).collect();
            assert_eq!(report(&findings, false, Output::plain(&OnceLock::new())), exit);
        }
    }
}
