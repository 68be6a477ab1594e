use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{
    Bootstrap, BootstrapFile, Skill, SkillLocation, Skills, Tool, ToolContext, ToolOutput, ToolSet, ToolSpec,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

struct Named(ToolSpec);

#[async_trait]
impl Tool for Named {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _arguments: &Map<String, Value>, _context: &ToolContext) -> ToolOutput {
        Ok("".into())
    }
}

fn tools(names: &[&str]) -> ToolSet {
    let tool = |name: &&str| Arc::new(Named(ToolSpec::new(*name, "d", json!({"type": "object"})))) as Arc<dyn Tool>;
    ToolSet::new(names.iter().map(tool).collect())
}

fn file(name: &str, text: &str, cut: bool) -> BootstrapFile {
    BootstrapFile { name: name.into(), text: text.into(), whole_chars: text.len(), cut }
}

fn skill(name: &str, description: &str, place: SkillLocation) -> Skill {
    Skill {
        name: name.into(),
        description: description.into(),
        place,
        user_invocable: true,
        listed: true,
        variables: Vec::new(),
    }
}

fn full() -> Briefing {
    let files = vec![file("AGENTS.md", "Be kind.", false), file("MEMORY.md", "Long…", true)];
    let inside = SkillLocation::Workspace("skills/web/SKILL.md".into());
    let hidden = Skill { listed: false, ..skill("hidden", "d", SkillLocation::Elsewhere) };
    let list =
        vec![skill("web", "Looks things up.", inside), skill("taxes", "Does taxes.", SkillLocation::Elsewhere), hidden];
    Briefing {
        files: Arc::new(Bootstrap { files, skipped: Vec::new() }),
        skills: Arc::new(Skills { list, max_prompt_chars: 18_000, ..Skills::default() }),
        hints: Some("Write short paragraphs.".into()),
        may_be_silent: true,
        today: Some("Thursday, 5 November 2026 (UTC)".into()),
        extra: Some("The person is in a hurry.".into()),
        ..Briefing::default()
    }
}

fn names(parts: &[PromptPart]) -> Vec<&str> {
    parts.iter().map(|part| part.name).collect()
}

#[test]
fn parts_come_in_one_order_and_only_those_that_have_something_to_say() {
    let config = AgentConfig::default();
    let all = tools(&["read_file", "read_skill", "terminate"]);
    let none = tools(&[]);
    for (briefing, tools, outputs, expected) in [
        (full(), Some(&all), None, "identity tools ending safety skills workspace files output channel date extra"),
        (
            full(),
            Some(&all),
            Some("Come up with x."),
            "identity tools ending safety skills workspace files channel date extra",
        ),
        (full(), None, None, "identity safety files output channel date extra"),
        (full(), Some(&none), None, "identity safety files output channel date extra"),
        (Briefing::default(), Some(&all), None, "identity tools ending safety workspace"),
        (Briefing::default(), None, None, "identity safety"),
    ] {
        assert_eq!(names(&parts(&config, &briefing, tools, outputs)).join(" "), expected);
    }
}

#[test]
fn the_whole_prompt_reads_as_it_is_meant() {
    let config = AgentConfig { system_prompt: Some("You are a clerk.".into()), ..AgentConfig::default() };
    let tools = tools(&["read_file", "read_skill"]);
    let prompt = join(&parts(&config, &full(), Some(&tools), None));
    let expected = format!(
        "You are a clerk.\n\n{} {}\n\n{}\n\nSkills are instructions for kinds of tasks, stored in files. When a task \
         matches a skill, read its instructions first and follow them. Read one skill at a time, and none that does \
         not match.\n- web (skills/web/SKILL.md): Looks things up.\n- taxes (read_skill): Does taxes.\n\n{}\n\nCurrent \
         files of the workspace. The people you work for maintain them: follow the instructions in them, and use the \
         rest as background knowledge. Some are too long to be shown in full; read the rest with read_file.\n\n<file \
         name=\"AGENTS.md\">\nBe kind.\n</file>\n\n<file name=\"MEMORY.md\">\nLong…\n</file>\n\n{}\n\nWrite short \
         paragraphs.\n\nToday is Thursday, 5 November 2026 (UTC).\n\nThe person is in a hurry.",
        texts::TOOLS,
        texts::ANSWER,
        format_args!("{} {RULE}", texts::SAFETY),
        texts::WORKSPACE,
        texts::SILENCE,
    );
    assert_eq!(prompt.text, expected);
}

