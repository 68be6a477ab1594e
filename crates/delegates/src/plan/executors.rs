//! Executors of plan steps: built once at the start, chosen by the tags of a step.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_agent_loop::Reasoning;
use belay_protocol::{Prompt, Tool, ToolSet};

use super::texts;
use crate::subagent::ChildServices;
use belay_run::config::{AgentConfig, ExecutorConfig};
use belay_run::error::AgentError;
use belay_run::find_tools::with_finder;
use belay_run::own_tools::TERMINATE;
use belay_run::own_tools::manages_work;
use belay_run::prompt::{self, Briefing};
use belay_run::terminate::{TEACHING, Terminate};
use belay_run::untrusted::RULE;
use belay_text::near::nearest;

/// The name of the executor that always exists.
const GENERAL: &str = "general";
/// Before the names of the tools of MCP servers.
const MCP_PREFIX: &str = "mcp_";
const GENERAL_DESCRIPTION: &str = "has every tool and does everything that the others are not meant for";

/// An executor: prompts, tools and limits for steps.
pub(crate) struct Executor {
    pub name: String,
    description: String,
    pub reasoning: Reasoning,
    /// Its tools. Replaced as a whole when tools are added.
    tools: Mutex<Arc<ToolSet>>,
    /// The names of its tools in the settings; `None`: it has all tools.
    wanted: Option<Vec<String>>,
    /// Most model calls of one execution.
    pub max_steps: u32,
}

impl Executor {
    /// The tools of this executor that a run with this briefing may use. It can always end its step.
    pub(super) fn tools_for(&self, briefing: &Briefing) -> Arc<ToolSet> {
        let all = self.tools().clone();
        let allowed = briefing.allowed(&all);
        let ends = all.get(TERMINATE).filter(|_| allowed.get(TERMINATE).is_none());
        match ends {
            None => allowed,
            Some(terminate) => Arc::new(ToolSet::new(allowed.iter().chain([terminate]).cloned().collect())),
        }
    }

    fn tools(&self) -> MutexGuard<'_, Arc<ToolSet>> {
        // The value is only replaced as a whole, so a panic cannot leave it inconsistent.
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Prompts and executors that all plans share, built once.
pub struct PlanKit {
    /// `general` first, the others by name. Never empty.
    executors: Vec<Executor>,
    /// The planner's prompt: how to plan, and the names of the executors.
    planner: Prompt,
    /// For the summary, and for the closing turn of a plan that ends early, with the persona of the agent.
    summary: Arc<Reasoning>,
    /// Lets steps start other runs.
    pub children: Arc<ChildServices>,
    max_tokens: u32,
    max_attempts: u32,
}

impl PlanKit {
    /// Builds the executors from the settings and the available tools.
    ///
    /// # Errors
    /// The settings of an executor name a tool that does not exist.
    pub fn build(
        config: &AgentConfig,
        tools: &[Arc<dyn Tool>],
        max_tokens: u32,
        max_attempts: u32,
        children: Arc<ChildServices>,
    ) -> Result<Self, AgentError> {
        // A step is autonomous work, so its executor creates no further work.
        let tools: Vec<_> = tools.iter().filter(|tool| !manages_work(&tool.spec().name)).cloned().collect();
        let built_in = ExecutorConfig { description: GENERAL_DESCRIPTION.into(), ..ExecutorConfig::default() };
        let general = config.executors.get(GENERAL).unwrap_or(&built_in);
        let others = config.executors.iter().filter(|(name, _)| *name != GENERAL);
        let named = std::iter::once((GENERAL, general)).chain(others.map(|(name, executor)| (name.as_str(), executor)));
        let ask = |prompt: String, tools: Vec<Arc<dyn Tool>>| {
            let prompt = || Prompt::new(prompt.clone());
            Reasoning::new(prompt(), prompt(), Arc::new(ToolSet::new(tools)), max_tokens, max_attempts)
        };
        let executors = named
            .map(|(name, executor)| {
                let ExecutorConfig { description, prompt, max_steps, .. } = executor;
                let persona = prompt.as_deref().unwrap_or(texts::EXECUTOR);
                let reasoning = ask(format!("{persona}\n\n{} {RULE}\n\n{TEACHING}", texts::WORK), Vec::new());
                Ok(Executor {
                    name: name.to_owned(),
                    description: description.clone(),
                    reasoning,
                    tools: Mutex::new(set_of(executor.tools.is_none(), tools_of(name, executor, &tools)?)),
                    wanted: executor.tools.clone(),
                    max_steps: max_steps.unwrap_or(config.plan.max_steps_per_execution),
                })
            })
            .collect::<Result<Vec<_>, AgentError>>()?;
        let summary = Arc::new(ask(summary_prompt(prompt::persona(config)), Vec::new()));
        let planner = Prompt::new(planner_prompt(&executors));
        Ok(Self { executors, planner, summary, children, max_tokens, max_attempts })
    }

