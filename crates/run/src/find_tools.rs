//! `find_tools`: brings tools into a run that most conversations do not need. Requests offer them only then, and are
//! short.
//!
//! The calls of the conversation say which tools it has brought in, see [`ToolSet::offered`]. This tool only checks the
//! names and answers with what the tools do; it keeps nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Tool, ToolContext, ToolFailure, ToolOutput, ToolSet, ToolSpec};
use belay_text::near::{did_you_mean, nearest_names};
use serde_json::{Map, Value, json};

use crate::own_tools::{FIND_TOOLS, ROUTINE};
use crate::run_tool::{DeclaredTool, RunTool};
use crate::tool_health::Health;
use crate::tool_words::{score, words_of};

/// From this number of deferred tools on, the tool is worth its own description. Fewer are offered at once.
const WORTH_IT: usize = 3;
/// Most tools that a call names, and that an answer lists.
const LISTED_MAX: usize = 30;
/// Longest `query`, in characters.
const QUERY_MAX_CHARS: usize = 200;
/// Longest line about a tool, in characters.
const LINE_MAX_CHARS: usize = 160;

/// These tools, with the tool that brings in the deferred ones of them if there are enough.
pub fn with_finder(tools: Vec<Arc<dyn Tool>>) -> Vec<Arc<dyn Tool>> {
    let mut tools: Vec<_> = tools.into_iter().filter(|tool| tool.spec().name != FIND_TOOLS).collect();
    let set = ToolSet::new(tools.clone());
    if set.deferred().nth(WORTH_IT - 1).is_some() {
        tools.push(Arc::new(declared(&set)));
    }
    tools
}

/// The same set, in which the tool that finds others names those that are there. If there are none, it is left out.
pub(crate) fn redeclared(tools: &ToolSet) -> ToolSet {
    let finder = tools.deferred().next().is_some().then(|| Arc::new(declared(tools)) as Arc<dyn Tool>);
    tools.changed(|tool| if tool.spec().name == FIND_TOOLS { finder.clone() } else { Some(tool.clone()) })
}

/// The tool for the checks of a call: its specification is the same for all runs but for the description.
pub fn tool() -> Arc<dyn Tool> {
    Arc::new(declared(&ToolSet::default()))
}

/// Declares the tool for models. Its description names the deferred tools of this set, those of MCP servers by their
/// servers.
fn declared(tools: &ToolSet) -> DeclaredTool {
    let mut servers = BTreeMap::new();
    let mut names = Vec::new();
    for spec in tools.deferred() {
        match &spec.server {
            Some(server) => *servers.entry(server.as_str()).or_insert(0) += 1,
            // Its name is not a word that people use.
            None if spec.name == ROUTINE => names.push(format!("{ROUTINE} (reminders)")),
            None => names.push(spec.name.clone()),
        }
    }
    names.extend(servers.iter().map(|(server, count)| format!("{count} of the MCP server {server}")));
    let description = format!("Brings in tools for your next step: {}.", names.join(", "));
    let schema = json!({
        "type": "object",
        "properties": {
            "names": {
                "type": "array", "items": { "type": "string", "maxLength": 64 }, "maxItems": LISTED_MAX,
            },
            "query": { "type": "string", "maxLength": QUERY_MAX_CHARS, "description": "lists those that fit it" },
        },
        "additionalProperties": false,
    });
    let spec = ToolSpec { timeout: Duration::from_secs(1), ..ToolSpec::new(FIND_TOOLS, description, schema) };
    DeclaredTool::new(spec, "tools can only be found in a run")
}

/// Finds tools among those of a run.
pub struct FindTools {
    /// The tools of the run.
    pub tools: Arc<ToolSet>,
    /// Tells which of them are disabled.
    pub health: Arc<Health>,
}

#[async_trait]
impl RunTool for FindTools {
    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let names: Vec<&str> =
            arguments.get("names").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let found = Found { tools: &self.tools, refusal: &|spec| self.health.refusal(spec) };
        match arguments.get("query").and_then(Value::as_str) {
            _ if !names.is_empty() => found.brought(&names, |tool| tool.on_demand(&context.session, context.run_id)),
            query => found.listed(query.unwrap_or_default()),
        }
    }
}

/// The tools of a run, and why some of them are disabled.
struct Found<'a> {
    tools: &'a ToolSet,
    refusal: &'a dyn Fn(&ToolSpec) -> Option<String>,
}

