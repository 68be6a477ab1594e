//! Work that goes on by itself has the rights that its creator had and has, whichever are fewer: after a restart with other
//! settings it has fewer, or does not go on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use belay_automation::JobsConfig;
use belay_automation::RoutinesConfig;
use belay_protocol::{
    AccessDecision, Ack, Authority, ChannelAccess, Control, JobBudget, JobId, JobRequest, JobState, Notify,
    PrincipalRole, ReplyRoute, RoutineAction, RoutineAnswer, RoutineRequest, RoutineRunStatus, RoutineSpec, RunFilter,
    RunStatus, RunsIn, SessionKey, StopReason, Trigger,
};
use belay_run::ApprovalRule;
use belay_run::DisabledChannels;
use belay_run::approvals::RuleAsk;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::jobs::{done, id_in, runs, silence, until};
use crate::routines::{ended, routine};
use crate::support::{Running, Setup, TestTool, saw};

/// People who are let in, and conversations that are not.
struct Lists {
    people: Vec<(&'static str, Authority)>,
    closed: Vec<&'static str>,
}

impl ChannelAccess for Lists {
    fn standing_of(&self, principal: &str, conversation: Option<&str>) -> AccessDecision {
        let known = self.people.iter().find(|(id, _)| *id == principal);
        match known.filter(|_| conversation.is_none_or(|conversation| self.serves(conversation))) {
            Some((_, place)) => AccessDecision::May(*place),
            None => AccessDecision::NotAllowed("not on the list".into()),
        }
    }

    fn serves(&self, conversation: &str) -> bool {
        !self.closed.contains(&conversation)
    }