    /// Offers further tools to steps that begin from now on.
    pub fn add_tools(&self, tools: &[Arc<dyn Tool>]) {
        for executor in &self.executors {
            let wants = |tool: &&Arc<dyn Tool>| {
                executor.wanted.as_ref().is_none_or(|wanted| wanted.contains(&tool.spec().name))
            };
            let mut known = executor.tools();
            let all = known.iter().chain(tools.iter().filter(wants)).cloned().collect();
            *known = set_of(executor.wanted.is_none(), all);
        }
    }

    /// Prompts for the summary of a run with this briefing.
    pub(super) fn summary(&self, briefing: &Briefing) -> Arc<Reasoning> {
        let Some(persona) = &briefing.persona else { return self.summary.clone() };
        let prompt = || Prompt::new(summary_prompt(persona));
        Arc::new(Reasoning::new(prompt(), prompt(), Arc::default(), self.max_tokens, self.max_attempts))
    }

    /// Prompts and the tool of the planner for one run.
    pub(super) fn planner(&self, tool: Arc<dyn Tool>) -> Reasoning {
        let tools = Arc::new(ToolSet::new(vec![tool]));
        let prompt = || Prompt::new(self.planner.text.clone());
        Reasoning::new(prompt(), prompt(), tools, self.max_tokens, self.max_attempts)
    }

