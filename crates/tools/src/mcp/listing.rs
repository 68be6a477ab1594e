//! Reads a server's tool list, page by page. A malformed tool does not invalidate the list, and a list without an end
//! is ended.

use std::collections::HashSet;
use std::time::Duration;

use rmcp::Peer;
use rmcp::model::{ClientRequest, CustomResult, ListToolsRequest, PaginatedRequestParams, ServerResult, Tool};
use rmcp::service::{RoleClient, ServiceError};
use serde_json::{Map, Value, json};

use crate::mcp::incoming::TOOLS;
use crate::mcp::offer::{LeftOut, MAX_TOOL_NAME};
use crate::mcp::tasks::TaskSupport;
use crate::mcp::untrusted::line;

/// Most tools of a server. 128: models do not choose well among more, and each tool uses tokens in every request.
const MAX_TOOLS: usize = 128;

/// Most pages of a tool list.
const MAX_PAGES: usize = 32;

/// Longest description of a problem, in bytes.
const MAX_WHY: usize = 200;

/// A listed tool, or its problem.
pub(super) type Listed = Result<ListedTool, LeftOut>;

/// A tool of a list.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ListedTool {
    pub(super) tool: Tool,
    /// Whether it can be called as a task in a revision in which the client decides that.
    pub(super) tasks: TaskSupport,
}

/// How a server reads lists, and what of them counts.
#[derive(Clone, Copy)]
pub(super) struct Dialect {
    /// Whether an empty cursor is a cursor, and any call may become a task, as the server likes.
    pub(super) is_new: bool,
    /// Whether the server of an older revision runs calls as tasks.
    pub(super) has_tasks: bool,
}

/// Lists all tools of a server, in its order. If the list has no end, or breaks off, the last entry says so. Also returns
/// how long the server lets the list count; `None`: it does not say, or not at all.
///
/// # Errors
/// The errors of the SDK; [`ServiceError::UnexpectedResponse`] if the first answer is no list of tools.
pub(super) async fn all(
    peer: &Peer<RoleClient>,
    dialect: Dialect,
) -> Result<(Vec<Listed>, Option<Duration>), ServiceError> {
    let (mut tools, mut seen, mut cursor, mut ttl) = (Vec::<Listed>::new(), HashSet::new(), None, None::<Duration>);
    for number in 1.. {
        let page = match Page::ask(peer, cursor.take(), dialect).await {
            Ok(page) => page,
            // The server does not understand its own cursor.
            Err(ServiceError::McpError(error)) if number > 1 => {
                return Ok((
                    ended(tools, &format!("page {number} is an error: {}", line(&error.message, MAX_WHY))),
                    ttl,
                ));
            }
            Err(error) => return Err(error),
        };
        ttl = page.ttl.map_or(ttl, |of_page| Some(ttl.map_or(of_page, |ttl| ttl.min(of_page))));
        // A server that ignores the cursor sends its first page again.
        let new: Vec<_> = page.tools.into_iter().filter(|tool| !tools.contains(tool)).collect();
        let has_new = !new.is_empty();
        tools.extend(new);
        if tools.len() > MAX_TOOLS {
            tools.truncate(MAX_TOOLS);
            return Ok((ended(tools, &format!("it has more than {MAX_TOOLS} tools")), ttl));
        }
        match page.next {
            None => return Ok((tools, ttl)),
            // A server that means the end by an empty cursor sends its first page again.
            Some(next) if next.is_empty() && !has_new => return Ok((tools, ttl)),
            Some(next) if !seen.insert(next.clone()) => {
                return Ok((ended(tools, &format!("its cursor repeats on page {number}")), ttl));
            }
            Some(_) if number == MAX_PAGES => {
                return Ok((ended(tools, &format!("it has more than {MAX_PAGES} pages")), ttl));
            }
            next => cursor = next,
        }
    }
    Ok((tools, ttl))
}

fn ended(mut tools: Vec<Listed>, why: &str) -> Vec<Listed> {
    let why = format!("the list of the server was ended: {why}");
    tools.push(Err(LeftOut { tool: "(more tools)".into(), why }));
    tools
}

/// One page of the list.
#[derive(Debug)]
struct Page {
    tools: Vec<Listed>,
    /// Cursor of the next page.
    next: Option<String>,
    ttl: Option<Duration>,
}

