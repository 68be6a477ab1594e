//! Jobs in every room: in the daemon, with a plan, and in a worker. What holds for a job holds for it wherever it works.

use std::time::Duration;

use belay_protocol::{
    Ack, JobBudget, JobOrder, JobRequest, JobState, ModelErrorKind, Refusal, RunStatus, RunsIn, StopReason,
};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use super::{create, done, order, request, runs, setup_of, silence, told, until};
use crate::support::{Setup, TestTool, saw};
use crate::workers::employ_here;

/// Where a job works, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Room {
    Local,
    Plan,
    Worker,
}

const ROOMS: [Room; 3] = [Room::Local, Room::Plan, Room::Worker];

impl Room {
    fn order(self, task: &str) -> JobOrder {
        let room = if self == Self::Worker { RunsIn::Worker } else { RunsIn::Local };
        JobOrder { plan: self == Self::Plan, runs_in: room, ..order(task) }
    }

    /// What the model says before the work begins, in the first life of a job.
    fn before(self) -> Vec<Scripted> {
        match self {
            Self::Plan => vec![plan(&["do it"])],
            Self::Local | Self::Worker => Vec::new(),
        }
    }

    /// A step of the work.
    fn works(self) -> Scripted {
        let tool = if self == Self::Worker { "read_file" } else { "echo" };
        Scripted::call(tool, json!({"text": "seen"}))
    }

    /// The end of the work with this result.
    fn ends(self, result: &str) -> Vec<Scripted> {
        match self {
            Self::Local => vec![done(result)],
            Self::Plan => vec![done("it is done"), Scripted::text(result)],
            Self::Worker => vec![Scripted::text(result)],
        }
    }

    fn setup(self, script: Vec<Scripted>) -> Setup {
        let mut setup = setup_of(ScriptedModel::new(script));
        if self == Self::Worker {
            employ_here(&mut setup, |name| TestTool::named("echo").called(name));
            setup = setup.tool(TestTool::named("fail").called("read_file"));
        }
        setup
    }
}

fn plan(steps: &[&str]) -> Scripted {
    Scripted::call("planning", json!({"command": "create", "title": "The work", "steps": steps}))
}

