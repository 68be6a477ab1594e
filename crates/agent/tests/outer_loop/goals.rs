//! Goals: a run that goes on until its check holds.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use belay_protocol::{
    Ack, Ask, CallPreview, Effect, Price, RunOptions, RunRecord, RunStatus, SessionKey, StopReason, Tool, ToolContext,
    ToolFailure, ToolOutput, ToolSpec,
};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::{Map, Value, json};

use crate::jobs::{done, setup_of};
use crate::support::{Running, Setup, end_of, saw};

/// The exit code of a command that does not end.
const HANGS: u8 = 255;

/// Stands in for `run_command`: each call ends as the test says, and the digest of its script is what the test says.
struct Command {
    spec: ToolSpec,
    exits: Mutex<VecDeque<u8>>,
    script: Arc<Mutex<String>>,
    /// The digests to which the calls were bound; `None`: a call was bound to nothing.
    bound: Arc<Mutex<Vec<Option<String>>>>,
}

impl Command {
    fn new(exits: &[u8]) -> Self {
        let schema = json!({"type": "object", "properties": {"argv": {"type": "array"}}, "required": ["argv"]});
        let spec = ToolSpec {
            effect: Effect::External,
            idempotent: false,
            untrusted: true,
            ..ToolSpec::new("run_command", "runs a program", schema)
        };
        let exits = Mutex::new(exits.iter().copied().collect());
        Self { spec, exits, script: Arc::default(), bound: Arc::default() }
    }

    fn asking(mut self) -> Self {
        self.spec.approval = Ask::UnlessApproved;
        self
    }
}

#[async_trait]
impl Tool for Command {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn preview(&self, _: &Map<String, Value>, _: &SessionKey) -> Result<CallPreview, ToolFailure> {
        let script = self.script.lock().expect("not poisoned").clone();
        Ok(CallPreview { bound: vec![("file check.sh".to_owned(), script)], ..CallPreview::default() })
    }

    async fn call(&self, _: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let bound = context.approved.as_ref().and_then(|approved| approved.0.first());
        self.bound.lock().expect("not poisoned").push(bound.map(|(_, digest)| digest.clone()));
        let exit = self.exits.lock().expect("not poisoned").pop_front().expect("no further check was expected");
        match exit {
            HANGS => std::future::pending().await,
            0 => Ok("[exit code 0]\nall 3 tests passed".into()),
            code => Err(ToolFailure::failed(format!("exit code {code}\n1 test failed"))),
        }
    }
}

fn setup(script: impl IntoIterator<Item = Scripted>, command: Command) -> Setup {
    let mut setup = Setup::new(ScriptedModel::new(script));
    setup.tools.push(Arc::new(command));
    setup
}

async fn ended(agent: &Running, text: &str) -> Arc<RunRecord> {
    end_of(agent.one.accepted("alice", text).await).await
}

fn fact(record: &RunRecord, key: &str) -> Value {
    record.evidence.get(key).cloned().unwrap_or_default()
}

/// The answer to a command.
async fn told(agent: &Running, text: &str) -> String {
    match agent.one.text("alice", text).await {
        Ack::Command(reply) => reply.reply,
        other => panic!("{text:?} was not answered as a command: {other:?}"),
    }
}

/// Waits for a delivery with this text in it.
async fn heard(agent: &mut Running, part: &str) {
    while !agent.one.next().await.contains(part) {}
}

