//! The MCP servers, and the tools that they offer now.

use belay_parts::{CommandPins, ProcessNeeds, mcp_servers};
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::paths::Paths;
use belay_settings::{Settings, workspace_of};
use belay_tools::mcp::{ServerReport, Standing, SurveyMode, Trust};

use super::{Finding, State};

/// Lists the current tools of the MCP servers. A server that is not available does not prevent a start.
pub(super) async fn servers(settings: &Settings, paths: &Paths, env: &Environment) -> Vec<Finding> {
    let finding = |state, detail: String| Finding::new("mcp", state, detail);
    if !settings.tools.mcp.values().any(|server| server.enabled) {
        return Vec::new();
    }
    if !workspace_of(settings, env, paths).is_dir() {
        return vec![finding(
            State::Note,
            "the servers are asked once the workspace is there: `belay mcp list` makes it".into(),
        )];
    }
    let asked = async {
        let needs = ProcessNeeds::find(settings, env, paths)?;
        let Some(pins) = CommandPins::open(settings, env, paths).await? else { return Ok(None) };
        let survey = match mcp_servers(&needs, settings, env, paths, pins.pins()) {
            Ok(mcp) => {
                let survey = mcp.survey(SurveyMode::Only).await;
                mcp.settle_logins().await;
                survey.map_err(|error| Failure::new(Exit::OutOfReach, error))
            }
            Err(failure) => Err(failure),
        };
        needs.processes.shutdown().await;
        pins.close().await;
        survey.map(Some)
    };
    match asked.await {
        Err(failure) => vec![Finding::failed("mcp", &failure)],
        Ok(None) => {
            let detail =
                "the servers are asked once the database of the cluster has tables: the first node creates them";
            vec![finding(State::Note, detail.into())]
        }
        Ok(Some(survey)) => survey.reports.iter().map(|report| of_server(report, settings)).collect(),
    }
}

fn of_server(report: &ServerReport, settings: &Settings) -> Finding {
    let name = &report.server;
    let finding = |state, detail: String| Finding::new("mcp", state, detail);
    if let Some(trouble) = &report.trouble {
        let said: Vec<&str> = report.last_words.lines().collect();
        let said = if said.is_empty() { String::new() } else { format!(". It wrote: {}", said.join(" | ")) };
        return finding(State::Note, format!("{name} {trouble}. Its tools are left out{said}"));
    }
    let first_use = settings.tools.mcp.get(name).is_some_and(|server| server.trust == Trust::FirstUse);
    let named = |which: &dyn Fn(&Standing) -> bool| -> Vec<&str> {
        report.tools.iter().filter(|tool| which(&tool.standing)).map(|tool| tool.tool.as_str()).collect()
    };
    let offered = named(&|standing| *standing == Standing::Offered || (first_use && *standing == Standing::New)).len();
    let parts = [
        ("not approved", named(&|standing| !first_use && *standing == Standing::New)),
        ("changed since they were approved", named(&|standing| matches!(standing, Standing::Changed { .. }))),
        ("cannot be offered", named(&|standing| matches!(standing, Standing::LeftOut { .. }))),
    ];
    let without: Vec<_> = parts.iter().filter(|(_, tools)| !tools.is_empty()).collect();
    let state = if without.is_empty() { State::Ok } else { State::Note };
    let without: String = without.iter().map(|(why, tools)| format!("; {why}: {}", tools.join(", "))).collect();
    let tools = if offered == 1 { "tool" } else { "tools" };
    finding(state, format!("{name} offers {offered} {tools}{without}"))
}
