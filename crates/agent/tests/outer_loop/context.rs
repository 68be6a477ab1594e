//! What runs are told of their surroundings: files, skills, the place, the date; who is told what, and for how long.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use belay_protocol::{
    Ack, Bootstrap, BootstrapFile, BoundHook, ContextReport, ContextSource, Control, Hook, HookAnswer, HookEvent,
    HookFailure, HookPoint, Refusal, RunOptions, Secret, Skill, SkillLocation, Skills, Skipped, StopReason, Tool,
    ToolContext, ToolOutput, ToolSpec, UnixMillis, Unusable, Variable,
};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::{Map, Value, json};
use tokio::time::Duration;

use crate::support::{Setup, TestTool, end_of, rest_of};

/// Surroundings that the test changes.
#[derive(Default)]
struct World {
    files: Mutex<Arc<Bootstrap>>,
    skills: Mutex<Arc<Skills>>,
}

impl World {
    fn new() -> Arc<Self> {
        let world = Arc::new(Self::default());
        world.write(&[("AGENTS.md", "Be kind."), ("MEMORY.md", "They like tea.")]);
        world.learn(&["weather"]);
        world
    }

    fn write(&self, files: &[(&str, &str)]) {
        let file = |(name, text): &(&str, &str)| BootstrapFile {
            name: (*name).into(),
            text: (*text).into(),
            whole_chars: text.len(),
            cut: false,
        };
        let skipped = vec![Skipped { what: "SOUL.md".into(), why: "it is not UTF-8".into(), unread: false }];
        *self.files.lock().expect("no panic") =
            Arc::new(Bootstrap { files: files.iter().map(file).collect(), skipped });
    }

    /// From now on, no file can be opened.
    fn run_out(&self) {
        let why = "\"AGENTS.md\" could not be opened: Too many open files".to_owned();
        let skipped = vec![Skipped { what: "AGENTS.md".into(), why, unread: true }];
        *self.files.lock().expect("no panic") = Arc::new(Bootstrap { skipped, ..Bootstrap::default() });
    }

    fn learn(&self, names: &[&str]) {
        let skill = |name: &&str| Skill {
            name: (*name).into(),
            description: format!("Knows the {name}."),
            place: SkillLocation::Workspace(format!("skills/{name}/SKILL.md")),
            user_invocable: true,
            listed: true,
            variables: vec![Variable { name: "WEATHER_KEY".into(), value: Secret::new("hush".into()) }],
        };
        let list = names.iter().map(skill).collect();
        *self.skills.lock().expect("no panic") =
            Arc::new(Skills { list, max_prompt_chars: 18_000, ..Skills::default() });
    }
}

#[async_trait]
impl ContextSource for World {
    async fn bootstrap(&self) -> Arc<Bootstrap> {
        self.files.lock().expect("no panic").clone()
    }

    async fn skills(&self) -> Arc<Skills> {
        self.known_skills()
    }

    fn known_skills(&self) -> Arc<Skills> {
        self.skills.lock().expect("no panic").clone()
    }

    async fn file(&self, _path: &str, _max_bytes: u64) -> Result<Option<String>, Unusable> {
        Ok(None)
    }

    async fn file_start(&self, _path: &str, _max_bytes: u64) -> Result<Option<(String, bool)>, Unusable> {
        Ok(None)
    }

    fn today(&self, _now: UnixMillis) -> Option<String> {
        Some("Thursday, 5 November 2026 (UTC)".into())
    }
}

fn setup(world: &Arc<World>, replies: impl IntoIterator<Item = Scripted>) -> Setup {
    let mut setup = Setup::new(ScriptedModel::new(replies)).tool(TestTool::named("read_file"));
    setup.context = world.clone();
    setup
}

#[tokio::test(start_paused = true)]
async fn a_conversation_is_told_of_files_as_they_are_and_keeps_the_skills_that_it_began_with() {
    let world = World::new();
    let mut agent = setup(&world, ["1", "2", "3", "4"].map(Scripted::text)).start().await;
    agent.one.ask("alice", "hello").await;
    agent.one.ask("alice", "again").await;
    world.write(&[("AGENTS.md", "Be brief.")]);
    world.learn(&["weather", "taxes"]);
    agent.one.ask("alice", "later").await;
    agent.one.command("alice", "/new").await;
    agent.one.ask("alice", "anew").await;
    let seen: Vec<String> = agent.model.seen().into_iter().map(|request| request.prompt).collect();
    for part in ["Be kind.", "They like tea.", "- weather (skills/weather/SKILL.md): Knows the weather.", "5 November"]
    {
        assert!(seen[0].contains(part), "{part}: {}", seen[0]);
    }
    assert!(!seen[0].contains("hush") && !seen[0].contains("SOUL.md"));
    assert_eq!(seen[0], seen[1]);
    assert!(seen[2].contains("Be brief.") && !seen[2].contains("They like tea."));
    assert!(!seen[2].contains("taxes"), "the conversation goes on with the skills that it has");
    assert!(seen[3].contains("- taxes (skills/taxes/SKILL.md)"));
    agent.shut_down().await;
}

