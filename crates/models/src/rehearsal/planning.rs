//! The rehearsal in plans: it makes a plan, executes its steps, and summarises it.
//!
//! The tools show whether a plan is requested. The first words of the request show whether a step or a summary is.

use belay_protocol::{Arguments, FIND_TOOLS, ModelRequest, ToolCall};
use serde_json::{Value, json};

use super::plan::{Script, call_id};
use super::turn::Turn;

/// The beginning of an executor's task.
const STEP_HEAD: &str = "Carry out one step of a plan";
/// The text before the number of the step.
const STEP_NUMBER: &str = "Your step is number ";
/// The beginning of the report on a plan, from which the summary is made.
const REPORT_HEAD: &str = "This is the outcome of a plan";
/// Text in a request that makes the second step, number 1, fail.
const BLOCKED_STEP: &str = "rehearse blocked-step";
/// Most characters of the request that become the title.
const TITLE_CHARS: usize = 50;

/// The script for a plan, a step of a plan, or its summary; `None` for other requests.
pub(super) fn script(request: &ModelRequest<'_>) -> Option<Script> {
    let tools = request.tools.iter().flat_map(|tools| tools.iter()).map(|tool| tool.spec().name.as_str());
    part(&Turn::of(request.messages), &request.prompt.text, &tools.collect::<Vec<_>>())
}

fn part(turn: &Turn<'_>, prompt: &str, tools: &[&str]) -> Option<Script> {
    if tools == ["planning"] {
        return Some(make(turn, prompt));
    }
    if turn.asked.starts_with(STEP_HEAD) {
        return Some(carry_out(turn, tools));
    }
    (turn.asked.starts_with(REPORT_HEAD) && tools.is_empty()).then(|| sum_up(turn))
}

/// Makes a plan of three steps. The second has a tag if the prompt lists executors.
fn make(turn: &Turn<'_>, prompt: &str) -> Script {
    let name = |line: &str| Some(line.strip_prefix("- ")?.split_once(':')?.0.to_owned());
    let is_name = |name: &String| !name.contains(' ') && !name.eq_ignore_ascii_case("general");
    let tag = prompt.lines().filter_map(name).find(is_name).map(|name| format!("[{name}] ")).unwrap_or_default();
    let title: String = turn.asked.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(TITLE_CHARS).collect();
    let steps = ["Look at what is there".to_owned(), format!("{tag}Do the work"), "Check the result".to_owned()];
    one_call(turn, "planning", json!({ "command": "create", "title": title, "steps": steps }))
}

/// Makes one tool call, if a tool is offered, then ends the step.
fn carry_out(turn: &Turn<'_>, tools: &[&str]) -> Script {
    let number = turn.asked.rsplit_once(STEP_NUMBER).and_then(|(_, rest)| rest.split(':').next()).unwrap_or("?");
    if !tools.contains(&"terminate") {
        return Script::text(format!(
            "Step {number} of the rehearsed plan: no tools are offered, so nothing was done."
        ));
    }
    let end = |status: &str, summary: String| {
        step_call(turn, number, "terminate", json!({ "status": status, "summary": summary }))
    };
    if number == "1" && turn.asked.contains(BLOCKED_STEP) {
        return end("failure", "this step fails, as it was asked to".to_owned());
    }
    let works = [("calculate", json!({ "expression": "6*7" })), ("clock", json!({}))];
    // A tool that can be found may be called without more ado.
    let is_known = |tool: &&str| tools.contains(tool) || tools.contains(&FIND_TOOLS);
    let work = works.into_iter().find(|(tool, _)| is_known(tool));
    match (turn.last_results().first(), work) {
        (None, Some((tool, arguments))) => step_call(turn, number, tool, arguments),
        (None, None) => end("success", format!("step {number} is rehearsed without a tool")),
        (Some(result), _) => {
            end("success", format!("step {number} is rehearsed, {} said {}", result.name, result.text))
        }
    }
}

/// Reports the numbers of completed and blocked steps, from the marks of the plan.
fn sum_up(turn: &Turn<'_>) -> Script {
    let count = |mark: &str| {
        turn.asked.lines().filter(|line| line.split_once(". ").is_some_and(|(_, rest)| rest.starts_with(mark))).count()
    };
    let (done, blocked) = (count("[✓]"), count("[!]"));
    let steps = |n: usize| format!("{n} step{}", if n == 1 { "" } else { "s" });
    Script::text(format!("Rehearsal of a plan: {} completed, {} blocked.", steps(done), blocked)).labelled()
}

fn one_call(turn: &Turn<'_>, name: &str, arguments: Value) -> Script {
    let arguments = Arguments::parse(&arguments.to_string());
    Script::calls(vec![ToolCall { id: call_id(turn, 0), name: name.to_owned(), arguments }])
}

