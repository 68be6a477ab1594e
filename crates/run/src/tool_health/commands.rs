//! The command `/tools`: the requests of [`super::requests`], made in a conversation and answered in text.

use belay_protocol::tool_health::SERVER_PREFIX;
use belay_protocol::{Inbound, Refusal, ToolHealth, ToolRequest, ToolSet, ToolState};

use super::health::Health;
use super::requests::request;

/// Usage text of the command.
pub const USAGE: &str = "/tools lists the tools that the model can use. Operators disable and enable a tool, or a \
server as mcp:NAME: /tools disable NAME REASON, /tools enable NAME.";

/// A parsed `/tools` command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolsCommand {
    /// `/tools`: lists the tools.
    List,
    /// `/tools disable NAME WHY`
    Disable {
        /// Name of the tool or server.
        name: String,
        /// The reason.
        detail: String,
    },
    /// `/tools enable NAME`
    Enable(String),
}

impl ToolsCommand {
    /// Parses the argument of the command; `None`: it is invalid.
    pub fn parse(argument: Option<&str>) -> Option<Self> {
        let Some(argument) = argument else { return Some(Self::List) };
        let (verb, rest) = argument.split_once(char::is_whitespace)?;
        let (name, why) = rest.trim().split_once(char::is_whitespace).unwrap_or((rest.trim(), ""));
        let (name, why) = (name.to_owned(), why.trim().to_owned());
        match verb.to_lowercase().as_str() {
            "disable" if !why.is_empty() => Some(Self::Disable { name, detail: why }),
            "enable" if why.is_empty() && !name.is_empty() => Some(Self::Enable(name)),
            _ => None,
        }
    }
}

/// Carries out a command. `offered`: the tools of the conversation.
///
/// # Errors
/// The reason why it was not carried out.
pub async fn command(
    health: &Health,
    offered: &ToolSet,
    command: ToolsCommand,
    by: &Inbound,
) -> Result<String, Refusal> {
    let asked = match command {
        ToolsCommand::List => return Ok(list(health, offered, by.principal.is_operator())),
        ToolsCommand::Disable { name, detail: why } => ToolRequest::Disable { name, detail: why },
        ToolsCommand::Enable(name) => ToolRequest::Enable(name),
    };
    let tools = request(health, asked, by).await?;
    let line = |tool: &ToolHealth| trouble_line(tool).unwrap_or_else(|| format!("{} is enabled.", subject(&tool.name)));
    Ok(tools.iter().map(line).collect::<Vec<_>>().join("\n"))
}

/// The tools of the conversation, then failing and disabled ones.
fn list(health: &Health, offered: &ToolSet, is_operator: bool) -> String {
    let tools = offered.iter().map(|tool| format!("- `{}`: {}", tool.spec().name, tool.spec().description));
    let troubled = health.troubled().into_iter().map(|tool| if is_operator { tool } else { tool.for_everybody() });
    let lines: Vec<String> = tools.chain(troubled.filter_map(|tool| trouble_line(&tool))).collect();
    if lines.is_empty() { "There are no tools.".into() } else { lines.join("\n") }
}

/// The trouble of a subject, for a person; `None`: there is none.
pub fn trouble_line(tool: &ToolHealth) -> Option<String> {
    let ToolHealth { name, failures, runs, since, until, detail: why, .. } = tool;
    let (subject, since) = (subject(name), since.map(|since| since.to_rfc3339()).unwrap_or_default());
    let until = until.map(|until| until.to_rfc3339());
    Some(match (tool.state, until) {
        (ToolState::Ok, _) => return None,
        (ToolState::Failing, _) => {
            format!("{subject} is failing: {failures} times in a row, in {runs} runs, since {since}.")
        }
        (ToolState::Off, Some(until)) => {
            format!("{subject} has been disabled since {since}: {why}. It is tried again after {until}.")
        }
        (ToolState::Off, None) => {
            format!("{subject} has been disabled since {since}: {why}. /tools enable {name} enables it.")
        }
        (ToolState::Starting, _) => {
            format!("{subject} is still starting. Its tools are offered to runs that begin after that.")
        }
        (ToolState::NeedsLogin, _) => format!("{subject} {why}."),
        (ToolState::LeftOut, _) => format!("{subject} {why}. Its tools are not offered."),
        (ToolState::Trial, _) => {
            format!("{subject} was disabled ({why}); the next call tests whether it works again.")
        }
    })
}

fn subject(name: &str) -> String {
    match name.strip_prefix(SERVER_PREFIX) {
        Some(server) => format!("The MCP server {server}"),
        None => format!("The tool {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_the_usage_says() {
        let disable = |name: &str, why: &str| ToolsCommand::Disable { name: name.into(), detail: why.into() };
        for (argument, expected) in [
            (None, Some(ToolsCommand::List)),
            (Some("disable web_search it  lies"), Some(disable("web_search", "it  lies"))),
            (Some("DISABLE mcp:files down today"), Some(disable("mcp:files", "down today"))),
            (Some("disable web_search"), None),
            (Some("disable"), None),
            (Some("enable web_search"), Some(ToolsCommand::Enable("web_search".into()))),
            (Some("enable web_search now"), None),
            (Some("enable  "), None),
            (Some("web_search"), None),
        ] {
            assert_eq!(ToolsCommand::parse(argument), expected, "{argument:?}");
        }
    }
}