impl Found<'_> {
    /// The answer to names: the tools and their descriptions, and which of them do not exist or are of no use now.
    fn brought(&self, names: &[&str], on_demand: impl Fn(&dyn Tool) -> Option<bool>) -> ToolOutput {
        let tools = self.tools;
        let names: BTreeSet<&str> = names.iter().copied().collect();
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for name in names {
            match tools.get(name) {
                Some(tool) if on_demand(&**tool) == Some(false) => {
                    missing.push(format!("{name} is offered by itself while it is of use."));
                }
                Some(tool) => match (self.refusal)(tool.spec()) {
                    Some(why) => missing.push(why),
                    None => found.push(tool.spec()),
                },
                None => {
                    let near = nearest_names(name, tools.iter().map(|tool| tool.spec().name.as_str()), 3);
                    missing.push(format!("There is no tool {name:?} in this run.{}", did_you_mean(&near)));
                }
            }
        }
        let missing = missing.join("\n");
        if found.is_empty() {
            return Err(ToolFailure::failed(missing));
        }
        let text = format!("You can call these from your next step on.\n{}\n{missing}", lines(&found));
        Ok(text.trim_end().into())
    }

    /// The answer to words: the deferred tools that they fit, best first; without words, all.
    fn listed(&self, query: &str) -> ToolOutput {
        let words = words_of(query);
        let enabled = self.tools.deferred().filter(|spec| (self.refusal)(spec).is_none());
        let mut found: Vec<(usize, &ToolSpec)> = enabled.map(|spec| (score(spec, &words), spec)).collect();
        found.retain(|(score, _)| *score > 0 || words.is_empty());
        found.sort_by_key(|(score, _)| std::cmp::Reverse(*score)); // stable: equal ones stay in the order of their names
        let specs: Vec<&ToolSpec> = found.iter().take(LISTED_MAX).map(|(_, spec)| *spec).collect();
        match found.len().saturating_sub(specs.len()) {
            _ if specs.is_empty() => {
                Err(ToolFailure::failed("No further tool has these words. Leave query out to list all."))
            }
            0 => Ok(format!("Give the names of those that you need.\n{}", lines(&specs)).into()),
            more => {
                let text =
                    format!("Give the names of those that you need; {more} more are not shown.\n{}", lines(&specs));
                Ok(text.into())
            }
        }
    }
}

