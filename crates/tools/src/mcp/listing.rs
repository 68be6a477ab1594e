//! Reads one page of a server's tool list. A malformed tool does not invalidate the list.

use rmcp::Peer;
use rmcp::model::{ClientRequest, Cursor, CustomResult, ListToolsRequest, PaginatedRequestParams, ServerResult, Tool};
use rmcp::service::{RoleClient, ServiceError};
use serde_json::Value;

use crate::mcp::offer::{LeftOut, MAX_TOOL_NAME};
use crate::mcp::untrusted::line;

/// Longest description of a tool's problem, in bytes.
const MAX_WHY: usize = 200;

/// A listed tool, or its problem.
pub(super) type Listed = Result<Tool, LeftOut>;

/// One page of the list.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) tools: Vec<Listed>,
    /// Cursor of the next page.
    pub(super) next: Option<Cursor>,
}

impl Page {
    /// Requests a page. The SDK refuses a list with a malformed tool. Such a list is requested again and parsed tool by
    /// tool.
    ///
    /// # Errors
    /// The errors of the SDK; [`ServiceError::UnexpectedResponse`] if the answer is no list of tools.
    pub(super) async fn ask(
        peer: &Peer<RoleClient>,
        asked: Option<PaginatedRequestParams>,
    ) -> Result<Self, ServiceError> {
        match peer.list_tools(asked.clone()).await {
            Ok(page) => Ok(Self { tools: page.tools.into_iter().map(Ok).collect(), next: page.next_cursor }),
            Err(ServiceError::UnexpectedResponse) => {
                let request = ListToolsRequest { params: asked, ..ListToolsRequest::default() };
                let answer = peer.send_request(ClientRequest::ListToolsRequest(request)).await?;
                let ServerResult::CustomResult(CustomResult(value)) = answer else {
                    return Err(ServiceError::UnexpectedResponse);
                };
                Self::read(&value).ok_or(ServiceError::UnexpectedResponse)
            }
            Err(error) => Err(error),
        }
    }

    /// Parses a list tool by tool; `None`: it is not a list.
    fn read(value: &Value) -> Option<Self> {
        let tools = value.get("tools")?.as_array()?.iter().enumerate().map(|(at, tool)| listed(at, tool)).collect();
        let next = value.get("nextCursor").and_then(|cursor| serde_json::from_value(cursor.clone()).ok());
        Some(Self { tools, next })
    }
}

fn listed(at: usize, tool: &Value) -> Listed {
    serde_json::from_value(tool.clone()).map_err(|error| {
        let name = tool.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let tool = name.map_or_else(|| format!("number {}", at + 1), |name| line(name, MAX_TOOL_NAME));
        LeftOut {
            tool,
            why: format!("the server describes it in a malformed way: {}", line(&error.to_string(), MAX_WHY)),
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn a_malformed_tool_is_left_out_by_name_and_the_others_are_read() {
        let page = Page::read(&json!({
            "tools": [
                { "name": "good", "inputSchema": { "type": "object" } },
                { "name": "no\u{200b} schema" },
                { "inputSchema": { "type": "object" } },
                "a word",
            ],
            "nextCursor": "2",
        }))
        .unwrap();
        let found: Vec<_> = page
            .tools
            .iter()
            .map(|tool| tool.as_ref().map(|tool| tool.name.to_string()).map_err(|left_out| left_out.tool.clone()))
            .collect();
        let left_out = |name: &str| Err(name.to_owned());
        assert_eq!(found, [Ok("good".to_owned()), left_out("no schema"), left_out("number 3"), left_out("number 4")]);
        let why = &page.tools[1].as_ref().unwrap_err().why;
        assert!(why.starts_with("the server describes it in a malformed way: missing field"), "{why}");
        assert!(page.next.is_some());
        for other in [json!({}), json!({ "tools": {} }), json!([]), Value::Null] {
            assert!(Page::read(&other).is_none(), "{other}");
        }
    }
}