/// The prompts of all requests.
fn prompts(setup: &Setup) -> Vec<String> {
    setup.model.seen().into_iter().map(|request| request.prompt).collect()
}

#[tokio::test(start_paused = true)]
async fn a_conversation_keeps_its_skills_over_a_restart_and_a_new_one_has_the_present_ones() {
    let world = World::new();
    let first = setup(&world, ["1"].map(Scripted::text));
    let mut agent = first.start().await;
    agent.one.ask("alice", "hello").await;
    agent.crash().await;
    world.learn(&["taxes"]);

    let next = first.next_boot(ScriptedModel::new(["2", "3", "4", "5", "6"].map(Scripted::text)));
    let mut agent = next.start().await;
    agent.one.ask("alice", "again").await;
    agent.one.ask("bob", "hello").await;
    agent.one.command("alice", "/new").await;
    agent.one.ask("alice", "anew").await;
    let list = agent.one.command("alice", "/sessions").await;
    let earlier = list.lines().nth(1).and_then(|line| line.split('`').nth(1)).expect("an id").to_owned();
    agent.one.command("alice", &format!("/resume {earlier}")).await;
    agent.one.ask("alice", "back again").await;
    agent.one.command("alice", "/clear").await;
    agent.one.ask("alice", "from nothing").await;
    let (before, after) = (prompts(&first), prompts(&next));
    assert_eq!(before[0], after[0], "the same to the byte");
    assert!(after[1].contains("- taxes") && !after[1].contains("- weather"), "{}", after[1]);
    assert!(after[2].contains("- taxes"), "a new conversation has the present skills");
    assert_eq!(after[3], before[0], "an earlier conversation has its own again");
    assert!(after[4].contains("- taxes"), "a cleared conversation begins anew");
    let report = context(&agent, "alice", false).await.expect("a report");
    assert_eq!(report.skills.iter().map(|skill| &*skill.name).collect::<Vec<_>>(), ["taxes"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_began_without_skills_has_none_after_a_restart() {
    let world = World::new();
    world.learn(&[]);
    let first = setup(&world, ["1"].map(Scripted::text));
    let mut agent = first.start().await;
    agent.one.ask("alice", "hello").await;
    agent.crash().await;
    world.learn(&["taxes"]);

    let next = first.next_boot(ScriptedModel::new(["2", "3"].map(Scripted::text)));
    let mut agent = next.start().await;
    agent.one.ask("alice", "again").await;
    agent.one.ask("bob", "hello").await;
    let after = prompts(&next);
    assert_eq!(prompts(&first)[0], after[0]);
    assert!(after[1].contains("- taxes"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_words_that_a_message_adds_are_the_last_of_its_own_prompt() {
    let world = World::new();
    let mut agent = setup(&world, ["1", "2"].map(Scripted::text)).start().await;
    let options = RunOptions { extra_prompt: Some("They are in a hurry.".into()), ..RunOptions::default() };
    agent.one.with_options("alice", "quick!", options).await;
    agent.one.next().await;
    agent.one.ask("alice", "thanks").await;
    let seen = agent.model.seen();
    assert!(seen[0].prompt.ends_with("\n\nThey are in a hurry."));
    assert!(!seen[1].prompt.contains("hurry"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_subagent_is_told_the_rules_of_the_workspace_and_nothing_else_of_it() {
    let world = World::new();
    let spawn = Scripted::call("spawn_subagent", json!({"task": "look"}));
    let mut agent = setup(&world, [spawn, Scripted::text("seen"), Scripted::text("done")]).start().await;
    agent.one.ask("alice", "go").await;
    let child = agent.model.seen()[1].prompt.clone();
    assert!(child.starts_with("You are a subagent") && child.ends_with("\nBe kind.\n</file>"), "{child}");
    assert!(!child.contains("They like tea.") && !child.contains("weather"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_step_of_a_plan_is_told_the_rules_of_the_workspace() {
    let world = World::new();
    let plan = json!({"command": "create", "title": "t", "steps": ["look"]});
    let replies = [
        Scripted::call("planning", plan),
        Scripted::call("terminate", json!({"status": "success", "summary": "seen"})),
        Scripted::text("done"),
    ];
    let mut agent = setup(&world, replies).start().await;
    agent.one.ask("alice", "/plan look around").await;
    let seen = agent.model.seen();
    assert!(!seen[0].prompt.contains("Be kind."), "who makes a plan carries nothing out");
    assert!(seen[1].prompt.ends_with("\nBe kind.\n</file>") && !seen[1].prompt.contains("They like tea."));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_name_of_a_skill_is_a_command_and_other_words_keep_their_answer() {
    let world = World::new();
    let mut agent = setup(&world, [Scripted::text("sunny")]).start().await;
    assert_eq!(agent.one.ask("alice", "/weather in Bonn").await, "sunny");
    let instructions = "When a message of the user begins with /weather, the user asks for the skill weather: read \
                        skills/weather/SKILL.md with read_file first, and follow it. The rest of that message is its input.";
    let asked = agent.model.seen()[0].messages.clone();
    assert_eq!(
        asked.iter().map(|it| belay_protocol::Message::clone(it)).collect::<Vec<_>>(),
        [belay_protocol::Message::system(instructions), belay_protocol::Message::user("/weather in Bonn")]
    );
    assert!(agent.one.command("alice", "/wether").await.starts_with("There is no command /wether."));
    assert!(agent.one.command("alice", "/help all").await.ends_with("- `/weather`: Knows the weather."));
    agent.shut_down().await;
}

/// A tool that says which variables its programs would get.
struct Shell(ToolSpec);

#[async_trait]
impl Tool for Shell {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let told = |variable: &Variable| format!("{}={}", variable.name, variable.value.expose());
        Ok(context.variables.iter().map(told).collect::<Vec<_>>().join(" ").into())
    }
}

fn shell(name: &str, takes_variables: bool, approval: belay_protocol::Ask) -> Arc<dyn Tool> {
    let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
    Arc::new(Shell(ToolSpec { takes_variables, approval, ..ToolSpec::new(name, "d", schema) }))
}

#[tokio::test(start_paused = true)]
async fn variables_of_skills_reach_tools_that_start_programs_and_whoever_says_yes_is_told_their_names() {
    let world = World::new();
    let calls = Scripted::calls([("other", json!({})), ("asking", json!({}))]);
    let mut setup = setup(&world, [calls, Scripted::text("done")]);
    setup.tools.push(shell("other", false, belay_protocol::Ask::Never));
    setup.tools.push(shell("asking", true, belay_protocol::Ask::UnlessApproved));
    let mut agent = setup.start().await;
    let mut accepted = agent.one.accepted("alice", "go").await;
    let question = agent.one.next().await;
    assert!(question.contains("WEATHER_KEY") && !question.contains("hush"), "{question}");
    rest_of(&mut accepted).await;
    agent.one.command("alice", "yes").await;
    assert_eq!(agent.one.next().await, "done");
    let seen = &agent.model.seen()[1].messages;
    let results: Vec<_> = seen[seen.len() - 2..].iter().map(|message| message.text().to_owned()).collect();
    assert_eq!(results, ["", "WEATHER_KEY=hush"]);
    agent.shut_down().await;
}

struct Editor;

#[async_trait]
impl Hook for Editor {
    fn name(&self) -> &str {
        "editor"
    }

    async fn call(&self, event: &HookEvent) -> Result<HookAnswer, String> {
        assert_eq!(event.data["files"][1], json!({"name": "MEMORY.md", "text": "They like tea."}));
        let files = json!([{"name": "AGENTS.md", "text": "Be brief."}, {"name": "RULES.md", "text": "Ask first."}]);
        Ok(HookAnswer::Change(Map::from_iter([("files".to_owned(), files)])))
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_may_change_the_files_that_a_run_is_told_of() {
    let world = World::new();
    let mut setup = setup(&world, [Scripted::text("hi")]);
    setup.hooks.push(BoundHook {
        point: HookPoint::Bootstrap,
        priority: 0,
        timeout: Duration::from_secs(5),
        on_failure: HookFailure::Open,
        tools: Vec::new(),
        hook: Arc::new(Editor),
    });
    let mut agent = setup.start().await;
    agent.one.ask("alice", "hello").await;
    let prompt = agent.model.seen()[0].prompt.clone();
    assert!(prompt.contains("Be brief.") && prompt.contains("<file name=\"RULES.md\">\nAsk first.\n</file>"));
    assert!(!prompt.contains("They like tea."));
    agent.shut_down().await;
}

async fn context(agent: &crate::support::Running, session: &str, full: bool) -> Result<Box<ContextReport>, Refusal> {
    match agent.one.control(Control::Context { session: session.into(), full }).await {
        Ack::Context(report) => Ok(report),
        Ack::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_report_counts_what_the_model_would_be_told_and_shows_no_secret() {
    let world = World::new();
    let setup = setup(&world, [Scripted::text("sunny")]);
    let mut agent = setup.start().await;
    assert!(matches!(context(&agent, "alice", true).await, Err(Refusal::Unknown(_))));
    agent.one.ask("alice", "how is the weather?").await;
    let told = agent.model.seen()[0].prompt.clone();
    let report = context(&agent, "alice", true).await.expect("a report");
    let parts: Vec<_> = report.prompt.iter().filter_map(|part| part.text.clone()).collect();
    assert_eq!(parts.join("\n\n"), told, "the report shows the prompt as the model was told it");
    let names: Vec<_> = report.prompt.iter().map(|part| &*part.name).collect();
    assert_eq!(names.join(" "), "identity tools safety skills workspace files date");
    assert_eq!(report.messages, 2);
    assert_eq!(report.conversation.text.as_deref(), Some("user> how is the weather?\nassistant> sunny"));
    assert_eq!(report.skipped[0].what, "SOUL.md");
    assert_eq!((&*report.skills[0].name, report.skills[0].command.as_deref()), ("weather", Some("/weather")));
    assert_eq!(report.skills[0].variables, ["WEATHER_KEY"]);
    let sum: u64 =
        report.prompt.iter().chain(&report.tools).chain([&report.conversation]).map(|part| part.tokens).sum();
    assert_eq!(report.used_tokens, sum);
    assert!(!serde_json::to_string(&report).expect("JSON").contains("hush"));
    let brief = context(&agent, "alice", false).await.expect("a report");
    assert!(brief.prompt.iter().all(|part| part.text.is_none()) && brief.used_tokens == sum);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_delivery_is_known_although_the_skill_has_changed() {
    let world = World::new();
    let agent = setup(&world, [Scripted::hang()]).start().await;
    let Ack::Accepted(first) = agent.one.keyed("alice", "/weather Rome", "k").await else { panic!("accepted") };
    let mut moved = Skills::clone(&world.known_skills());
    moved.list[0].place = SkillLocation::Workspace("elsewhere/SKILL.md".into());
    *world.skills.lock().expect("no panic") = Arc::new(moved);
    let Ack::Accepted(again) = agent.one.keyed("alice", "/weather Rome", "k").await else { panic!("joined") };
    assert_eq!((again.run_id, again.duplicate), (first.run_id, true));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_waits_for_instructions_that_cannot_be_opened() {
    let world = World::new();
    world.run_out();
    let setup = Setup { context: world.clone(), ..Setup::new(ScriptedModel::new([Scripted::text("kindly")])) };
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "hello").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(agent.model.seen().len(), 0, "it does not work without them");
    world.write(&[("AGENTS.md", "Be kind.")]);
    assert_eq!(agent.one.next().await, "kindly");
    assert!(agent.model.seen()[0].prompt.contains("Be kind."));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_instructions_stay_unreadable_ends_with_their_name_and_asks_no_model() {
    let world = World::new();
    world.run_out();
    let setup = Setup { context: world.clone(), ..Setup::new(ScriptedModel::new([Scripted::text("unkindly")])) };
    let mut agent = setup.start().await;
    let run = agent.one.accepted("alice", "hello").await;
    let said = agent.one.next().await;
    assert!(
        said.starts_with("Nothing was done") && said.contains("AGENTS.md") && said.contains("Too many open"),
        "{said}"
    );
    let end = end_of(run).await;
    assert_eq!((end.reason, &end.evidence["cause"]), (Some(StopReason::Internal), &json!("instructions")));
    assert_eq!(agent.model.seen().len(), 0);
    agent.shut_down().await;
}
