//! `belay mcp list` and `belay mcp approve`: the tools of MCP servers.

use belay_parts::{CommandPins, ProcessNeeds, mcp_servers};
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output, Tone};
use belay_program::paths::{Paths, private_directory};
use belay_protocol::{LoginReport, LoginState};
use belay_settings::{Settings, SettingsArgs, load, refuse_own_files, refused, workspace_of};
use belay_tools::mcp::{Mcp, ServerReport, Standing, SurveyMode, ToolReport, find};
use serde_json::json;

use crate::mcp_args::{ApproveArgs, ListArgs};

/// Asks the servers and shows their tools. Approves nothing.
pub async fn list(args: &ListArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let (mut settings, paths) = settings_of(&args.settings, args.server.as_deref(), env)?;
    if let Some(wanted) = &args.server {
        settings.tools.mcp.retain(|name, _| name == wanted);
    }
    let work = async |mcp: &Mcp| (mcp.survey(SurveyMode::Only).await, logins(mcp).await);
    let (survey, logins) = with_servers(&settings, env, &paths, work).await?;
    let reports = survey.map_err(|error| Failure::new(Exit::OutOfReach, error))?.reports;
    if args.json {
        out.json(&json!({ "servers": reports, "logins": logins }));
    } else if reports.is_empty() {
        out.line("no MCP server is enabled; [tools.mcp.NAME] in the settings names one");
    } else {
        out.table(&reports.iter().flat_map(rows).collect::<Vec<_>>());
        out.lines(reports.iter().filter_map(speaks));
        out.lines(logins.iter().map(logged_in));
        out.lines(reports.iter().filter_map(wrote));
        out.lines(reports.iter().flat_map(|report| report.tools.iter().filter_map(move |tool| compared(report, tool))));
    }
    let all_answered = reports.iter().all(|report| report.trouble.is_none());
    Ok(if all_answered { Exit::Fine } else { Exit::OutOfReach })
}

/// Approves what a server describes now.
pub async fn approve(args: &ApproveArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let (settings, paths) = settings_of(&args.settings, Some(&args.server), env)?;
    let approve = async |mcp: &Mcp| mcp.approve(&args.server, args.tool.as_deref()).await;
    let approved = with_servers(&settings, env, &paths, approve).await?;
    let approved = approved.map_err(|what| Failure::new(Exit::Failed, what))?;
    if args.json {
        out.json(&json!({ "approved": approved }));
        return Ok(Exit::Fine);
    }
    for tool in &approved {
        out.line(&format!("approved {}: {}", tool.tool, tool.description));
    }
    out.line(if approved.is_empty() {
        "nothing to approve: it is what was approved before"
    } else {
        "a daemon that is running offers it from its next start on"
    });
    Ok(Exit::Fine)
}

/// Loads the settings, and checks that they have the named server.
fn settings_of(args: &SettingsArgs, server: Option<&str>, env: &Environment) -> Result<(Settings, Paths), Failure> {
    let paths = Paths::find(env)?.with_named(&args.files);
    let settings = load(args, env, &paths).map_err(|problems| refused(&problems))?.settings;
    match server.map(|name| find(&settings.tools.mcp, name)) {
        Some(Err(what)) => Err(Failure::new(Exit::Failed, what)),
        Some(Ok(_)) | None => Ok((settings, paths)),
    }
}

/// Uses the servers with their pins, and ends what they have started. Prepares the directories that they need.
async fn with_servers<T>(
    settings: &Settings,
    env: &Environment,
    paths: &Paths,
    work: impl AsyncFnOnce(&Mcp) -> T,
) -> Result<T, Failure> {
    refuse_own_files(settings, env, paths)?;
    for directory in [&paths.data, &workspace_of(settings, env, paths)] {
        private_directory(directory).map_err(|error| Failure::new(Exit::OutOfReach, error))?;
    }
    let needs = ProcessNeeds::find(settings, env, paths)?;
    let pins = CommandPins::required(settings, env, paths).await?;
    let done = match mcp_servers(&needs, settings, env, paths, pins.pins()) {
        Ok(mcp) => {
            let done = work(&mcp).await;
            mcp.settle_logins().await;
            needs.processes.shutdown().await;
            Ok(done)
        }
        Err(failure) => Err(failure),
    };
    pins.close().await;
    done
}