#[tokio::test(start_paused = true)]
async fn in_every_room_a_job_that_got_further_between_two_crashes_is_no_poison() {
    for room in ROOMS {
        let setup = room.setup([room.before(), vec![room.works(), Scripted::hang()]].concat());
        let agent = setup.start().await;
        let id = create(&agent.one, room.order("count")).await.job_id;
        agent.asked(room.before().len() + 2).await;
        agent.crash().await;
        // Where a piece of work begins anew, its first step is none that it had not made before.
        let again = if room == Room::Local { vec![] } else { vec![room.works()] };
        let second = [again.clone(), vec![room.works(), Scripted::hang()]].concat();
        let asked = second.len();
        let agent = setup.next_boot(ScriptedModel::new(second)).start().await;
        agent.asked(asked).await;
        agent.crash().await;
        let last = [again, room.ends("whole")].concat();
        let mut agent = setup.next_boot(ScriptedModel::new(last)).start().await;
        let said = told(&mut agent).await;
        assert!(said.ends_with("is done.\n\nwhole"), "{room:?}: {said}");
        let job = until(&setup, id, JobState::Submitted).await;
        assert!(job.attempt == 1 && job.crashes < 2, "{room:?}: the crash before last is forgotten: {job:?}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_takes_from_the_steps_of_a_plan_only_those_that_were_made() {
    let works = || Room::Plan.works();
    let setup = Room::Plan.setup([Room::Plan.before(), vec![works(), Scripted::hang()]].concat());
    let agent = setup.start().await;
    // One step makes the plan; an executor may make twenty at a time.
    let budget = JobBudget { max_steps: 22, ..JobBudget::default() };
    let id = create(&agent.one, JobOrder { budget, ..Room::Plan.order("count") }).await.job_id;
    agent.asked(3).await;
    agent.crash().await;
    let agent = setup.next_boot(ScriptedModel::new([works(), works(), Scripted::hang()])).start().await;
    agent.asked(3).await;
    agent.crash().await;
    let last = [vec![works(), works(), works()], Room::Plan.ends("whole")].concat();
    let mut agent = setup.next_boot(ScriptedModel::new(last)).start().await;
    let said = told(&mut agent).await;
    assert!(said.ends_with("is done.\n\nwhole"), "{said}");
    assert_eq!(until(&setup, id, JobState::Submitted).await.attempt, 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn in_every_room_a_job_that_dies_twice_at_the_same_place_is_given_up_with_one_notice() {
    for room in ROOMS {
        let setup = room.setup([room.before(), vec![room.works(), Scripted::hang()]].concat());
        let agent = setup.start().await;
        let id = create(&agent.one, room.order("poison")).await.job_id;
        agent.asked(room.before().len() + 2).await;
        agent.crash().await;
        let again = if room == Room::Local { vec![] } else { vec![room.works()] };
        let second = [again, vec![Scripted::hang()]].concat();
        let asked = second.len();
        let agent = setup.next_boot(ScriptedModel::new(second)).start().await;
        agent.asked(asked).await;
        agent.crash().await;
        let mut agent = setup.next_boot(ScriptedModel::new([])).start().await;
        let said = told(&mut agent).await;
        assert!(said.contains("given up: Belay crashed 2 times in a row"), "{room:?}: {said}");
        until(&setup, id, JobState::Failed).await;
        silence(&mut agent).await;
        assert_eq!(agent.model.seen().len(), 0, "{room:?}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn in_every_room_a_model_that_is_away_is_waited_for() {
    let away = || Scripted::error(ModelErrorKind::RateLimited { retry_after: Some(Duration::from_secs(30)) });
    for room in ROOMS {
        let waits = || vec![away(), away(), away()];
        let script = [waits(), room.before(), waits(), vec![room.works()], waits(), room.ends("at last")].concat();
        let setup = room.setup(script);
        let mut agent = setup.start().await;
        let began = tokio::time::Instant::now();
        let id = create(&agent.one, room.order("count")).await.job_id;
        let said = told(&mut agent).await;
        assert!(said.ends_with("is done.\n\nat last"), "{room:?}: {said}");
        assert!(began.elapsed() >= Duration::from_secs(9 * 30), "{room:?}: what the provider asks for is waited");
        assert_eq!(until(&setup, id, JobState::Submitted).await.attempt, 1, "{room:?}: to wait is not to hang");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn in_every_room_a_job_that_hangs_is_begun_again() {
    for room in ROOMS {
        let first = [room.before(), vec![room.works(), Scripted::hang()]].concat();
        let setup = room.setup([first, room.before(), room.ends("all rooms")].concat());
        let mut agent = setup.start().await;
        let began = tokio::time::Instant::now();
        let id = create(&agent.one, room.order("count")).await.job_id;
        let said = told(&mut agent).await;
        assert!(said.ends_with("is done.\n\nall rooms"), "{room:?}: {said}");
        let waited = began.elapsed().as_secs();
        assert!((300..=330).contains(&waited), "{room:?}: {waited} s of silence");
        let job = until(&setup, id, JobState::Submitted).await;
        let ends: Vec<_> = runs(&setup, id).await.iter().map(|run| run.status).collect();
        assert_eq!((job.attempt, ends), (2, vec![RunStatus::Failed, RunStatus::Completed]), "{room:?}");
        let task = saw(&agent.model, 3 + 2 * room.before().len() - usize::from(room == Room::Plan)).join("\n");
        let told = if room == Room::Worker { "An earlier attempt at this task ended" } else { "attempt 2" };
        assert!(task.contains(told), "{room:?}: {task}");
        silence(&mut agent).await;
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn in_every_room_a_job_is_laid_aside_as_often_as_it_may_be() {
    for room in ROOMS {
        let mut setup = room.setup([room.before(), vec![Scripted::hang()]].concat());
        setup.config.drain_s = 1;
        let agent = setup.start().await;
        let id = create(&agent.one, room.order("count")).await.job_id;
        agent.asked(room.before().len() + 1).await;
        agent.shut_down().await;
        for _ in 0..3 {
            let agent = setup.next_boot(ScriptedModel::new([Scripted::hang()])).start().await;
            agent.asked(1).await;
            agent.shut_down().await;
        }
        let mut agent = setup.next_boot(ScriptedModel::new(room.ends("whole"))).start().await;
        let said = told(&mut agent).await;
        assert!(said.ends_with("is done.\n\nwhole"), "{room:?}: {said}");
        let job = until(&setup, id, JobState::Submitted).await;
        assert_eq!((job.attempt, job.crashes, runs(&setup, id).await.len()), (1, 0, 1), "{room:?}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn in_every_room_the_steps_of_a_job_are_counted_over_all_its_pieces() {
    for room in ROOMS {
        let works = (0..5).map(|_| room.works());
        let script = match room {
            // One for the plan, one for its first step, three for its second; then the closing words.
            Room::Plan => [vec![plan(&["look", "work"]), done("looked")], works.take(3).collect()].concat(),
            Room::Local | Room::Worker => works.collect(),
        };
        let setup = room.setup(script);
        setup.model.push(Scripted::text("so far"));
        let mut agent = setup.start().await;
        let budget = JobBudget { max_steps: 5, ..JobBudget::default() };
        let id = create(&agent.one, JobOrder { budget, ..room.order("count") }).await.job_id;
        let said = told(&mut agent).await;
        assert!(said.contains("has failed: it reached its step limit before it was done"), "{room:?}: {said}");
        let run = runs(&setup, id).await.remove(0);
        assert_eq!(run.reason, Some(StopReason::MaxIterations), "{room:?}: {run:?}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn messages_are_read_by_the_step_at_work_and_by_those_behind_it() {
    let slow = |reply: Scripted| reply.after(Duration::from_secs(60));
    let model = ScriptedModel::new([
        plan(&["look", "work"]),
        slow(Scripted::call("echo", json!({"text": "one room"}))),
        done("two rooms"),
        done("clean"),
        Scripted::text("Everything is tidy."),
    ]);
    let setup = setup_of(model);
    let mut agent = setup.start().await;
    let id = create(&agent.one, Room::Plan.order("tidy the house")).await.job_id;
    agent.asked(2).await;
    for text in ["not the cellar", "nor the attic"] {
        let answer = agent.one.command("alice", &format!("/job {id} {text}")).await;
        assert!(answer.starts_with("The message was passed to the job"), "{answer}");
    }
    assert!(told(&mut agent).await.ends_with("is done.\n\nEverything is tidy."));
    let step = saw(&agent.model, 3);
    assert_eq!(step[step.len() - 2..], ["not the cellar", "nor the attic"], "{step:#?}");
    for later in [4, 5] {
        let task = saw(&agent.model, later).join("\n");
        assert!(task.contains("- not the cellar\n- nor the attic"), "{task}");
    }
    let ends: Vec<_> = runs(&setup, id).await.iter().filter_map(|run| run.reason).collect();
    let joined = ends.iter().filter(|reason| **reason == StopReason::Joined).count();
    assert_eq!((joined, ends.len()), (2, 3), "{ends:?}");
    silence(&mut agent).await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_in_a_worker_says_that_it_reads_no_messages() {
    let setup = Room::Worker.setup(vec![Scripted::hang()]);
    let mut agent = setup.start().await;
    let id = create(&agent.one, Room::Worker.order("count")).await.job_id;
    agent.asked(1).await;
    let refused = agent.one.command("alice", &format!("/job {id} faster")).await;
    assert!(refused.contains("runs in a worker, which accepts no messages"), "{refused}");
    assert_eq!(runs(&setup, id).await.len(), 1, "nothing was accepted that nobody reads");
    agent.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_begun_again_knows_what_the_first_one_has_done() {
    let model = ScriptedModel::new([
        plan(&["look", "work"]),
        done("two rooms and a hall"),
        Scripted::hang(),
        plan(&["work"]),
        done("clean"),
        Scripted::text("Everything is tidy."),
    ]);
    let setup = setup_of(model);
    let mut agent = setup.start().await;
    let id = create(&agent.one, Room::Plan.order("tidy the house")).await.job_id;
    assert!(told(&mut agent).await.ends_with("is done.\n\nEverything is tidy."));
    assert_eq!(until(&setup, id, JobState::Submitted).await.attempt, 2);
    // The planner, the executor and whoever sums up.
    for request in [4, 5, 6] {
        let task = saw(&agent.model, request).join("\n");
        assert!(task.contains("This is attempt 2") && task.contains("two rooms and a hall"), "{request}: {task}");
    }
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_can_make_a_plan_first() {
    let model = ScriptedModel::new([
        plan(&["look", "work"]),
        done("two rooms"),
        done("clean"),
        Scripted::text("Everything is tidy."),
    ]);
    let setup = setup_of(model);
    let mut agent = setup.start().await;
    let id = create(&agent.one, Room::Plan.order("tidy the house")).await.job_id;
    assert!(agent.one.next().await.ends_with("is done.\n\nEverything is tidy."));
    let runs = runs(&setup, id).await;
    assert_eq!(runs[0].reason, Some(StopReason::PlanCompleted));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_can_work_in_a_worker_whose_result_is_its_own() {
    let setup = Room::Worker.setup([vec![Room::Worker.works()], Room::Worker.ends("two rooms")].concat());
    let mut agent = setup.start().await;
    let id = create(&agent.one, Room::Worker.order("count the rooms")).await.job_id;
    let told = agent.one.next().await;
    assert!(told.ends_with("is done.\n\ntwo rooms"), "{told}");
    assert_eq!(until(&setup, id, JobState::Submitted).await.runs_in, RunsIn::Worker);
    assert_eq!(saw(&agent.model, 2)[2], "seen", "its own tools, not the daemon's");
    let planned = request(&agent.one, JobRequest::Create(JobOrder { plan: true, ..Room::Worker.order("x") })).await;
    assert!(matches!(&planned, Ack::Refused(Refusal::Invalid(what)) if what.starts_with("plan:")), "{planned:?}");
    agent.shut_down().await;
}
