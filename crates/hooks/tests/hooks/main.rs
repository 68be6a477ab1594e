//! Hooks as they are configured and called: real programs, and a real HTTP server on this machine.

mod commands;
mod examples;
mod http;

use std::sync::Arc;
use std::time::Duration;

use belay_exec::{CgroupUse, Processes, ProcessesConfig};
use belay_hooks::{HookSet, HooksConfig};
use belay_protocol::{Hook, HookAnswer, HookEvent, HookPoint, Secret, UnixMillis};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

/// How long anything is waited for that has to happen.
const LIMIT: Duration = Duration::from_secs(300);

/// The hooks of these settings. The variable `TOKEN` is set, and no other.
fn set(settings: &str) -> HookSet {
    set_of(settings, processes())
}

/// The same, with programs that are kept by `processes`.
fn set_of(settings: &str, processes: Arc<Processes>) -> HookSet {
    #[derive(Deserialize)]
    struct File {
        hooks: HooksConfig,
    }
    let file: File = toml::from_str(settings).expect("the settings are TOML");
    let token = |name: &str| (name == "TOKEN").then(|| Secret::new("s3cret".into()));
    HookSet::build(&file.hooks, processes, token).expect("the settings are right")
}

/// Keeps processes without control groups: every tie but that one.
fn processes() -> Arc<Processes> {
    let config = ProcessesConfig { cgroup: CgroupUse::Off, ..ProcessesConfig::default() };
    Arc::new(Processes::new(config).expect("processes can be kept here"))
}

/// The one hook of a set.
fn hook(set: &HookSet) -> Arc<dyn Hook> {
    set.bound().remove(0).hook
}

fn event(data: Value) -> HookEvent {
    HookEvent { hook: HookPoint::BeforeToolCall.word(), at: UnixMillis(0), session: None, run_id: None, data }
}

async fn ask(hook: &Arc<dyn Hook>) -> Result<HookAnswer, String> {
    let event = event(json!({"tool": "ring_bell", "arguments": {"times": 3}}));
    timeout(LIMIT, hook.call(&event)).await.expect("it answers in time")
}

/// Waits until something holds.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < until, "never: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

fn changed(value: Value) -> HookAnswer {
    match value {
        Value::Object(fields) => HookAnswer::Change(fields),
        other => panic!("{other} is no object"),
    }
}

#[tokio::test]
async fn a_hook_is_bound_to_each_of_its_points_with_what_the_point_or_the_settings_say() {
    let set = set(r#"
        [[hooks]]
        name = "a"
        on = ["before_tool_call", "agent_end"]
        command = ["true"]
        tools = ["run_*"]
        priority = 7

        [[hooks]]
        name = "b"
        on = "message_sending"
        command = ["true"]
        timeout_ms = 1500
        on_failure = "closed"

        [[hooks]]
        name = "c"
        redact = { patterns = ["x"] }
    "#);
    let found: Vec<String> = set
        .bound()
        .iter()
        .map(|b| format!("{b:?} {} {:?} {:?} {:?}", b.priority, b.timeout, b.on_failure, b.tools))
        .collect();
    assert_eq!(
        found,
        [
            r#"a at agent_end 7 30s Open []"#,
            r#"a at before_tool_call 7 15s Closed ["run_*"]"#,
            r#"b at message_sending 0 1.5s Closed []"#,
            r#"c at tool_result_persist 0 5s Open []"#,
            r#"c at message_sending 0 15s Open []"#,
        ]
    );
}

#[test]
fn a_token_that_is_not_set_is_told_before_anything_is_asked() {
    let settings = r#"[{"name": "desk", "on": "agent_end", "url": "http://127.0.0.1:1/", "token_env": "DESK"}]"#;
    let config: HooksConfig = serde_json::from_str(settings).expect("it parses");
    let refused = HookSet::build(&config, processes(), |_| None).expect_err("there is no token").to_string();
    assert_eq!(refused, "the hook desk sends the token in DESK, which is not set; set it, or leave `token_env` away");
}