impl Page {
    async fn ask(peer: &Peer<RoleClient>, cursor: Option<String>, dialect: Dialect) -> Result<Self, ServiceError> {
        let params = cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
        let request = ListToolsRequest { params, ..ListToolsRequest::default() };
        match peer.send_request(ClientRequest::ListToolsRequest(request)).await? {
            ServerResult::CustomResult(CustomResult(value)) => {
                Self::read(&value, dialect).ok_or(ServiceError::UnexpectedResponse)
            }
            // An answer that did not come through [`crate::mcp::incoming`].
            ServerResult::ListToolsResult(page) => {
                let listed = |tool| Ok(ListedTool { tool, tasks: TaskSupport::Never });
                Ok(Self { tools: page.tools.into_iter().map(listed).collect(), next: page.next_cursor, ttl: None })
            }
            _ => Err(ServiceError::UnexpectedResponse),
        }
    }

    /// Parses a list tool by tool; `None`: it is not a list.
    fn read(value: &Value, dialect: Dialect) -> Option<Self> {
        let tools = value.get(TOOLS).or_else(|| value.get("tools"))?.as_array()?;
        let tools = tools.iter().enumerate().map(|(at, tool)| listed(at, tool, dialect)).collect();
        let next = match value.get("nextCursor") {
            None | Some(Value::Null) => None,
            Some(Value::String(cursor)) => Some(cursor.clone()).filter(|cursor| dialect.is_new || !cursor.is_empty()),
            Some(other) => Some(other.to_string()),
        };
        // Without a duration each listing would be stale at once. A connection reads the list at its first call anyway.
        let ttl = value["ttlMs"].as_u64().filter(|ttl| *ttl > 0).map(Duration::from_millis);
        Some(Self { tools, next, ttl })
    }
}

fn listed(at: usize, tool: &Value, dialect: Dialect) -> Listed {
    let name = tool.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    let left_out = |why: String| {
        let tool = name.map_or_else(|| format!("number {}", at + 1), |name| line(name, MAX_TOOL_NAME));
        Err(LeftOut { tool, why })
    };
    let tasks = TaskSupport::of(tool);
    if tasks == TaskSupport::Required && !dialect.is_new && !dialect.has_tasks {
        let why = "it works only as a task (taskSupport: required), and the server does not say that it has tasks";
        return left_out(why.into());
    }
    match serde_json::from_value(tool.clone()).or_else(|error| serde_json::from_value(needed(tool)).map_err(|_| error))
    {
        Ok(tool) => Ok(ListedTool { tool, tasks }),
        Err(error) => {
            left_out(format!("the server describes it in a malformed way: {}", line(&error.to_string(), MAX_WHY)))
        }
    }
}

/// The parts of a tool that Belay uses, without those that are of a wrong type.
fn needed(tool: &Value) -> Value {
    let mut needed = json!({ "name": tool["name"], "inputSchema": tool["inputSchema"] });
    if let Some(description) = tool["description"].as_str() {
        needed["description"] = description.into();
    }
    if let Some(hints) = tool["annotations"].as_object() {
        let usable =
            |(key, value): &(&String, &Value)| if *key == "title" { value.is_string() } else { value.is_boolean() };
        let hints: Map<_, _> = hints.iter().filter(usable).map(|(key, value)| (key.clone(), value.clone())).collect();
        needed["annotations"] = hints.into();
    }
    needed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    const OLD: Dialect = Dialect { is_new: false, has_tasks: false };

    #[test]
    fn a_malformed_tool_is_left_out_by_name_and_the_others_are_read() {
        let page = Page::read(
            &json!({
                "tools": [
                    { "name": "good", "inputSchema": { "type": "object" } },
                    { "name": "no\u{200b} schema" },
                    { "inputSchema": { "type": "object" } },
                    "a word",
                ],
                "nextCursor": "2",
            }),
            OLD,
        )
        .unwrap();
        let found: Vec<_> = page
            .tools
            .iter()
            .map(|tool| {
                tool.as_ref().map(|listed| listed.tool.name.to_string()).map_err(|left_out| left_out.tool.clone())
            })
            .collect();
        let left_out = |name: &str| Err(name.to_owned());
        assert_eq!(found, [Ok("good".to_owned()), left_out("no schema"), left_out("number 3"), left_out("number 4")]);
        let why = &page.tools[1].as_ref().unwrap_err().why;
        assert!(why.starts_with("the server describes it in a malformed way: missing field"), "{why}");
        assert!(page.next.is_some());
        for other in [json!({}), json!({ "tools": {} }), json!([]), Value::Null] {
            assert!(Page::read(&other, OLD).is_none(), "{other}");
        }
    }

    #[test]
    fn hints_of_a_right_type_count_beside_one_of_a_wrong_type() {
        let tool = json!({
            "name": "t", "inputSchema": { "type": "object" }, "icons": 1,
            "annotations": { "readOnlyHint": true, "idempotentHint": "yes", "title": 7 },
        });
        let hints = listed(0, &tool, OLD).unwrap().tool.annotations.unwrap();
        assert_eq!((hints.read_only_hint, hints.idempotent_hint, hints.title), (Some(true), None, None));
    }
}