/// The table rows of a server.
fn rows(report: &ServerReport) -> Vec<Vec<Cell>> {
    let row = |(word, tone), tool: &str, detail: &str| {
        vec![Cell::new(word, tone), report.server.as_str().into(), tool.into(), first_line(detail).into()]
    };
    match &report.trouble {
        Some(trouble) => vec![row(("left out", Tone::Bad), "–", trouble)],
        None if report.tools.is_empty() => vec![row(("ok", Tone::Dim), "–", "offers no tools")],
        None => report.tools.iter().map(|tool| row(word(&tool.standing), &tool.tool, detail(tool))).collect(),
    }
}

/// The revision of MCP that a server speaks.
fn speaks(report: &ServerReport) -> Option<String> {
    report.revision.as_ref().map(|revision| format!("{} speaks MCP {revision}", report.server))
}

/// The logins at the servers that have one, or need one.
async fn logins(mcp: &Mcp) -> Vec<LoginReport> {
    let Some(logins) = mcp.logins() else { return Vec::new() };
    let all = logins.logins().await.into_iter();
    all.filter(|login| login.state != LoginState::None).collect()
}

/// The login at a server, in words.
fn logged_in(login: &LoginReport) -> String {
    let LoginReport { server, state, scopes, expires_at, renewable, detail } = login;
    let word = match state {
        LoginState::LoggedIn => "is logged in",
        LoginState::Needed => "needs login: belay mcp login",
        LoginState::Unreadable => "cannot use its login",
        LoginState::None => "has no login",
    };
    let word = if *state == LoginState::Needed { format!("{word} {server}") } else { word.to_owned() };
    let until = expires_at.map(|at| format!("the token expires at {}", at.to_rfc3339()));
    let renewed = match (expires_at, renewable) {
        (_, true) => "and is renewed",
        (Some(_), false) => "and is not renewed",
        (None, false) => "",
    };
    let until = until.map_or_else(String::new, |until| format!("; {until} {renewed}").trim_end().to_owned());
    let scopes = if scopes.is_empty() { String::new() } else { format!("; scopes: {}", scopes.join(" ")) };
    let why = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
    format!("{server} {word}{why}{until}{scopes}")
}

/// The standard error of a server that is left out.
fn wrote(report: &ServerReport) -> Option<String> {
    let lines: String = report.last_words.lines().map(|line| format!("\n  {line}")).collect();
    (!lines.is_empty()).then(|| format!("{} wrote to standard error:{lines}", report.server))
}

fn word(standing: &Standing) -> (&'static str, Tone) {
    match standing {
        Standing::Offered => ("offered", Tone::Good),
        Standing::New => ("new", Tone::Warn),
        Standing::Changed { .. } => ("changed", Tone::Bad),
        Standing::NotWanted => ("not wanted", Tone::Dim),
        Standing::LeftOut { .. } => ("left out", Tone::Bad),
    }
}

fn detail(tool: &ToolReport) -> &str {
    match &tool.standing {
        Standing::LeftOut { why } => why,
        _ => &tool.description,
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// What has changed in a tool since its approval; `None` if nothing has.
fn compared(report: &ServerReport, tool: &ToolReport) -> Option<String> {
    let Standing::Changed { what, before } = &tool.standing else { return None };
    let (server, name) = (&report.server, &tool.tool);
    Some(format!(
        "\n{name} of {server} has changed since it was approved: {}\n  was: {before}\n  is:  {}\n  `belay mcp list --json {server}` \
         shows its arguments, `belay mcp approve {server} {name}` approves it",
        what.join(", "),
        tool.description
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_tool_that_has_changed_is_shown_as_it_was_and_as_it_is() {
        let standing = Standing::Changed { what: vec!["description", "hints"], before: "Kind.".into() };
        let (tool, description) = ("t".to_owned(), "Evil.".to_owned());
        let tool = ToolReport { tool, name: None, description, schema: Value::Null, standing };
        let report = ServerReport {
            server: "s".into(),
            revision: None,
            trouble: None,
            last_words: String::new(),
            tools: vec![tool],
        };
        assert_eq!(speaks(&report), None);
        let new = ServerReport { revision: Some("2026-07-28".into()), ..report.clone() };
        assert_eq!(speaks(&new).as_deref(), Some("s speaks MCP 2026-07-28"));
        let text = compared(&report, &report.tools[0]).expect("it has changed");
        assert!(
            text.contains("t of s has changed since it was approved: description, hints\n  was: Kind.\n  is:  Evil.\n")
        );
        assert!(text.ends_with("`belay mcp approve s t` approves it"), "{text}");
    }
}
