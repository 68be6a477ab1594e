//! Settings of one conversation: its persona and its tools hold for everything that is asked for in it.

use std::sync::Arc;

use belay_automation::JobsConfig;
use belay_protocol::{AccessDecision, Authority, ChannelAccess, ConversationSettings, JobState, SessionKey, ToolNames};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::jobs::{id_in, until};
use crate::support::Setup;

const PERSONA: &str = "You are the librarian of the club.";

/// The conversation `club` has a persona and two tools.
struct Club;

impl ChannelAccess for Club {
    fn standing_of(&self, _principal: &str, _conversation: Option<&str>) -> AccessDecision {
        AccessDecision::May(Authority::Operator)
    }

    fn serves(&self, _conversation: &str) -> bool {
        true
    }

    fn session_of(&self, _conversation: &str) -> Option<SessionKey> {
        None
    }

    fn settings_of(&self, session: &SessionKey) -> Option<Arc<ConversationSettings>> {
        let tools = ToolNames(Arc::new(["echo".to_owned(), "spawn_*".to_owned()]));
        let settings = ConversationSettings { persona: Some(PERSONA.to_owned()), tools: Some(tools) };
        (session.as_str() == "club").then(|| Arc::new(settings))
    }
}

fn setup(replies: impl IntoIterator<Item = Scripted>) -> Setup {
    let lists = Some(Arc::new(Club) as Arc<dyn ChannelAccess>);
    Setup { lists, jobs: JobsConfig::default(), ..Setup::new(ScriptedModel::new(replies)) }
}

/// The offered tools of each request.
fn offered(model: &ScriptedModel) -> Vec<String> {
    model.seen().into_iter().map(|request| request.tools.unwrap_or_default().join(" ")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_conversation_has_its_own_persona_and_tools_also_after_a_crash() {
    let setup = setup([Scripted::text("1"), Scripted::call("fail", json!({})), Scripted::hang()]);
    let mut agent = setup.start().await;
    agent.one.ask("alice", "hello").await;
    agent.one.text("club", "hello").await;
    agent.asked(3).await;
    let (seen, tools) = (agent.model.seen(), offered(&agent.model));
    assert!(!seen[0].prompt.contains(PERSONA) && tools[0].contains("fail"), "{tools:?}");
    assert!(seen[1].prompt.starts_with(PERSONA), "{}", seen[1].prompt);
    assert_eq!(tools[1], "echo spawn_subagent");
    let refused = seen[2].messages.last().expect("a result").text().to_owned();
    assert!(refused.contains("no tool named fail"), "{refused}");
    agent.crash().await;

    let next = setup.next_boot(ScriptedModel::new([Scripted::text("done")]));
    let mut agent = next.start().await;
    assert_eq!(agent.one.next().await, "done");
    assert!(agent.model.seen()[0].prompt.starts_with(PERSONA));
    assert_eq!(offered(&agent.model), ["echo spawn_subagent"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn subagents_plans_and_jobs_of_a_conversation_have_no_more_tools_than_it() {
    let plan = json!({"command": "create", "title": "t", "steps": ["look"]});
    let setup = setup([
        Scripted::call("spawn_subagent", json!({"task": "look"})),
        Scripted::text("seen"),
        Scripted::text("done"),
        Scripted::call("planning", plan),
        Scripted::call("terminate", json!({"status": "success", "summary": "seen"})),
        Scripted::text("planned"),
        Scripted::text("All done."),
    ]);
    let mut agent = setup.start().await;
    agent.one.ask("club", "ask another").await;
    agent.one.ask("club", "/plan look around").await;
    let made = agent.one.command("club", "/job look").await;
    until(&setup, id_in(&made), JobState::Submitted).await;
    let (seen, tools) = (agent.model.seen(), offered(&agent.model));
    assert!(!tools[1].contains("fail") && tools[1].contains("echo"), "a subagent: {tools:?}");
    assert_eq!(tools[4], "echo spawn_subagent terminate", "a step of a plan can end itself");
    assert!(seen[5].prompt.starts_with(PERSONA), "the summary of a plan: {}", seen[5].prompt);
    assert_eq!(tools[6], "echo spawn_subagent terminate", "a job can end itself");
    assert!(seen[6].prompt.starts_with(PERSONA), "{}", seen[6].prompt);
    agent.shut_down().await;
}