    fn session_of(&self, _conversation: &str) -> Option<SessionKey> {
        None
    }
}

fn lists(people: &[(&'static str, Authority)], closed: &[&'static str]) -> Arc<dyn ChannelAccess> {
    Arc::new(Lists { people: people.to_vec(), closed: closed.to_vec() })
}

/// An agent with jobs, which lets these people in.
fn setup_of(model: ScriptedModel, people: &[(&'static str, Authority)]) -> Setup {
    Setup { jobs: JobsConfig::default(), lists: Some(lists(people, &[])), ..Setup::new(model) }
}

fn hanging() -> ScriptedModel {
    ScriptedModel::new([]).then_forever(Scripted::hang())
}

/// Makes a job for `tester` in the conversation `alice`.
async fn job_of(agent: &mut Running, role: PrincipalRole, task: &str) -> JobId {
    let Ack::Command(made) = agent.one.text_as("alice", role, &format!("/job {task}")).await else { panic!("no job") };
    assert_eq!(agent.one.next().await, made.reply);
    id_in(&made.reply)
}

#[tokio::test(start_paused = true)]
async fn a_job_of_somebody_who_is_let_in_no_more_fails_and_is_told_where_that_may_be_told() {
    for (closed, told) in [(vec![], true), (vec!["alice"], false)] {
        let setup = setup_of(hanging(), &[("tester", Authority::Conversation)]);
        let mut agent = setup.start().await;
        let id = job_of(&mut agent, PrincipalRole::User, "count").await;
        agent.asked(1).await;
        agent.crash().await;

        let mut next = setup.next_boot(ScriptedModel::new([]));
        next.lists = Some(lists(&[("bob", Authority::Operator)], &closed));
        let mut agent = next.start().await;
        let failed = until(&next, id, JobState::Failed).await;
        assert_eq!(failed.detail, "tester, who created this work, no longer has access through one: not on the list");
        if told {
            assert_eq!(agent.one.next().await, format!("Job “count” ({id}) has failed: {}", failed.detail));
        }
        silence(&mut agent).await;
        assert!(agent.model.seen().is_empty(), "the run that the restart took up asks no model");
        let run = runs(&next, id).await.remove(0);
        assert_eq!((run.status, run.reason), (RunStatus::Stopped, Some(StopReason::ParentStopped)));
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_asked_for_where_nobody_is_let_in_any_more_fails_although_its_creator_is() {
    let people = [("tester", Authority::Conversation)];
    let setup = setup_of(hanging(), &people);
    let mut agent = setup.start().await;
    let id = job_of(&mut agent, PrincipalRole::User, "count").await;
    agent.asked(1).await;
    agent.crash().await;
    let next = Setup { lists: Some(lists(&people, &["alice"])), ..setup.next_boot(ScriptedModel::new([])) };
    let mut agent = next.start().await;
    until(&next, id, JobState::Failed).await;
    silence(&mut agent).await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn that_a_job_was_cancelled_is_not_told_where_nobody_is_let_in_any_more() {
    let people = [("tester", Authority::Conversation)];
    let mut setup = setup_of(hanging(), &people);
    setup.jobs.max_parallel = 1;
    let mut agent = setup.start().await;
    agent.one.text_as("bob", PrincipalRole::User, "/job works").await;
    agent.one.next().await;
    agent.asked(1).await;
    let waits = job_of(&mut agent, PrincipalRole::User, "waits").await;
    agent.crash().await;

    for (closed, told) in [(vec!["alice"], false), (vec![], true)] {
        let next = Setup { lists: Some(lists(&people, &closed)), ..setup.next_boot(hanging()) };
        let mut agent = next.start().await;
        agent.asked(1).await;
        let id = if told { job_of(&mut agent, PrincipalRole::User, "waits too").await } else { waits };
        let cancelled = agent.one.control(Control::Job(JobRequest::Cancel(id))).await;
        assert!(matches!(&cancelled, Ack::Job(job) if job.state == JobState::Cancelled), "{cancelled:?}");
        if told {
            assert_eq!(agent.one.next().await, "The job “waits too” was cancelled.");
        }
        silence(&mut agent).await;
        agent.shut_down().await;
    }
}

/// What a model says that writes to another conversation, and what it reads then.
async fn writes_elsewhere(setup: &Setup, script: Vec<Scripted>, is: Authority) -> (bool, String) {
    let people = [("tester", is)];
    let next = Setup { lists: Some(lists(&people, &[])), ..setup.next_boot(ScriptedModel::new(script)) };
    let mut agent = next.start().await;
    let mut told = Vec::new();
    while !told.iter().any(|text: &String| text.contains("(the last one)")) {
        told.push(agent.one.next().await);
    }
    let requests = agent.model.seen().len();
    let read = saw(&agent.model, requests).pop().unwrap_or_default();
    agent.shut_down().await;
    (told.iter().any(|text| text == "hello"), read)
}

#[tokio::test(start_paused = true)]
async fn who_was_an_operator_has_the_rights_of_what_they_are_now_in_the_run_at_work_and_in_the_next_one() {
    let send = || Scripted::call("send_message", json!({"place": "one:bob", "text": "hello"}));
    for (is, sent) in [(Authority::Operator, true), (Authority::Token, false), (Authority::Conversation, false)] {
        for pending in [false, true] {
            let mut setup = setup_of(ScriptedModel::new([Scripted::text("hi")]).then_forever(Scripted::hang()), &[]);
            setup.lists = Some(lists(&[("tester", Authority::Operator)], &[]));
            setup.config.send_message = true;
            setup.jobs.max_parallel = 1;
            setup.approvals.rules.push(ApprovalRule {
                tool: "send_message".into(),
                arguments: BTreeMap::new(),
                ask: RuleAsk::Never,
                allow_untrusted: true,
                second: false,
            });
            let mut agent = setup.start().await;
            agent.one.ask("one:bob", "I am here").await;
            let mut script = vec![send(), done("(the last one)")];
            if pending {
                job_of(&mut agent, PrincipalRole::Operator, "first").await;
                script.insert(0, done("first"));
            }
            job_of(&mut agent, PrincipalRole::Operator, "write to bob").await;
            agent.asked(2).await;
            agent.crash().await;
            let (was_sent, read) = writes_elsewhere(&setup, script, is).await;
            assert_eq!(was_sent, sent, "{is:?}, pending: {pending}: {read}");
            assert_eq!(read.contains("only an operator's request may write"), !sent, "{is:?}: {read}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_is_switched_off_still_says_who_is_let_in_and_of_one_that_is_gone_all_are() {
    let absent = |people: &[(&'static str, Authority)]| DisabledChannels::from([("one".into(), lists(people, &[]))]);
    let somebody = [("tester", Authority::Conversation)];
    for (absent, state) in [
        (absent(&somebody), JobState::Submitted),
        (absent(&[]), JobState::Failed),
        (DisabledChannels::new(), JobState::Submitted),
    ] {
        let setup = setup_of(hanging(), &somebody);
        let mut agent = setup.start().await;
        let id = job_of(&mut agent, PrincipalRole::User, "count").await;
        agent.asked(1).await;
        agent.crash().await;
        let next = Setup { absent, names: ["three", "two"], ..setup.next_boot(ScriptedModel::new([done("two")])) };
        let agent = next.start().await;
        until(&next, id, state).await;
        agent.shut_down().await;
    }
}

/// A routine of `tester` that works by itself or by a job, made in the conversation `control`.
async fn routine_of(agent: &Running, role: PrincipalRole, spec: RoutineSpec) {
    let put = RoutineRequest::Put { spec, fresh: true };
    match agent.one.control_as(role, Control::Routine(Box::new(put))).await {
        Ack::Routine(RoutineAnswer::Routine(_)) => {}
        other => panic!("it was not made: {other:?}"),
    }
}

fn by_job(spec: RoutineSpec) -> RoutineSpec {
    let action = RoutineAction::FullJob {
        task: "look".into(),
        plan: false,
        runs_in: RunsIn::Local,
        budget: JobBudget::default(),
    };
    RoutineSpec { action, ..spec }
}

fn with_routines(setup: Setup) -> Setup {
    Setup { routines: RoutinesConfig::default(), ..setup }
}

/// Fires a routine as an operator who is on no list of this channel's.
async fn fire(agent: &Running, name: &str) {
    let fire = RoutineRequest::Fire { name: name.into(), payload: None };
    let fired = agent.two.control(Control::Routine(Box::new(fire))).await;
    assert!(matches!(fired, Ack::Routine(RoutineAnswer::Fired(_))), "{fired:?}");
}

async fn is_on(setup: &Setup, name: &str) -> (bool, String) {
    let routine = setup.store.routines.routine(name).await.expect("readable").expect("there");
    (routine.enabled, routine.disabled_detail)
}

const GONE: &str = "tester, who created this work, no longer has access through one: not on the list";

#[tokio::test(start_paused = true)]
async fn a_routine_of_somebody_who_is_let_in_no_more_fails_is_off_and_tells_it_once() {
    for (closed, told) in [(vec![], true), (vec!["control"], false)] {
        for full_job in [false, true] {
            let people = [("tester", Authority::Conversation)];
            let setup = with_routines(setup_of(ScriptedModel::new([]), &people));
            let agent = setup.start().await;
            let spec = routine("look", Trigger::Manual);
            routine_of(&agent, PrincipalRole::User, if full_job { by_job(spec) } else { spec }).await;
            agent.shut_down().await;

            let mut next = setup.next_boot(ScriptedModel::new([]));
            next.lists = Some(lists(&[], &closed));
            let mut agent = next.start().await;
            fire(&agent, "look").await;
            let routine_run = ended(&next, "look", 1).await.remove(0);
            assert_eq!((routine_run.status, routine_run.summary.as_deref()), (RoutineRunStatus::Failed, Some(GONE)));
            assert_eq!(is_on(&next, "look").await, (false, GONE.to_owned()));
            if told {
                assert_eq!(agent.one.next().await, format!("The routine look is disabled: {GONE}."));
            }
            silence(&mut agent).await;
            assert!(agent.model.seen().is_empty());
            agent.shut_down().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_routine_run_at_work_at_a_crash_does_not_go_on_for_somebody_who_is_let_in_no_more() {
    for full_job in [false, true] {
        let setup = with_routines(setup_of(hanging(), &[("tester", Authority::Conversation)]));
        let agent = setup.start().await;
        let spec = routine("look", Trigger::Manual);
        routine_of(&agent, PrincipalRole::User, if full_job { by_job(spec) } else { spec }).await;
        fire(&agent, "look").await;
        agent.asked(1).await;
        agent.crash().await;

        let next = Setup { lists: Some(lists(&[], &[])), ..setup.next_boot(ScriptedModel::new([])) };
        let mut agent = next.start().await;
        let routine_run = ended(&next, "look", 1).await.remove(0);
        assert_eq!((routine_run.status, routine_run.summary.as_deref()), (RoutineRunStatus::Failed, Some(GONE)));
        assert_eq!(agent.one.next().await, format!("The routine look is disabled: {GONE}."));
        silence(&mut agent).await;
        assert_eq!(is_on(&next, "look").await, (false, GONE.to_owned()));
        assert!(agent.model.seen().is_empty(), "the run that the restart took up asks no model");
        let open = next.store.runs.runs(RunFilter { limit: 10, ..RunFilter::default() }).await.expect("readable");
        assert!(open.iter().all(|run| run.status.is_end()), "{open:?}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_has_a_routine_write_to_somebody_else_is_theirs_again_when_they_are_none() {
    for (is, there) in [(Authority::Operator, true), (Authority::Conversation, false)] {
        let setup = with_routines(setup_of(ScriptedModel::new([]), &[("tester", Authority::Operator)]));
        let agent = setup.start().await;
        let to = ReplyRoute { channel: "one".into(), conversation: "family".into(), reply_to: None };
        let notify = Notify { to: Some(to), ..Notify::default() };
        routine_of(&agent, PrincipalRole::Operator, RoutineSpec { notify, ..routine("look", Trigger::Manual) }).await;
        agent.shut_down().await;
        let next = setup.next_boot(ScriptedModel::new([Scripted::text("It is wet.")]));
        let next = Setup { lists: Some(lists(&[("tester", is)], &[])), ..next };
        let mut agent = next.start().await;
        fire(&agent, "look").await;
        let told = agent.one.next_message().await;
        assert_eq!(told.text, "Routine look: It is wet.");
        assert_eq!(&*told.route.conversation, if there { "family" } else { "control" }, "{is:?}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_refused_by_now_is_refused_to_the_work_that_was_made_when_it_was_not() {
    let people = [("tester", Authority::Operator)];
    for refused in [false, true] {
        let tool = TestTool::named("echo").called("ring").asking();
        let calls = tool.calls.clone();
        let mut setup = setup_of(hanging(), &people).tool(tool);
        let allow = |ask| ApprovalRule {
            tool: "ring".into(),
            arguments: BTreeMap::new(),
            ask,
            allow_untrusted: true,
            second: false,
        };
        setup.approvals.rules = vec![allow(RuleAsk::Never)];
        let mut agent = setup.start().await;
        let id = job_of(&mut agent, PrincipalRole::Operator, "ring").await;
        agent.asked(1).await;
        agent.crash().await;
        let ring = Scripted::call("ring", json!({"text": "ding"}));
        let mut next = setup.next_boot(ScriptedModel::new([ring, done("over")]));
        next.approvals.rules = vec![allow(if refused { RuleAsk::Refuse } else { RuleAsk::Never })];
        let agent = next.start().await;
        until(&next, id, JobState::Submitted).await;
        assert_eq!(calls.load(Ordering::SeqCst), usize::from(!refused), "refused: {refused}");
        agent.shut_down().await;
    }
}
