//! Checks names in the settings: programs of hooks, tools of rules and of workers.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use belay_delegates::check_executors;
use belay_parts::agent_failure;
use belay_program::environment::Environment;
use belay_run::OWN_TOOLS;
use belay_settings::Settings;
use belay_text::near::nearest;
use belay_tools::BUILTIN;

use super::{Finding, State};

/// The hooks whose program cannot be started.
pub(super) fn hooks(settings: &Settings, env: &Environment) -> Vec<Finding> {
    let hooks = settings.hooks.0.iter().enumerate().filter_map(|(at, hook)| {
        let program = hook.command.first()?;
        let path = hook.env.get("PATH").map(OsString::from).or_else(|| env.raw("PATH").map(OsStr::to_owned));
        let trouble = program_problem(program, path.as_deref())?;
        let what = format!("hooks[{at}].command: {trouble}; the hook `{}` fails each time it is asked", hook.name);
        Some(Finding::new("hooks", State::OutOfReach, what))
    });
    let mut findings: Vec<_> = hooks.collect();
    if findings.is_empty() && settings.hooks.0.iter().any(|hook| !hook.command.is_empty()) {
        findings.push(Finding::new("hooks", State::Ok, "every program is there"));
    }
    findings
}

/// Why a program cannot be started; `None`: it can.
fn program_problem(program: &str, path: Option<&OsStr>) -> Option<String> {
    if program.contains('/') {
        return match std::fs::metadata(program) {
            Err(error) => Some(format!("{program}: {error}")),
            Ok(file) if !file.is_file() => Some(format!("{program} is no file")),
            Ok(file) if file.permissions().mode() & 0o111 == 0 => {
                Some(format!("{program} may not be run: chmod +x it"))
            }
            Ok(_) => None,
        };
    }
    let path = path.unwrap_or_default();
    let found = std::env::split_paths(path).any(|directory| is_program(&directory.join(program)));
    (!found).then(|| format!("there is no program {program} in PATH ({})", path.display()))
}

fn is_program(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// The approval rules without effect: they name an unknown tool or one that is off, or an earlier rule matches all of their
/// calls.
pub(super) fn approvals(settings: &Settings) -> Vec<Finding> {
    let finding = |what: String| Finding::new("approvals", State::Note, what);
    let approvals = &settings.approvals;
    let of_servers = settings.tools.mcp.values().any(|server| server.enabled);
    let known: Vec<&str> = tools().chain(OPTIONAL).collect();
    let unknown = approvals.about_nothing(&known).into_iter().filter_map(|at| {
        let tool = &approvals.rules[at].tool;
        // The tools of MCP servers are known only after asking the servers.
        if of_servers && tool.starts_with("mcp_") {
            return None;
        }
        Some(finding(format!("approvals.rules[{at}].tool: {}", no_tool(tool))))
    });
    let unreached = approvals.never_reached().into_iter().map(|(at, earlier)| {
        finding(format!(
            "approvals.rules[{at}] is never reached: approvals.rules[{earlier}] fits every call that it fits"
        ))
    });
    let mut offered = belay_tools::offered(&settings.tools);
    offered.extend(settings.agent.send_file.then_some("send_file"));
    offered.extend(settings.agent.send_message.then_some("send_message"));
    offered.extend((settings.skills.enabled() && !settings.skills.dirs.is_empty()).then_some("read_skill"));
    let off = approvals.rules.iter().enumerate().filter_map(|(at, rule)| {
        let why = off(&rule.tool).filter(|_| !offered.contains(&&*rule.tool))?;
        Some(finding(format!("approvals.rules[{at}].tool: {} is off: {why}", rule.tool)))
    });
    unknown.chain(unreached).chain(off).collect()
}

/// An executor with an unknown tool, with the message of a start. Tools of MCP servers are not checked: they are known
/// only after asking the servers.
pub(super) fn executors(settings: &Settings) -> Option<Finding> {
    let mut offered = belay_tools::offered(&settings.tools);
    offered.extend(settings.agent.subagents.enabled().then_some("spawn_subagent"));
    offered.extend(settings.workers.enabled.then_some("run_in_worker"));
    if settings.tools.mcp.values().any(|server| server.enabled) {
        let wanted = settings.agent.executors.values().flat_map(|executor| executor.tools.iter().flatten());
        offered.extend(wanted.map(String::as_str).filter(|tool| tool.starts_with("mcp_")));
    }
    let error = check_executors(&settings.agent, &offered).err()?;
    Some(Finding::failed("agent", &agent_failure(&error)))
}

/// The unknown tools among those that workers may use.
pub(super) fn host_tools(settings: &Settings) -> Vec<Finding> {
    let missing = settings.workers.host_tools.iter().enumerate().filter(|(_, tool)| {
        let foreign = tool.starts_with("mcp_") && settings.tools.mcp.values().any(|server| server.enabled);
        !foreign && !tools().any(|known| known == tool.as_str())
    });
    let finding = |(at, tool): (usize, &String)| {
        Finding::new("workers", State::Note, format!("workers.host_tools[{at}]: {}", no_tool(tool)))
    };
    missing.map(finding).collect()
}

/// The tools that only the settings of other sections turn on.
const OPTIONAL: [&str; 3] = ["read_skill", "send_file", "send_message"];

/// The tools that exist without any MCP server.
fn tools() -> impl Iterator<Item = &'static str> {
    BUILTIN.into_iter().chain(OWN_TOOLS)
}

/// Why a built-in tool may be off.
fn off(tool: &str) -> Option<&'static str> {
    Some(match tool {
        "fetch_url" => "tools.web.enabled is false",
        "read_skill" => "skills.dirs names no directory outside of the workspace, or skills.allow is empty",
        "run_command" => "tools.commands.allow is empty",
        "run_shell" => "tools.shell.enabled is false",
        "send_file" => "agent.send_file is false",
        "send_message" => "agent.send_message is false",
        "send_request" => "tools.web.send_methods names no method",
        "web_search" => "tools.search.provider is none",
        _ => return None,
    })
}

fn no_tool(name: &str) -> String {
    let near = nearest(name, tools()).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    format!("no tool is called {name}{near}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_program_is_found_as_the_kernel_would_find_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("run-me");
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        let (file, path) = (file.to_str().unwrap().to_owned(), dir.path().as_os_str());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(program_problem(&file, None).unwrap().ends_with("may not be run: chmod +x it"));
        assert!(program_problem("run-me", Some(path)).unwrap().contains("no program run-me in PATH"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!((program_problem(&file, None), program_problem("run-me", Some(path))), (None, None));
        assert!(program_problem("/no/such/program", None).unwrap().contains("No such file"));
        assert!(program_problem(dir.path().to_str().unwrap(), None).unwrap().ends_with("is no file"));
        assert!(program_problem("run-me", None).is_some());
    }
}
