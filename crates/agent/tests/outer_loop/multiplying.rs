//! What works by itself does not multiply, whichever way it works.

use belay_automation::JobsConfig;

use belay_automation::RoutinesConfig;
use belay_protocol::{
    Ack, Control, FIND_TOOLS, JobFilter, JobOrder, JobRequest, MessageBody, RunsIn, ToolResult, ToolStatus, Trigger,
};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::routines::{fire, put, routine, with_tools};
use crate::support::{Running, Setup, TestTool, end_of};
use crate::workers::{employ_here, hand_over};

/// The tools that make more work.
const MULTIPLY: [&str; 2] = ["create_job", "routine"];

/// Who tries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Who {
    RoutineRun,
    Job,
    JobWithPlan,
    JobInWorker,
    SubagentOfJob,
    WorkerOfJob,
    StepOfChat,
    SubagentOfChat,
    WorkerOfChat,
}

fn tries() -> Scripted {
    let again = json!({"action": "create", "name": "again", "prompt": "Do it again.", "schedule": "in 20m"});
    Scripted::calls([("create_job", json!({"task": "more of it"})), ("routine", again)])
}

fn done() -> Scripted {
    Scripted::call("terminate", json!({"status": "success", "summary": "done"}))
}

fn spawn() -> Scripted {
    Scripted::call("spawn_subagent", json!({"task": "do it"}))
}

fn plan() -> Scripted {
    Scripted::call("planning", json!({"command": "create", "title": "It", "steps": ["do it"]}))
}

impl Who {
    pub(crate) const ALL: [Self; 9] = [
        Self::RoutineRun,
        Self::Job,
        Self::JobWithPlan,
        Self::JobInWorker,
        Self::SubagentOfJob,
        Self::WorkerOfJob,
        Self::StepOfChat,
        Self::SubagentOfChat,
        Self::WorkerOfChat,
    ];

    /// What the model says until all is done, and which of its requests comes right after the tries.
    pub(crate) fn script(self, tries: Scripted) -> (Vec<Scripted>, usize) {
        let (text, worker) = (|| Scripted::text("done"), || hand_over(json!({"task": "do it"})));
        match self {
            Self::RoutineRun => (vec![tries, Scripted::text("done")], 1),
            Self::Job => (vec![tries, done()], 1),
            Self::JobWithPlan => (vec![plan(), tries, done(), text()], 2),
            Self::JobInWorker => (vec![tries, text()], 1),
            Self::SubagentOfJob => (vec![spawn(), tries, text(), done()], 2),
            Self::WorkerOfJob => (vec![worker(), tries, text(), done()], 2),
            Self::StepOfChat => (vec![plan(), tries, done(), text()], 2),
            Self::SubagentOfChat => (vec![spawn(), tries, text(), text()], 2),
            Self::WorkerOfChat => (vec![worker(), tries, text(), text()], 2),
        }
    }

    /// Has it tried. Returns how many jobs there are then, if nothing has multiplied.
    pub(crate) async fn work(self, agent: &mut Running) -> usize {
        let order = JobOrder { task: "do it".into(), ..JobOrder::default() };
        let order = match self {
            Self::RoutineRun => {
                put(agent, with_tools(routine("first", Trigger::Manual), 3)).await;
                fire(agent, "first").await.expect("fired");
                assert_eq!(agent.one.next().await, "Routine first: done");
                return 0;
            }
            Self::Job | Self::SubagentOfJob | Self::WorkerOfJob => order,
            Self::JobWithPlan => JobOrder { plan: true, ..order },
            Self::JobInWorker => JobOrder { runs_in: RunsIn::Worker, ..order },
            Self::StepOfChat | Self::SubagentOfChat | Self::WorkerOfChat => {
                let text = if self == Self::StepOfChat { "/plan it" } else { "go" };
                end_of(agent.one.accepted("alice", text).await).await;
                return 0;
            }
        };
        let made = agent.one.control(Control::Job(JobRequest::Create(order))).await;
        assert!(matches!(made, Ack::Job(_)), "{self:?}: {made:?}");
        let told = agent.one.next().await;
        assert!(told.contains("is done."), "{self:?}: {told}");
        1
    }
}

/// An agent whose people have jobs, routines, and workers that are lent what the settings name.
pub(crate) fn setup_for(who: Who, script: Vec<Scripted>) -> Setup {
    let (jobs, routines) = (JobsConfig::default(), RoutinesConfig::default());
    let mut setup = Setup { jobs, routines, ..Setup::new(ScriptedModel::new(script)) };
    if matches!(who, Who::JobInWorker | Who::WorkerOfJob | Who::WorkerOfChat) {
        employ_here(&mut setup, |name| TestTool::named("echo").called(name));
        if let Some(workers) = &mut setup.workers {
            workers.config.host_tools = MULTIPLY.map(str::to_owned).into();
        }
    }
    setup
}

#[tokio::test(start_paused = true)]
async fn whoever_works_by_itself_is_not_offered_what_multiplies_and_is_refused_it() {
    for who in Who::ALL {
        let (script, after) = who.script(tries());
        let setup = setup_for(who, script);
        let mut agent = setup.start().await;
        let jobs = who.work(&mut agent).await;
        let request = setup.model.seen()[after].clone();
        let offered = request.tools.unwrap_or_default();
        assert!(!offered.iter().any(|tool| MULTIPLY.contains(&&**tool)), "{who:?}: {offered:?}");
        let results: Vec<ToolResult> = request
            .messages
            .iter()
            .filter_map(|message| match &message.body {
                MessageBody::Tool(result) if MULTIPLY.contains(&&*result.name) => Some(result.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(results.iter().map(|result| &*result.name).collect::<Vec<_>>(), MULTIPLY, "{who:?}");
        for result in results {
            assert_eq!(result.status, ToolStatus::Denied, "{who:?}: {result:?}");
            assert!(result.text.contains("an autonomous run cannot do"), "{who:?}: {}", result.text);
        }
        assert!(setup.store.routines.routine("again").await.expect("readable").is_none(), "{who:?}");
        let all = setup.store.jobs.jobs(JobFilter::default()).await.expect("readable");
        assert_eq!(all.len(), jobs, "{who:?}");
        agent.shut_down().await;
    }
}

/// The run of a conversation has them; that of a routine asks the person first.
#[tokio::test(start_paused = true)]
async fn a_conversation_makes_jobs_and_routines() {
    let finds = Scripted::call(FIND_TOOLS, json!({"names": MULTIPLY}));
    let makes = Scripted::call("create_job", json!({"task": "do it"}));
    let mut setup = setup_for(Who::Job, vec![finds, makes, done(), done()]);
    setup.config.terminate = true;
    let agent = setup.start().await;
    end_of(agent.one.accepted("alice", "have it done").await).await;
    let offered = setup.model.seen()[1].tools.clone().unwrap_or_default();
    assert!(MULTIPLY.iter().all(|name| offered.iter().any(|tool| tool == name)), "{offered:?}");
    assert_eq!(setup.store.jobs.jobs(JobFilter::default()).await.expect("readable").len(), 1);
    agent.shut_down().await;
}