/// A call of a step. The contexts of all steps have the same lengths, so the id has the number of the step.
fn step_call(turn: &Turn<'_>, number: &str, name: &str, arguments: Value) -> Script {
    let arguments = Arguments::parse(&arguments.to_string());
    let id = format!("rehearsal-step{number}-{}-0", turn.length()).into();
    Script::calls(vec![ToolCall { id, name: name.to_owned(), arguments }])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use belay_protocol::{Message, ToolResult, ToolStatus};

    use super::super::plan::{Ending, Segment};
    use super::*;

    const TOOLS: &[&str] = &["calculate", "clock", "terminate"];

    fn task(request: &str, number: u32) -> String {
        format!("Carry out one step of a plan: x.\n\nThe request:\n{request}\n\nYour step is number {number}: work")
    }

    /// The call or the text of the answer; `None` if the request is not part of a plan.
    fn answer(messages: Vec<Message>, prompt: &str, tools: &[&str]) -> Option<String> {
        let messages: Vec<_> = messages.into_iter().map(Arc::new).collect();
        let script = part(&Turn::of(&messages), prompt, tools)?;
        Some(match (&script.segments[..], &script.ending) {
            ([], Ending::Calls(calls)) => format!("{} {}", calls[0].name, calls[0].arguments.canonical()),
            ([Segment::Say(text)], Ending::Stop) => text.clone(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn each_part_of_a_plan_is_played_and_nothing_else() {
        let report = "This is the outcome of a plan.\n\nSteps:\n0. [✓] a\n1. [!] b\n2. [✓] c";
        let choice = "executors:\n- GENERAL: has every tool\n- WEB: looks things up\n";
        for (name, asked, prompt, tools, expected) in [
            (
                "a plan",
                "tidy\n up".to_owned(),
                "Plan.",
                &["planning"][..],
                Some(
                    r#"planning {"command":"create","steps":["Look at what is there","Do the work","Check the result"],"title":"tidy up"}"#,
                ),
            ),
            (
                "a plan with a tag",
                "tidy".to_owned(),
                choice,
                &["planning"],
                Some(
                    r#"planning {"command":"create","steps":["Look at what is there","[WEB] Do the work","Check the result"],"title":"tidy"}"#,
                ),
            ),
            ("a step", task("tidy", 1), "", TOOLS, Some(r#"calculate {"expression":"6*7"}"#)),
            (
                "a step that can find tools",
                task("tidy", 1),
                "",
                &[FIND_TOOLS, "terminate"],
                Some(r#"calculate {"expression":"6*7"}"#),
            ),
            ("a step with a clock", task("tidy", 1), "", &["clock", "terminate"], Some("clock {}")),
            (
                "a step without tools",
                task("tidy", 1),
                "",
                &["terminate"],
                Some(r#"terminate {"status":"success","summary":"step 1 is rehearsed without a tool"}"#),
            ),
            (
                "the step that fails",
                task("rehearse blocked-step", 1),
                "",
                TOOLS,
                Some(r#"terminate {"status":"failure","summary":"this step fails, as it was asked to"}"#),
            ),
            (
                "the step before it",
                task("rehearse blocked-step", 0),
                "",
                TOOLS,
                Some(r#"calculate {"expression":"6*7"}"#),
            ),
            (
                "a summary",
                report.to_owned(),
                "",
                &[],
                Some(
                    "[rehearsal: this is Belay's built-in stand-in, not a model]\nRehearsal of a plan: 2 steps completed, 1 blocked.",
                ),
            ),
            ("a chat", "hello".to_owned(), choice, TOOLS, None),
            ("a chat that may plan", "hello".to_owned(), choice, &["clock", "planning"], None),
        ] {
            assert_eq!(answer(vec![Message::user(asked)], prompt, tools).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn after_its_call_a_step_ends_with_what_the_tool_said() {
        let call = ToolCall { id: "c".into(), name: "calculate".into(), arguments: Arguments::parse("") };
        let (call_id, name) = (call.id.clone(), call.name.clone());
        let result = ToolResult { call_id, name, status: ToolStatus::Success, text: "42".into() };
        let messages =
            vec![Message::user(task("tidy", 2)), Message::assistant_calls("", vec![call]), Message::tool(result)];
        let expected = r#"terminate {"status":"success","summary":"step 2 is rehearsed, calculate said 42"}"#;
        assert_eq!(answer(messages, "", TOOLS).as_deref(), Some(expected));
    }

    #[test]
    fn no_two_steps_of_a_plan_have_a_call_of_one_id() {
        let id = |number: u32| {
            let messages = [Arc::new(Message::user(task("x", number)))];
            match part(&Turn::of(&messages), "", TOOLS).map(|script| script.ending) {
                Some(Ending::Calls(calls)) => calls[0].id.clone(),
                other => panic!("{other:?}"),
            }
        };
        assert_ne!(id(1), id(2));
    }
}