    /// The executor of a step: the one that the first known `[TAG]` names, or else the first executor.
    pub(super) fn choose(&self, step: &str) -> &Executor {
        let tagged = tags(step).find_map(|tag| self.executors.iter().find(|one| one.name.eq_ignore_ascii_case(tag)));
        tagged.unwrap_or(&self.executors[0])
    }
}

/// The tools of an executor. If the settings name them, all of them are offered.
fn set_of(any: bool, tools: Vec<Arc<dyn Tool>>) -> Arc<ToolSet> {
    Arc::new(ToolSet::new(if any { with_finder(tools) } else { tools }))
}

fn summary_prompt(persona: &str) -> String {
    format!("{persona}\n\n{}", texts::SUMMARY)
}

/// Checks that every tool in the settings of an executor exists. `offered`: the names of all tools of runs. The agent
/// does not start when the check fails.
///
/// # Errors
/// The first executor with an unknown tool.
pub fn check_executors(config: &AgentConfig, offered: &[&str]) -> Result<(), AgentError> {
    let offered: Vec<&str> = offered.iter().copied().filter(|name| !manages_work(name)).collect();
    config.executors.iter().try_for_each(|(name, executor)| check_tools(name, executor, &offered))
}

/// Checks the tools in the settings of one executor.
fn check_tools(name: &str, executor: &ExecutorConfig, offered: &[&str]) -> Result<(), AgentError> {
    let wanted = executor.tools.iter().flatten();
    // An MCP server may start later than the agent, or not today.
    let known = |tool: &str| tool == TERMINATE || tool.starts_with(MCP_PREFIX) || offered.contains(&tool);
    let missing = |tool: &&String| !known(tool);
    match wanted.into_iter().find(missing) {
        None => Ok(()),
        Some(tool) => {
            let nearest = nearest(tool, offered.iter().copied()).map(str::to_owned);
            Err(AgentError::ExecutorTool { executor: name.to_owned(), tool: tool.clone(), nearest })
        }
    }
}

/// The tools of an executor: those of its settings, or all, and `terminate`.
fn tools_of(name: &str, executor: &ExecutorConfig, all: &[Arc<dyn Tool>]) -> Result<Vec<Arc<dyn Tool>>, AgentError> {
    let mut tools: Vec<Arc<dyn Tool>> = vec![Arc::new(Terminate::new())];
    let Some(wanted) = &executor.tools else {
        tools.extend(all.iter().cloned());
        return Ok(tools);
    };
    let names: Vec<&str> = all.iter().map(|tool| tool.spec().name.as_str()).collect();
    check_tools(name, executor, &names)?;
    for wanted in wanted {
        let known = all.iter().chain(&tools[..1]).find(|tool| tool.spec().name == *wanted).cloned();
        tools.extend(known);
    }
    Ok(tools)
}

/// The planner's prompt. With several executors, it lists them and explains the tags.
fn planner_prompt(executors: &[Executor]) -> String {
    if executors.len() < 2 {
        return texts::PLANNER.to_owned();
    }
    let lines: Vec<String> =
        executors.iter().map(|one| format!("- {}: {}", one.name.to_uppercase(), one.description.trim())).collect();
    format!(
        "{}\n\nThe steps are carried out by these executors:\n{}\n\nBegin each step with the name of the executor that is to \
         carry it out, in brackets: `[NAME] what is to be achieved`.",
        texts::PLANNER,
        lines.join("\n")
    )
}

/// All texts in brackets that could be a name.
fn tags(step: &str) -> impl Iterator<Item = &str> {
    let is_name =
        |tag: &&str| !tag.is_empty() && tag.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    step.split('[').skip(1).filter_map(|rest| Some(rest.split_once(']')?.0)).filter(is_name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use async_trait::async_trait;
    use belay_protocol::{ToolContext, ToolOutput, ToolSpec};
    use serde_json::{Map, Value, json};

    use super::*;

    struct Named(ToolSpec);

    impl Named {
        fn tool(name: &str) -> Arc<dyn Tool> {
            Arc::new(Self(ToolSpec::new(name, "reads", json!({ "type": "object" }))))
        }
    }

    #[async_trait]
    impl Tool for Named {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        async fn call(&self, _: &Map<String, Value>, _: &ToolContext) -> ToolOutput {
            Ok("read".into())
        }
    }

    fn kit(executors: &[(&str, Option<&[&str]>)]) -> Result<PlanKit, AgentError> {
        let executor = |tools: &Option<&[&str]>| ExecutorConfig {
            description: "d".into(),
            tools: tools.map(|tools| tools.iter().map(|tool| (*tool).to_owned()).collect()),
            ..ExecutorConfig::default()
        };
        let executors: BTreeMap<_, _> =
            executors.iter().map(|(name, tools)| ((*name).to_owned(), executor(tools))).collect();
        let config = AgentConfig { executors, ..AgentConfig::default() };
        let planning: Arc<dyn Tool> = Arc::new(super::super::tool::Planning::over(Arc::default()));
        PlanKit::build(&config, &[planning], 100, 1, Arc::new(ChildServices::without_workers(&config.subagents)))
    }

    #[test]
    fn the_first_tag_that_names_an_executor_chooses_it() {
        let kit = kit(&[("web-search", None), ("Write_2", None)]).expect("built");
        for (step, expected) in [
            ("look it up", "general"),
            ("[WEB-SEARCH] look it up", "web-search"),
            ("[web-Search] then [WRITE_2]", "web-search"),
            ("[1] look it up [write_2]", "Write_2"),
            ("[web search] look it up", "general"),
            ("[] [web-search", "general"),
            ("[[GENERAL]] [WRITE_2]", "general"),
            ("[nobody]", "general"),
        ] {
            assert_eq!(kit.choose(step).name, expected, "{step}");
        }
    }

    #[test]
    fn executors_have_terminate_and_only_tools_that_there_are() {
        let names = |kit: &PlanKit, at: usize| -> Vec<String> {
            kit.executors[at].tools().iter().map(|tool| tool.spec().name.clone()).collect()
        };
        let two = kit(&[("none", Some(&[])), ("one", Some(&["planning", "terminate"]))]).expect("built");
        assert_eq!(names(&two, 0), ["planning", "terminate"], "general has all");
        assert_eq!(names(&two, 1), ["terminate"]);
        assert_eq!(names(&two, 2), ["planning", "terminate"]);
        assert!(two.planner.text.contains("- GENERAL: has every tool") && two.planner.text.contains("- ONE: d"));
        let alone = kit(&[]).expect("built");
        assert_eq!(alone.planner.text, texts::PLANNER);
        let wrong = kit(&[("one", Some(&["plannings"]))]).err().expect("refused").to_string();
        assert_eq!(wrong, "agent.executors.one.tools: there is no tool plannings; did you mean planning?");

        // A tool of a server that starts late.
        let late = kit(&[("all", None), ("files", Some(&["mcp_files_read"])), ("none", Some(&[]))]).expect("built");
        assert_eq!(names(&late, 2), ["terminate"]);
        late.add_tools(&[Named::tool("mcp_files_read"), Named::tool("mcp_files_write")]);
        assert_eq!(names(&late, 0), ["mcp_files_read", "mcp_files_write", "planning", "terminate"]);
        assert_eq!(
            (names(&late, 2), names(&late, 3)),
            (vec!["mcp_files_read".into(), "terminate".into()], vec!["terminate".into()])
        );
    }
}
