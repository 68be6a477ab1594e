//! Tools of a client: a program offers tools of its own to the model of its run, and carries their calls out itself.
//!
//! Nothing here knows an API. A face of the gateway makes [`ClientTools`] of its request, shows the [`ClientCall`]s of a
//! paused run to its client, and passes the [`ClientResult`]s on (ADR 0041).

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::{ApprovalId, CallId};
use crate::tool_schema::ToolSchema;

/// The maximum number of tools of one client. 512: front ends send some dozens, and every request of the run has them all.
pub const CLIENT_TOOLS_MAX: usize = 512;

/// The maximum length of all names, descriptions and schemas together, in bytes. 512 KiB: about 130 000 tokens, more than
/// most models read.
pub const CLIENT_TOOLS_MAX_BYTES: usize = 512 * 1024;

/// The maximum length of a name, in bytes. 128: Anthropic takes names of that length, and OpenAI of half. Source: the pattern
/// `^[a-zA-Z0-9_-]{1,128}$` in the error of Anthropic's API, as in issue 1345 of modelcontextprotocol/modelcontextprotocol.
pub const CLIENT_TOOL_NAME_MAX_BYTES: usize = 128;

/// The tools of a client, and how the model may call them. Stored with the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientTools {
    /// The tools, in the order of the client.
    pub tools: Vec<ClientTool>,
    /// Whether the model has to call a tool in its next reply.
    #[serde(default, skip_serializing_if = "CallChoice::is_auto")]
    pub choice: CallChoice,
    /// Whether the client gets one call at a time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_at_a_time: bool,
}

/// A tool of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientTool {
    /// Its name, as the client and the model know it.
    pub name: String,
    /// Its description for the model.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: ToolSchema,
    /// Whether the provider is to hold the arguments to the schema.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
}

/// Whether the model has to call a tool in its next reply. A client that wants no call offers no tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallChoice {
    /// As it likes.
    #[default]
    Auto,
    /// It has to call some tool.
    Required,
    /// It has to call this one.
    Tool(String),
}

impl CallChoice {
    /// Whether the model is free.
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

/// The rules for the calls of one reply, as a provider gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRules<'a> {
    /// Whether the model has to call a tool.
    pub choice: &'a CallChoice,
    /// Whether it may call one tool at most.
    pub one_at_a_time: bool,
}

/// A call that a client has to carry out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientCall {
    /// The call in the context of the run.
    pub id: CallId,
    /// The tool, by the client's name.
    pub name: String,
    /// The arguments, as the text of a JSON object.
    pub arguments: String,
}

/// The result that a client gives for a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientResult {
    /// The call in the context of the run.
    pub call: CallId,
    /// The result, for the model.
    pub text: String,
    /// The user's words beside the results; the last result has it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub said: String,
    /// The tokens of the run before the results; the last result has them. `None`: they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<UsedTokens>,
}

/// Tokens that a run has used up to a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedTokens {
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
}

impl ClientResult {
    /// The result of this call, alone.
    pub fn of(call: CallId, text: impl Into<String>) -> Self {
        Self { call, text: text.into(), said: String::new(), used: None }
    }
}

/// The answer of a client to the calls of a paused run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientAnswer {
    /// One result for each call.
    pub results: Vec<ClientResult>,
    /// The tools of the client from now on; `None`: it offers none any more.
    pub tools: Option<Arc<ClientTools>>,
    /// What the client wants to read again beside the answer to this request; empty: nothing. `None`: it cannot be read
    /// again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Map<String, Value>>,
}

/// What a client wants to read again beside the answers of its run, up to the next note. Stored with the run; nothing else
/// of Belay reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientNote {
    /// The request whose results the first of these answers begins after; `None`: it begins with the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ApprovalId>,
    /// The fields of the client's request, as they were sent.
    pub fields: Map<String, Value>,
}

/// The id of a call for its client. It names the stored request and the place in its list, so that a result is found by
/// it alone, also after a restart.
pub fn client_call_id(request: ApprovalId, at: usize) -> String {
    format!("call_{}_{at}", request.as_uuid().simple())
}

/// The request and the place of a call with this id of a client; `None`: it is not one of ours.
pub fn parse_client_call_id(id: &str) -> Option<(ApprovalId, usize)> {
    let (request, at) = id.strip_prefix("call_")?.split_once('_')?;
    match request.len() {
        32 => Some((request.parse().ok()?, at.parse().ok()?)),
        _ => None, // another form of a UUID
    }
}

/// A list of tools that cannot be used: the place in it, the field, and the reason as the end of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientToolProblem {
    /// The place of the tool; `None`: the whole list.
    pub at: Option<usize>,
    /// The field of the tool; empty: the list.
    pub field: &'static str,
    /// The reason.
    pub why: String,
}