/// A line for each tool: its name, and the beginning of its description.
fn lines(specs: &[&ToolSpec]) -> String {
    let line = |spec: &&ToolSpec| {
        let first = spec.description.lines().next().unwrap_or_default();
        let cut: String = first.chars().take(LINE_MAX_CHARS).collect();
        format!("- {}: {cut}{}", spec.name, if cut.len() < first.len() { "…" } else { "" })
    };
    specs.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn tool(name: &str, description: &str) -> ToolSpec {
        ToolSpec { deferred: true, ..ToolSpec::new(name, description, json!({})) }
    }

    fn of(server: &str, name: &str) -> ToolSpec {
        let description = "Changes a bug report.";
        ToolSpec { foreign: true, server: Some(server.into()), deferred: false, ..tool(name, description) }
    }

    fn tools<I: IntoIterator<Item = ToolSpec>>(specs: I) -> Vec<Arc<dyn Tool>> {
        specs.into_iter().map(|spec| Arc::new(DeclaredTool::new(spec, "")) as Arc<dyn Tool>).collect()
    }

    fn own() -> Vec<ToolSpec> {
        let plain = ToolSpec::new("read_file", "Reads a file.", json!({}));
        let long = format!("Begins work {}.", "and work ".repeat(30));
        vec![
            plain,
            tool("create_job", &long),
            tool("routine", "Work at scheduled times."),
            tool("forget", "Deletes a note."),
        ]
    }

    fn finder(specs: Vec<ToolSpec>) -> ToolSet {
        ToolSet::new(with_finder(tools(specs)))
    }

    fn said(tools: &ToolSet, arguments: &Value) -> Result<belay_protocol::ToolReply, String> {
        let refusal = |spec: &ToolSpec| (spec.name == "off").then(|| "denied: off is disabled".to_owned());
        let finder = Found { tools, refusal: &refusal };
        let names: Vec<&str> = arguments["names"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let output = match arguments["query"].as_str() {
            _ if !names.is_empty() => finder.brought(&names, |tool| (tool.spec().name == "process").then_some(false)),
            query => finder.listed(query.unwrap_or_default()),
        };
        output.map_err(|failure| match failure {
            ToolFailure::Failed(text) => text,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn the_description_names_what_can_be_brought_in() {
        let many = (0..13).map(|n| of("tracker", &format!("mcp_tracker_{n}")));
        let set = ToolSet::new(with_finder(tools(own().into_iter().chain(many))));
        let described = &set.get(FIND_TOOLS).unwrap().spec().description;
        let expected = "Brings in tools for your next step: create_job, forget, routine (reminders), 13 of the MCP server tracker.";
        assert_eq!(described, expected);
    }

    #[test]
    fn few_deferred_tools_are_not_worth_it() {
        let two = own().into_iter().filter(|spec| spec.name != "forget").collect();
        assert!(ToolSet::new(with_finder(tools::<Vec<ToolSpec>>(two))).get(FIND_TOOLS).is_none());
    }

    #[test]
    fn the_finder_of_another_set_is_replaced() {
        let first = with_finder(tools(own()));
        let fewer = with_finder(first.iter().filter(|tool| tool.spec().name != "forget").cloned().collect());
        assert!(fewer.iter().all(|tool| tool.spec().name != FIND_TOOLS));
    }

    #[test]
    fn names_bring_tools_in_and_unknown_ones_are_said() {
        let reply = said(&finder(own()), &json!({ "names": ["routine", "creat_job"] })).unwrap();
        assert_eq!(
            reply.text,
            "You can call these from your next step on.\n- routine: Work at scheduled times.\n\
             There is no tool \"creat_job\" in this run. Did you mean create_job?"
        );
        assert!(!reply.untrusted);
        assert_eq!(
            said(&finder(own()), &json!({ "names": ["x"] })).unwrap_err(),
            "There is no tool \"x\" in this run."
        );
    }

    #[test]
    fn a_disabled_tool_is_neither_listed_nor_brought_in() {
        let all = finder(own().into_iter().chain([tool("off", "Deletes a note.")]).collect());
        let listed = said(&all, &json!({ "query": "note" })).unwrap();
        assert_eq!(listed.text, "Give the names of those that you need.\n- forget: Deletes a note.");
        assert_eq!(said(&all, &json!({ "names": ["off"] })).unwrap_err(), "denied: off is disabled");
        let both = said(&all, &json!({ "names": ["off", "forget"] })).unwrap();
        assert!(both.text.ends_with("- forget: Deletes a note.\ndenied: off is disabled"), "{}", both.text);
    }

    #[test]
    fn the_finder_of_a_set_without_some_names_the_others() {
        let without = |names: &[&str]| {
            let fewer = finder(own()).changed(|tool| (!names.contains(&&*tool.spec().name)).then(|| tool.clone()));
            redeclared(&fewer).get(FIND_TOOLS).map(|finder| finder.spec().description.clone())
        };
        let left = "Brings in tools for your next step: create_job, routine (reminders).";
        assert_eq!(without(&["forget"]).as_deref(), Some(left));
        assert_eq!(without(&["forget", "create_job", "routine"]), None);
    }

    #[test]
    fn words_list_the_tools_that_have_them_and_no_words_list_all() {
        let found = |query: &str| said(&finder(own()), &json!({ "query": query }));
        assert_eq!(
            found("notes, scheduled NOTE").unwrap().text,
            "Give the names of those that you need.\n- forget: Deletes a note.\n- routine: Work at scheduled times."
        );
        let all = found("").unwrap().text;
        assert_eq!(all.lines().count(), 4, "{all}");
        assert!(all.lines().all(|line| line.chars().count() < 200) && all.contains('…'), "{all}");
        assert_eq!(found("weather").unwrap_err(), "No further tool has these words. Leave query out to list all.");
    }

    #[test]
    fn descriptions_of_servers_are_no_untrusted_content() {
        let many: Vec<_> = (0..40).map(|n| of("tracker", &format!("mcp_tracker_{n}"))).collect();
        let reply = said(&finder(many), &json!({ "query": "bug" })).unwrap();
        assert!(!reply.untrusted, "they are bounded, cleaned and pinned, as in a request");
        assert!(
            reply.text.starts_with("Give the names of those that you need; 10 more are not shown.\n"),
            "{}",
            reply.text
        );
    }
}
