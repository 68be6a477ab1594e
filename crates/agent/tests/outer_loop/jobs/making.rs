//! Jobs as they are made: by whom, and what whoever made one can do with it.

use std::sync::Arc;
use std::time::Duration;

use belay_automation::{JobsConfig, RoutinesConfig};
use belay_protocol::{
    Ack, ApprovalFilter, Body, Control, Decision, JobBudget, JobFilter, JobId, JobOrder, JobRequest, JobState,
    PrincipalRole, Refusal, RoutineAction, RoutineRunId, RoutineRunStatus, RoutineSpec, RunsIn, StopTarget, Trigger,
    Work, job_session, routine_run_session,
};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use super::{always, create, done, failed, id_in, job, order, request, setup_of, told, until};
use crate::routines::{fire, put, routine};
use crate::support::{Setup, TestTool, end_of, saw};

#[tokio::test(start_paused = true)]
async fn a_job_works_beside_the_conversation_and_its_result_comes_as_a_message_and_as_a_notice_that_the_model_reads() {
    let model = ScriptedModel::new([
        Scripted::call("echo", json!({"text": "seen"})),
        done("two rooms"),
        Scripted::text("hello"),
    ]);
    let setup = setup_of(model);
    let mut agent = setup.start().await;
    let made = agent.one.command("alice", "/job count the rooms\nand the halls").await;
    let id = id_in(&made);
    assert!(made.starts_with("Job “count the rooms” is created"), "{made}");
    let told = agent.one.next_message().await;
    assert_eq!(told.text, format!("Job “count the rooms” ({id}) is done.\n\ntwo rooms"));
    let settled = until(&setup, id, JobState::Submitted).await;
    assert_eq!((settled.attempt, settled.result.as_deref()), (1, Some("two rooms")));
    let tools = agent.model.seen()[0].tools.clone().expect("tools");
    assert!(tools.contains(&"terminate".to_owned()) && !tools.contains(&"create_job".to_owned()), "{tools:?}");
    assert_eq!(saw(&agent.model, 1), ["count the rooms\nand the halls"]);
    agent.one.ask("alice", "hi").await;
    let read = &agent.model.seen()[2].messages;
    assert_eq!(read.len(), 2, "the conversation, which was awake: {read:?}");
    assert!(read[0].is_notice() && read[0].text().contains("two rooms") && read[1].text() == "hi", "{read:?}");
    assert!(agent.model.seen()[2].tools.clone().expect("tools").contains(&"find_tools".to_owned()));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_creator_can_get_no_message_says_so_at_its_creation() {
    let create = || Scripted::call("create_job", json!({"task": "count the rooms"}));
    let replies = [Scripted::hang(), create(), Scripted::text("begun"), create(), Scripted::text("begun")];
    let setup = setup_of(ScriptedModel::new(replies));
    let setup = Setup { jobs: JobsConfig { max_parallel: 1, ..JobsConfig::default() }, ..setup };
    let mut agent = setup.start().await;
    // It holds the only slot, so that the conversations alone follow the script.
    super::create(&agent.one, order("wait")).await;
    agent.asked(1).await;
    end_of(agent.one.unanswered("program", "count them later").await).await;
    assert!(saw(&agent.model, 3).last().is_some_and(|text| text.contains("can only be read by its status")));
    assert_eq!(agent.one.ask("alice", "count them later").await, "begun");
    assert!(saw(&agent.model, 5).last().is_some_and(|text| text.contains("will be sent automatically")));
    match agent.one.silently("program", "/job count the halls").await {
        Ack::Command(reply) => assert!(reply.reply.contains("cannot send you a message later"), "{}", reply.reply),
        other => panic!("not answered as a command: {other:?}"),
    }
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_begins_like_a_command_is_a_task() {
    let setup = setup_of(ScriptedModel::new([done("stopped it")]));
    let mut agent = setup.start().await;
    create(&agent.one, order("/stop the music in the hall")).await;
    assert!(agent.one.next().await.ends_with("is done.\n\nstopped it"));
    assert_eq!(saw(&agent.model, 1), ["/stop the music in the hall"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_twice_makes_one_job() {
    let setup = setup_of(always(done("done")));
    let agent = setup.start().await;
    let id = JobId::new();
    for _ in 0..2 {
        let made = create(&agent.one, JobOrder { job_id: Some(id), ..order("count") }).await;
        assert_eq!(made.job_id, id);
    }
    let Ack::Refused(Refusal::Invalid(what)) =
        request(&agent.two, JobRequest::Create(JobOrder { job_id: Some(id), ..order("mine") })).await
    else {
        panic!("somebody else's id was taken")
    };
    assert!(what.contains("another job"), "{what}");
    let twice = [agent.one.keyed("alice", "/job count", "1").await, agent.one.keyed("alice", "/job count", "1").await];
    assert!(matches!(&twice[1], Ack::Command(reply) if reply.reply.contains("delivered before")), "{twice:?}");
    agent.shut_down().await;
    let next = setup.next_boot(always(done("done")));
    let agent = next.start().await;
    agent.one.keyed("alice", "/job count", "1").await;
    let all = setup.store.jobs.jobs(JobFilter::default()).await.expect("readable");
    assert_eq!(all.len(), 2, "one by id, one by command");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_made_under_a_key_is_shown_and_spoken_to_by_its_id_and_a_task_may_begin_like_an_id() {
    let setup = setup_of(always(Scripted::hang()));
    let agent = setup.start().await;
    let say = async |text: &str, key: &str| match agent.one.keyed("alice", text, key).await {
        Ack::Command(reply) => reply.reply,
        other => panic!("{text}: {other:?}"),
    };
    let mut id = JobId::new();
    for key in 0..100 {
        // Most ids of keyed messages begin with another digit than those of our clock.
        id = id_in(&say("/job count the rooms", &format!("key {key}")).await);
        if !id.to_string().starts_with('0') {
            break;
        }
    }
    until(&setup, id, JobState::InProgress).await;
    let made = setup.store.jobs.jobs(JobFilter::default()).await.expect("readable").len();
    let whole = id.to_string();
    for named in [whole.as_str(), &whole.to_uppercase(), &whole[..8]] {
        let shown = say(&format!("/job {named}"), &format!("show {named}")).await;
        assert!(shown.contains("at work: count the rooms"), "{named}: {shown}");
        let passed = say(&format!("/job {named} hurry"), &format!("say {named}")).await;
        assert_eq!(passed, "The message was passed to the job “count the rooms”.", "{named}");
    }
    assert_eq!(say("/job 01022026", "no id").await, "No job of yours has an id that begins with 01022026.");
    assert_eq!(setup.store.jobs.jobs(JobFilter::default()).await.expect("readable").len(), made, "none was made");
    let task = say("/job 01022026 report", "a task").await;
    assert!(task.starts_with("Job “01022026 report” is created"), "{task}");
    agent.crash().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_a_job_is_refused_in_words() {
    let mut setup = setup_of(ScriptedModel::new([]));
    let agent = setup.start().await;
    for (order, expected) in [
        (order("  "), "task: must have text"),
        (order(&"x".repeat(70_000)), "task: must have text, at most 65536 bytes"),
        (JobOrder { runs_in: RunsIn::Worker, ..order("x") }, "runs_in: "),
    ] {
        match request(&agent.one, JobRequest::Create(order)).await {
            Ack::Refused(Refusal::Invalid(what)) => assert!(what.contains(expected), "{what}"),
            other => panic!("{expected}: {other:?}"),
        }
    }
    agent.shut_down().await;
    setup.jobs.enabled = false;
    let agent = setup.next_boot(ScriptedModel::new([])).start().await;
    let refused = request(&agent.one, JobRequest::Create(order("x"))).await;
    assert!(matches!(&refused, Ack::Refused(Refusal::Forbidden(_))), "{refused:?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_belongs_to_whoever_made_it() {
    let setup = setup_of(ScriptedModel::new([Scripted::hang()]));
    let mut agent = setup.start().await;
    let id = create(&agent.one, order("works")).await.job_id;
    for (role, theirs) in [(PrincipalRole::User, true), (PrincipalRole::Operator, false)] {
        // Somebody else, in another channel.
        let answer = match agent.two.text_as("bob", role, &format!("/job {id}")).await {
            Ack::Command(reply) => reply.reply,
            other => panic!("{other:?}"),
        };
        assert_eq!(answer == format!("There is no job {id} of yours."), theirs, "{answer}");
    }
    let list = agent.one.command("alice", "/jobs").await;
    assert!(list.contains("at work: works"), "{list}");
    let refused = agent.one.text(&job_session(id).to_string(), "hello").await;
    assert!(matches!(&refused, Ack::Refused(Refusal::Forbidden(what)) if what.contains("/job")), "{refused:?}");
    for role in [PrincipalRole::User, PrincipalRole::Client] {
        let stop = Control::Stop(StopTarget::Session(job_session(id)));
        let refused = agent.two.control_as(role, stop).await;
        assert!(matches!(&refused, Ack::Refused(Refusal::Forbidden(what)) if what.contains("/cancel")), "{refused:?}");
    }
    assert_eq!(job(&setup, id).await.state, JobState::InProgress);
    agent.crash().await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_through_a_channel_is_a_chat_whatever_it_says_of_itself() {
    let setup = setup_of(ScriptedModel::new([Scripted::hang(), Scripted::text("hello")]));
    let mut agent = setup.start().await;
    let id = create(&agent.one, order("works")).await.job_id;
    agent.asked(1).await;
    let routine_run = RoutineRunId::new();
    for work in [
        Work::Job { job: id, attempt: Some(1) },
        Work::Job { job: id, attempt: None },
        Work::RoutineRun { id: routine_run },
        Work::Heartbeat { id: routine_run },
    ] {
        // It neither works in their sessions, nor stops what works there.
        for session in [job_session(id), routine_run_session(routine_run)] {
            let refused = agent.two.claiming(work, session.as_str(), Body::Text("done".into())).await;
            assert!(matches!(&refused, Ack::Refused(Refusal::Forbidden(_))), "{work:?}: {refused:?}");
            let stop = Body::Control(Control::Stop(StopTarget::Session(session)));
            let refused = agent.two.claiming(work, "control", stop).await;
            assert!(matches!(&refused, Ack::Refused(Refusal::Forbidden(_))), "{work:?}: {refused:?}");
        }
        // In a conversation its words are a command.
        let answered = agent.two.claiming(work, "bob", Body::Text("/ping".into())).await;
        assert!(matches!(&answered, Ack::Command(reply) if reply.reply == "pong"), "{work:?}: {answered:?}");
        agent.two.next().await;
    }
    let Ack::Accepted(chat) =
        agent.two.claiming(Work::RoutineRun { id: routine_run }, "bob", Body::Text("hi".into())).await
    else {
        panic!("accepted");
    };
    assert_eq!(end_of(chat).await.reply.as_deref(), Some("hello"));
    assert_eq!(job(&setup, id).await.state, JobState::InProgress);
    agent.crash().await;
}

#[tokio::test(start_paused = true)]
async fn the_result_can_be_accepted_once_it_is_there() {
    let setup = setup_of(ScriptedModel::new([done("two").after(Duration::from_secs(5))]));
    let mut agent = setup.start().await;
    let id = create(&agent.one, order("count")).await.job_id;
    let early = request(&agent.one, JobRequest::Accept(id)).await;
    assert!(matches!(&early, Ack::Refused(Refusal::Decided(_))), "{early:?}");
    agent.one.next().await;
    until(&setup, id, JobState::Submitted).await;
    for _ in 0..2 {
        let accepted = request(&agent.one, JobRequest::Accept(id)).await;
        assert!(matches!(&accepted, Ack::Job(job) if job.state == JobState::Accepted), "{accepted:?}");
    }
    let cancelled = request(&agent.one, JobRequest::Cancel(id)).await;
    assert!(matches!(&cancelled, Ack::Refused(Refusal::Decided(_))), "{cancelled:?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_model_of_a_conversation_makes_a_job_whose_result_comes_there() {
    let asks = Scripted::call("create_job", json!({"task": "count the rooms", "title": "rooms"}));
    // Whoever of the two is asked first gets the same.
    let mut setup = setup_of(ScriptedModel::new([asks]).then_forever(done("fine")));
    setup.config.terminate = true;
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "have the rooms counted").await;
    let mut told = [agent.one.next_message().await, agent.one.next_message().await];
    told.sort_by_key(|told| told.text.len());
    let job = setup.store.jobs.jobs(JobFilter::default()).await.expect("readable").remove(0);
    let result = format!("Job “rooms” ({}) is done.\n\nfine", job.job_id);
    assert_eq!([&told[0].text, &told[1].text], ["fine", &result]);
    assert_eq!(&*told[1].route.conversation, "alice");
    assert_eq!((job.task.as_str(), job.asked_in.as_str()), ("count the rooms", "alice"));
    assert!(job.parent.is_some());
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_a_model_has_written_counts_as_words_of_the_outside() {
    for (by_model, posts) in [(true, 0), (false, 1)] {
        let post = TestTool::named("echo").called("post").writing();
        let posted = post.calls.clone();
        let asks = [("create_job", json!({"task": "post it"})), ("terminate", json!({"status": "success"}))];
        let works = [Scripted::call("post", json!({"text": "secrets"})), done("over")];
        let script: Vec<_> = by_model.then(|| Scripted::calls(asks)).into_iter().chain(works).collect();
        let mut setup = setup_of(ScriptedModel::new(script)).tool(post);
        setup.config.terminate = true;
        let mut agent = setup.start().await;
        if by_model {
            agent.one.accepted("alice", "have it posted").await;
        } else {
            create(&agent.one, order("post it")).await;
        }
        loop {
            let told = agent.one.next().await;
            if told.contains("asks:") {
                assert!(by_model, "{told}");
                agent.one.text("alice", "/deny").await;
            }
            if told.ends_with("over") {
                break;
            }
        }
        assert_eq!(posted.load(std::sync::atomic::Ordering::SeqCst), posts, "ordered by a model: {by_model}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_asks_its_creator_reads_the_no_and_makes_no_job() {
    let script = [
        Scripted::calls([("ask", json!({"text": "may I?"})), ("create_job", json!({"task": "more"}))]),
        done("without"),
    ];
    let tool = TestTool::named("echo").called("ask").asking();
    let calls = tool.calls.clone();
    let setup = setup_of(ScriptedModel::new(script)).tool(tool);
    let mut agent = setup.start().await;
    create(&agent.one, order("count")).await;
    assert!(agent.one.next().await.starts_with("Job “count”"), "the creator is asked");
    let waiting = ApprovalFilter { waiting: true, ..ApprovalFilter::default() };
    let asked = setup.store.approvals.approvals(waiting).await.expect("readable").remove(0);
    agent.one.control(Control::Decide { approval: asked.id, decision: Decision::Deny }).await;
    while !agent.one.next().await.ends_with("without") {}
    let seen = saw(&agent.model, 2);
    assert!(seen[2].contains("the user refused"), "{seen:#?}");
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 0);
    let all = setup.store.jobs.jobs(JobFilter::default()).await.expect("readable");
    assert_eq!(all.len(), 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_job_of_a_routine_asks_the_owner_of_the_routine() {
    let tool = TestTool::named("echo").called("ask").asking();
    let calls = tool.calls.clone();
    let script = [Scripted::call("ask", json!({"text": "may I?"})), done("over")];
    let setup = Setup { routines: RoutinesConfig::default(), ..setup_of(ScriptedModel::new(script)) }.tool(tool);
    let mut agent = setup.start().await;
    let action = RoutineAction::FullJob {
        task: "count".into(),
        plan: false,
        runs_in: RunsIn::Local,
        budget: JobBudget::default(),
    };
    put(&agent, RoutineSpec { action, ..routine("r", Trigger::Manual) }).await;
    fire(&agent, "r").await.expect("it is fired");
    assert!(agent.one.next().await.starts_with("Job “Routine r”"), "the owner is asked");
    let waiting = ApprovalFilter { waiting: true, ..ApprovalFilter::default() };
    let asked = setup.store.approvals.approvals(waiting).await.expect("readable").remove(0);
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 0);
    agent.one.control(Control::Decide { approval: asked.id, decision: Decision::Approve }).await;
    while !agent.one.next().await.contains("over") {}
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_channel_with_the_name_of_the_agents_own_work_keeps_it_from_starting() {
    let setup = setup_of(ScriptedModel::new([]));
    let mut parts = setup.parts();
    parts.channels = vec![Arc::new(NamedJob("job".into()))];
    let refused = belay_agent::Agent::start(parts).await.err().expect("refused").to_string();
    assert!(refused.starts_with("channel job:"), "{refused}");
}

/// A channel that has no business to be called so.
struct NamedJob(belay_protocol::ChannelId);

#[async_trait::async_trait]
impl belay_protocol::Channel for NamedJob {
    fn id(&self) -> &belay_protocol::ChannelId {
        &self.0
    }

    async fn start(
        &self,
        _intake: tokio_util::sync::CancellationToken,
    ) -> Result<belay_protocol::InboundStream, belay_protocol::ChannelError> {
        Ok(Box::pin(futures_util::stream::pending()))
    }

    async fn deliver(&self, _message: &belay_protocol::Outbound) -> Result<(), belay_protocol::DeliverError> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_routine_run_whose_job_fails_shows_what_it_had_and_what_all_its_attempts_have_used() {
    let call = |n: u32| Scripted::call("echo", json!({"text": n.to_string()})).with_usage(40, 10);
    let script = [call(1), Scripted::hang(), call(2), failed("two of three rooms").with_usage(40, 10)];
    let mut setup = setup_of(ScriptedModel::new(script));
    setup.routines = RoutinesConfig::default();
    let mut agent = setup.start().await;
    let (task, plan) = ("count the rooms".to_owned(), false);
    let action = RoutineAction::FullJob { task, plan, runs_in: RunsIn::Local, budget: JobBudget::default() };
    put(&agent, RoutineSpec { action, ..routine("rooms", Trigger::Manual) }).await;
    let routine_run = fire(&agent, "rooms").await.expect("fired").routine_run_id;
    let said = told(&mut agent).await;
    let why = "the agent reports that it cannot be done\n\nSo far:\n\ntwo of three rooms";
    assert_eq!(said, format!("The routine rooms failed: {why}"));
    let routine_run = setup.store.routines.routine_run(routine_run).await.expect("readable").expect("known");
    assert_eq!((routine_run.status, routine_run.summary.as_deref()), (RoutineRunStatus::Failed, Some(why)));
    let known = (routine_run.usage.input, routine_run.usage.output, routine_run.usage.tool_calls);
    assert!(known >= (120, 30, 2) && routine_run.usage.model_calls >= 4, "of both attempts: {:?}", routine_run.usage);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_list_says_what_a_job_does_in_every_room() {
    let setup = setup_of(ScriptedModel::new([
        Scripted::call("planning", json!({"command": "create", "title": "The work", "steps": ["look"]}))
            .with_usage(0, 0),
        Scripted::call("echo", json!({"text": "one room"})).with_usage(40, 10),
        Scripted::hang(),
    ]));
    let mut agent = setup.start().await;
    create(&agent.one, JobOrder { plan: true, ..order("count") }).await;
    agent.asked(3).await;
    let list = agent.one.command("alice", "/jobs").await;
    let expected = "at work: count, step 2, echo (success), 2 model calls, 2 tool calls, 50 tokens";
    assert!(list.ends_with(expected), "{list}");
    agent.crash().await;
}