impl ClientTool {
    /// The length of its texts in bytes.
    pub fn bytes(&self) -> usize {
        self.name.len() + self.description.len() + self.parameters.text().get().len()
    }
}

impl ClientTools {
    /// The length of all texts in bytes.
    pub fn bytes(&self) -> usize {
        self.tools.iter().map(ClientTool::bytes).sum()
    }

    /// Checks the list against the limits.
    ///
    /// # Errors
    /// The first problem.
    pub fn check(&self) -> Result<(), ClientToolProblem> {
        let whole = |why: String| ClientToolProblem { at: None, field: "", why };
        if self.tools.len() > CLIENT_TOOLS_MAX {
            return Err(whole(format!("at most {CLIENT_TOOLS_MAX} tools are accepted, not {}", self.tools.len())));
        }
        let mut names = HashSet::new();
        for (at, tool) in self.tools.iter().enumerate() {
            let problem = |field, why: String| ClientToolProblem { at: Some(at), field, why };
            let name = &tool.name;
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            if name.is_empty() || name.len() > CLIENT_TOOL_NAME_MAX_BYTES || !name.chars().all(fits) {
                let shown: String = name.chars().take(CLIENT_TOOL_NAME_MAX_BYTES).collect();
                let why = format!(
                    "the name {shown:?} must have 1 to {CLIENT_TOOL_NAME_MAX_BYTES} letters, digits, _ or -, and has {} bytes",
                    name.len()
                );
                return Err(problem("name", why));
            }
            if !names.insert(name.as_str()) {
                return Err(problem("name", format!("the name {name:?} is used twice")));
            }
            if !tool.parameters.is_object() {
                return Err(problem(
                    "parameters",
                    format!("the parameters of {name:?} must be a JSON Schema of an object"),
                ));
            }
        }
        let bytes = self.bytes();
        if bytes > CLIENT_TOOLS_MAX_BYTES {
            let why = format!(
                "names, descriptions and schemas have {bytes} bytes; at most {CLIENT_TOOLS_MAX_BYTES} are accepted"
            );
            return Err(whole(why));
        }
        match &self.choice {
            CallChoice::Tool(name) if !names.contains(name.as_str()) => {
                Err(ClientToolProblem { at: None, field: "choice", why: format!("there is no tool {name:?}") })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str) -> ClientTool {
        ClientTool {
            name: name.into(),
            description: "x".into(),
            parameters: json!({"type": "object"}).into(),
            strict: false,
        }
    }

    fn tools(tools: Vec<ClientTool>) -> ClientTools {
        ClientTools { tools, choice: CallChoice::Auto, one_at_a_time: false }
    }

    #[test]
    fn an_id_of_a_client_names_its_request_and_place() {
        let request = ApprovalId::new();
        for at in [0, 7, 99] {
            let id = client_call_id(request, at);
            assert!(id.len() <= 40, "{id}: providers accept 40 bytes");
            assert_eq!(parse_client_call_id(&id), Some((request, at)));
        }
        let plain = request.as_uuid().simple();
        for other in [
            "",
            "call_",
            "call_1_0",
            "call_abc",
            &format!("call_{plain}"),
            &format!("call_{plain}_x"),
            &request.to_string(),
        ] {
            assert_eq!(parse_client_call_id(other), None, "{other}");
        }
    }

    #[test]
    fn a_list_beyond_the_limits_is_refused_by_tool_and_field() {
        let found = |list: ClientTools| list.check().err().map(|problem| (problem.at, problem.field));
        assert_eq!(found(tools((0..CLIENT_TOOLS_MAX).map(|n| tool(&format!("t{n}"))).collect())), None);
        assert_eq!(found(tools((0..=CLIENT_TOOLS_MAX).map(|n| tool(&format!("t{n}"))).collect())), Some((None, "")));
        for name in ["", "a b", "ä", &"x".repeat(200)] {
            assert_eq!(found(tools(vec![tool("fine"), tool(name)])), Some((Some(1), "name")), "{name}");
        }
        assert_eq!(found(tools(vec![tool("a"), tool("a")])), Some((Some(1), "name")));
        let list = ClientTool { parameters: json!([]).into(), ..tool("a") };
        assert_eq!(found(tools(vec![list])), Some((Some(0), "parameters")));
        let large = ClientTool { parameters: json!({"x": "y".repeat(CLIENT_TOOLS_MAX_BYTES)}).into(), ..tool("a") };
        assert_eq!(found(tools(vec![large])), Some((None, "")));
        let choice = |name: &str| ClientTools { choice: CallChoice::Tool(name.into()), ..tools(vec![tool("a")]) };
        assert_eq!((found(choice("a")), found(choice("b"))), (None, Some((None, "choice"))));
    }
}