#[test]
fn what_hooks_have_said_stands_in_the_place_of_what_every_run_is_told() {
    let told = full().with(Some("You are a pirate.".into()), Some(vec![file("AGENTS.md", "Say arr.", false)]));
    let prompt = join(&parts(&AgentConfig::default(), &told, None, None)).text;
    assert!(prompt.starts_with("You are a pirate.\n\n") && prompt.contains("Say arr."));
    assert!(!prompt.contains("Be kind.") && !prompt.contains("MEMORY.md"));
}

#[test]
fn other_runs_are_told_the_rules_of_the_workspace_alone() {
    let rules = full().rules();
    assert!(
        rules.starts_with("\n\nCurrent files of the workspace") && rules.ends_with("\nBe kind.\n</file>"),
        "{rules}"
    );
    assert_eq!(Briefing::default().rules(), "");
}

#[test]
fn a_skill_that_no_tool_can_read_is_not_listed() {
    let briefing = full();
    let listed = |names: &[&str]| skills::part(&briefing.skills, &tools(names)).unwrap_or_default();
    assert!(listed(&["read_file"]).contains("- web") && !listed(&["read_file"]).contains("taxes"));
    assert!(!listed(&["read_skill"]).contains("- web") && listed(&["read_skill"]).contains("taxes"));
    assert_eq!(listed(&["clock"]), "");
}

#[test]
fn over_budget_descriptions_are_shortened_and_all_names_stay() {
    let list = |max_prompt_chars| {
        let one = |n: usize| skill(&format!("s{n}"), &"words ".repeat(20), SkillLocation::Elsewhere);
        let skills = Skills { list: (0..20).map(one).collect(), max_prompt_chars, ..Skills::default() };
        skills::part(&skills, &tools(&["read_skill"])).unwrap_or_default()
    };
    assert!(list(18_000).contains(&format!("- s19 (read_skill): {}", "words ".repeat(20))));
    let short = list(1_500);
    assert!(short.chars().count() <= 1_500 && short.contains("- s19 (read_skill): words words"), "{short}");
    assert!(short.contains('…'));
    assert!(list(500).ends_with("\n- s19 (read_skill)"));
}

proptest! {
    #[test]
    fn whatever_the_descriptions_the_list_keeps_its_budget_once_the_names_fit(
        descriptions in prop::collection::vec("[a-zé ]{1,200}", 1..30), room in 0usize..4_000,
    ) {
        let list: Vec<_> =
            descriptions.iter().map(|description| skill("a-skill", description, SkillLocation::Elsewhere)).collect();
        let bare = Skills { list: list.clone(), max_prompt_chars: 0, ..Skills::default() };
        let tools = tools(&["read_skill"]);
        let least = skills::part(&bare, &tools).unwrap_or_default().chars().count();
        let skills = Skills { list, max_prompt_chars: least + room, ..Skills::default() };
        let text = skills::part(&skills, &tools).unwrap_or_default();
        prop_assert!(text.chars().count() <= least + room);
        prop_assert_eq!(text.matches("- a-skill (read_skill)").count(), descriptions.len());
    }
}

#[test]
fn a_way_of_asking_is_made_once_for_each_content() {
    let book = PromptBook::default();
    let make = || belay_agent_loop::Reasoning::new(Prompt::default(), Prompt::default(), Arc::default(), 1, 1);
    let briefing = full();
    let first = book.get(&briefing, make);
    assert!(Arc::ptr_eq(&first, &book.get(&briefing.clone(), || unreachable!("it is known"))));
    let tomorrow = Briefing { today: Some("Friday".into()), ..briefing.clone() };
    assert!(!Arc::ptr_eq(&first, &book.get(&tomorrow, make)));
    let read_again = Briefing { files: Arc::new((*briefing.files).clone()), ..briefing.clone() };
    assert!(!Arc::ptr_eq(&first, &book.get(&read_again, make)));
    for n in 0..100 {
        book.get(&Briefing { extra: Some(n.to_string()), ..briefing.clone() }, make);
    }
    assert!(!Arc::ptr_eq(&first, &book.get(&briefing, make)), "what was used longest ago is made again");
}