#[tokio::test(start_paused = true)]
async fn a_check_that_holds_at_the_start_costs_no_model_call() {
    let setup = setup([], Command::new(&[0]));
    let mut agent = setup.start().await;
    let record = ended(&agent, "/goal fix it until `sh check.sh`").await;
    assert_eq!((record.status, record.reason), (RunStatus::Completed, Some(StopReason::Goal)));
    assert_eq!((record.usage.model_calls, fact(&record, "attempts")), (0, json!(0)));
    let reply = agent.one.next().await;
    assert_eq!(reply, "Goal reached before any work: `sh check.sh` holds.\n\n[exit code 0]\nall 3 tests passed");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_works_on_until_the_check_holds_for_the_first_time_and_makes_no_call_after_it() {
    // It would fail again after it has held once: the first hold counts.
    let command = Command::new(&[1, 2, 0, 1]);
    *command.script.lock().expect("not poisoned") = "a digest".to_owned();
    let bound = command.bound.clone();
    let setup = setup([Scripted::text("I fixed it."), Scripted::text("Now I did.")], command);
    let mut agent = setup.start().await;
    let record = ended(&agent, "/goal fix it until `sh check.sh`").await;
    assert_eq!((record.status, record.reason), (RunStatus::Completed, Some(StopReason::Goal)));
    assert_eq!((record.usage.model_calls, fact(&record, "attempts")), (2, json!(2)));
    assert_eq!(fact(&record, "check"), json!("`sh check.sh`"));
    let reply = agent.one.next().await;
    assert!(reply.starts_with("Now I did.\n\nGoal reached after 2 attempts: `sh check.sh` holds."), "{reply}");
    let first = saw(&agent.model, 1);
    assert!(first.iter().any(|text| text.contains("exit code 1")), "{first:?}");
    assert!(first.last().is_some_and(|text| text.contains("This is attempt 1 of 5.")), "{first:?}");
    let second = saw(&agent.model, 2);
    assert!(second.iter().any(|text| text.contains("exit code 2")), "{second:?}");
    assert!(second.last().is_some_and(|text| text.contains("This is attempt 2 of 5.")), "{second:?}");
    let digest = Some("a digest".to_owned());
    assert_eq!(
        *bound.lock().expect("not poisoned"),
        [None, digest.clone(), digest],
        "the bytes of the first check, unasked"
    );
    // The next message is an ordinary one, and checks nothing.
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_check_that_never_holds_ends_with_what_is_missing() {
    let texts = ["Done.", "Really done."].map(Scripted::text);
    let setup = setup(texts, Command::new(&[1, 1, 7]));
    let mut agent = setup.start().await;
    let record = ended(&agent, "/goal --attempts 2 fix it until `sh check.sh`").await;
    assert_eq!((record.status, record.reason), (RunStatus::Failed, Some(StopReason::GoalMissed)));
    assert_eq!((fact(&record, "cause"), fact(&record, "attempts")), (json!("attempts"), json!(2)));
    assert_eq!(fact(&record, "missing"), json!("exit code 7\n1 test failed"));
    let reply = agent.one.next().await;
    assert!(
        reply.ends_with("The goal is not reached: all 2 attempts are used.\n\nexit code 7\n1 test failed"),
        "{reply}"
    );
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_person_is_asked_about_the_check_once_and_not_again_after_untrusted_content() {
    let setup = setup([Scripted::text("Done.")], Command::new(&[1, 0]).asking());
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "/goal fix it until `sh check.sh`").await;
    let question = agent.one.next().await;
    assert!(question.contains("check.sh"), "{question}");
    assert!(told(&agent, "/goal").await.contains("Attempt 0 of 5 (checking)"));
    agent.one.text("alice", "yes").await;
    let record = end_of(accepted).await;
    assert_eq!(record.reason, Some(StopReason::Goal), "{:?}", record.evidence);
    heard(&mut agent, "Goal reached after 1 attempt").await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_for_plain_text_is_no_order() {
    for text in ["/goal fix it until `sh check.sh`", "/plan fix it", "/goal fix it until outputs n:integer"] {
        let setup = setup([Scripted::text("As you say.")], Command::new(&[]));
        let agent = setup.start().await;
        let options = RunOptions { text_only: true, ..RunOptions::default() };
        let record = end_of(agent.one.asking("alice", text, options).await).await;
        assert_eq!((record.status, record.reply.as_deref()), (RunStatus::Completed, Some("As you say.")), "{record:?}");
        assert_eq!((record.usage.model_calls, saw(&agent.model, 1).last().cloned()), (1, Some(text.to_owned())));
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_denied_check_ends_the_goal_before_any_work() {
    let setup = setup([], Command::new(&[]).asking());
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "/goal fix it until `sh check.sh`").await;
    agent.one.next().await;
    agent.one.text("alice", "no").await;
    let record = end_of(accepted).await;
    assert_eq!((record.reason, fact(&record, "cause")), (Some(StopReason::GoalMissed), json!("check_refused")));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_check_that_the_run_edits_is_refused() {
    let command = Command::new(&[1, 0]);
    let script = command.script.clone();
    // The model's own call of the tool stands for its edit.
    let edit = Scripted::call("edit_check", json!({}));
    let mut setup = setup([edit, Scripted::text("It passes now.")], command);
    setup.tools.push(Arc::new(Edit { spec: edits(), script }));
    let mut agent = setup.start().await;
    let record = ended(&agent, "/goal fix it until `sh check.sh`").await;
    assert_eq!((record.status, record.reason), (RunStatus::Failed, Some(StopReason::GoalMissed)));
    assert_eq!(fact(&record, "cause"), json!("check_changed"));
    let reply = agent.one.next().await;
    assert!(reply.contains("the check has changed since it was set (file check.sh)"), "{reply}");
    agent.shut_down().await;
}

fn edits() -> ToolSpec {
    ToolSpec { effect: Effect::Read, ..ToolSpec::new("edit_check", "edits", json!({"type": "object"})) }
}

struct Edit {
    spec: ToolSpec,
    script: Arc<Mutex<String>>,
}

#[async_trait]
impl Tool for Edit {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: &Map<String, Value>, _: &ToolContext) -> ToolOutput {
        *self.script.lock().expect("not poisoned") = "exit 0".to_owned();
        Ok("edited".into())
    }
}

#[tokio::test(start_paused = true)]
async fn a_judge_that_claims_does_not_overrule_a_command_that_denies() {
    let script = [
        Scripted::text("Done."),
        Scripted::text("The sum is 42."),
        // Without a quote that stands there, then with one.
        Scripted::text(r#"{"met": true, "evidence": "The sum is 41."}"#),
        Scripted::text("Again: The sum is 42."),
        Scripted::text(r#"{"met": true, "evidence": "The sum is 42."}"#),
    ];
    let setup = setup(script, Command::new(&[1, 1, 0, 0]));
    let mut agent = setup.start().await;
    let record = ended(&agent, "/goal add it until `sh check.sh` and judge \"it names the sum\"").await;
    assert_eq!(record.reason, Some(StopReason::Goal), "{:?}", record.evidence);
    assert_eq!((record.usage.model_calls, fact(&record, "attempts")), (5, json!(3)));
    assert!(fact(&record, "said").as_str().is_some_and(|said| said.ends_with("The judge quotes: The sum is 42.")));
    agent.one.next().await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn outputs_are_submitted_anew_until_the_command_accepts_them() {
    let submit = |n: u32| Scripted::call("emit_value", json!({"name": "n", "value": n}));
    let setup = setup([submit(1), submit(2)], Command::new(&[1, 1, 0]));
    let mut agent = setup.start().await;
    let record = ended(&agent, "/goal count until outputs n:integer and `sh check.sh`").await;
    assert_eq!(record.reason, Some(StopReason::Goal), "{:?}", record.evidence);
    assert_eq!((record.reply.as_deref(), record.usage.model_calls), (Some(r#"{"n":2}"#), 2));
    agent.one.next().await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_goal_is_shown_and_a_stop_ends_it() {
    let setup = setup([Scripted::call("wait", json!({}))], Command::new(&[1]));
    let setup = setup.tool(crate::support::TestTool::named("wait"));
    let agent = setup.start().await;
    assert!(told(&agent, "/goal").await.starts_with("No goal is being worked for here."));
    assert!(told(&agent, "/goal fix it").await.starts_with("`until CHECK` is missing"));
    let accepted = agent.one.accepted("alice", "/goal --usd 2 fix it until `sh check.sh`").await;
    let shown = loop {
        let shown = told(&agent, "/goal").await;
        if shown.contains("(working)") {
            break shown;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    assert!(
        shown.starts_with("Goal: fix it\nUntil: `sh check.sh`\nAttempt 1 of 5 (working); spent $0.0000 of $2.0000")
            && shown.ends_with("Last check: exit code 1\n1 test failed"),
        "{shown}"
    );
    assert_eq!(told(&agent, "/goal cancel").await, "The goal was cancelled.");
    let record = end_of(accepted).await;
    assert_eq!(record.reason, Some(StopReason::UserStop));
    assert!(told(&agent, "/goal").await.starts_with("No goal is being worked for here."));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_goal_goes_on_after_a_crash_in_an_attempt_and_in_a_check() {
    let first = setup([Scripted::text("Done."), Scripted::hang()], Command::new(&[1, 1, HANGS, 0]));
    let agent = first.start().await;
    let run = agent.one.accepted("alice", "/goal fix it until `sh check.sh`").await.run_id;
    agent.asked(2).await;
    agent.crash().await;

    let second = first.next_boot(ScriptedModel::new([Scripted::text("Now.")]));
    let agent = second.start().await;
    agent.asked(1).await;
    // The check that hangs has begun when nothing else is left to do.
    while !told(&agent, "/goal").await.contains("Attempt 2 of 5 (checking)") {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    agent.crash().await;

    let third = second.next_boot(ScriptedModel::new([]));
    let mut agent = third.start().await;
    let reply = agent.one.next().await;
    assert!(reply.contains("Goal reached after 2 attempts"), "{reply}");
    let record = first.store.runs.run(run).await.expect("readable").expect("known");
    assert_eq!((record.status, record.reason), (RunStatus::Completed, Some(StopReason::Goal)));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_question_about_a_check_outlives_a_crash() {
    let first = setup([], Command::new(&[0]).asking());
    let mut agent = first.start().await;
    agent.one.accepted("alice", "/goal fix it until `sh check.sh`").await;
    agent.one.next().await;
    agent.crash().await;
    let mut agent = first.next_boot(ScriptedModel::new([])).start().await;
    agent.one.text("alice", "yes").await;
    heard(&mut agent, "Goal reached before any work").await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_money_and_a_loop_end_the_goal_with_what_is_missing() {
    for (text, usage, reason) in [
        ("/goal --usd 0.0025 fix it until `sh check.sh`", 1000, StopReason::RunCost),
        ("/goal --attempts 50 fix it until `sh check.sh`", 0, StopReason::RepeatedReplies),
    ] {
        let price = Price { input: 1_000_000, cached_input: None, output: 0 };
        let model = ScriptedModel::new([])
            .then_forever(Scripted::text("It is done."))
            .with_usage(usage, 0)
            .with_info(|info| info.price = Some(price));
        let mut setup = Setup::new(model);
        setup.tools.push(Arc::new(Command::new(&[1; 60])));
        let agent = setup.start().await;
        let record = ended(&agent, text).await;
        assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(reason)), "{:?}", record.evidence);
        assert_eq!(fact(&record, "missing"), json!("exit code 1\n1 test failed"));
        assert!(fact(&record, "attempts").as_u64().is_some_and(|attempts| attempts < 50), "{:?}", record.evidence);
        agent.shut_down().await;
    }
}

/// All attempts together have the active time of one run, whatever the budget of the goal says.
#[tokio::test(start_paused = true)]
async fn a_goal_ends_at_its_own_limit_of_time_or_at_that_of_a_run_whichever_is_shorter() {
    for (time, limit) in [("--minutes 60", 20), ("--seconds 20", 900)] {
        let answers = ["I begin.", "I go on.", "I am nearly done.", "It is done.", "Now it is."];
        let model = answers.map(|text| Scripted::text(text).after(std::time::Duration::from_secs(6)));
        let mut setup = setup(model, Command::new(&[1; 8]));
        setup.rules = crate::support::rules(&format!("closing_turn_s = 0\n[limits]\nactive_s = {limit}"));
        let agent = setup.start().await;
        let record = ended(&agent, &format!("/goal {time} --attempts 50 fix it until `sh check.sh`")).await;
        let end = (record.status, record.reason);
        assert_eq!(end, (RunStatus::Stopped, Some(StopReason::ActiveTime)), "{time}: {record:?}");
        assert_eq!(
            fact(&record, "attempts"),
            json!(4),
            "three whole ones, and one that the limit has ended: {record:?}"
        );
        assert_eq!(fact(&record, "missing"), json!("exit code 1\n1 test failed"));
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_submits_the_outputs_of_its_goal_anew_until_the_command_accepts_them() {
    let submits = |n: u64| Scripted::call("complete_task", json!({ "outputs": { "n": n } }));
    let script = [Scripted::text("It is three."), submits(3), Scripted::text("As before."), submits(4)];
    let mut setup = setup_of(ScriptedModel::new(script));
    setup.tools.push(Arc::new(Command::new(&[1, 1, 0])));
    let mut agent = setup.start().await;
    agent.one.command("alice", "/job /goal count until outputs n:integer and `sh check.sh`").await;
    let told = agent.one.next_message().await.text;
    assert!(told.contains("is done."), "{told}");
    assert!(told.contains(r#"{"n":4}"#), "the outputs are the answer: {told}");
    assert_eq!(agent.model.seen().len(), 4, "a text submits nothing");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_works_for_a_goal_until_its_check_holds() {
    let mut setup = setup_of(ScriptedModel::new([done("swept"), done("swept again")]));
    setup.tools.push(Arc::new(Command::new(&[1, 1, 0])));
    let mut agent = setup.start().await;
    let refused = agent.one.command("alice", "/job /goal sweep").await;
    assert!(refused.starts_with("`until CHECK` is missing behind the text. /goal TEXT"), "{refused}");
    let refused = agent.one.command("alice", "/job /goal --usd 1 sweep until `sh check.sh`").await;
    assert!(refused.ends_with("use the budget of the job. --attempts is its own."), "{refused}");
    let grants = "/job --allow \"run_command: make\" --yes /goal --minutes 1 sweep until `sh check.sh`";
    let refused = agent.one.command("alice", grants).await;
    assert!(refused.contains("use the budget of the job"), "{refused}");
    agent.one.command("alice", "/job /goal sweep until `sh check.sh`").await;
    let told = agent.one.next_message().await.text;
    assert!(told.contains("is done.\n\nswept again\n\nGoal reached after 2 attempts"), "{told}");
    assert_eq!(agent.model.seen().len(), 2);
    agent.shut_down().await;
}
