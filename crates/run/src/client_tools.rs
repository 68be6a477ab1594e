//! The tools of a client within a run: their names, and the calls that the client carries out.
//!
//! Within the run each tool has a name of its own. If a tool of the client has the name of one of ours, ours keeps its
//! name within the run, in records and approval requests, and the client's gets another. The model sees it the other
//! way: the client's tool has the client's name, and ours gets another. [`ToolNames`] translates at the model call.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use belay_protocol::{
    ApprovalKind, CallChoice, CallRules, ClientCall, ClientTool, ClientTools, Message, MessageBody, SchemaForm, Tool,
    ToolCall, ToolSet, ToolSpec, ToolStatus,
};
use serde_json::Value;

use crate::approvals::Wanted;
use crate::effect_gate::Asking;
use crate::run_tool::DeclaredTool;

/// The name that one of our tools gets for the model begins so, if the client has a tool of its name.
const OURS: &str = "belay_";
/// The name that a tool of the client gets within the run begins so, if one of ours has its name.
const CLIENTS: &str = "client_";

/// Longest name of a tool for a model, in bytes. Source: OpenAI, function names.
const NAME_MAX_BYTES: usize = 64;

/// The tools of the client of a run.
#[derive(Debug)]
pub struct ClientSide {
    offered: Arc<ClientTools>,
    /// The choice of the client, with the name for the model.
    choice: CallChoice,
    /// The names of the tools.
    pub(crate) names: ToolNames,
    /// Whether the model has replied since the client's request.
    pub(crate) has_replied: bool,
}

/// The names of tools within the run and for the model. Empty maps: no tools of the same name.
#[derive(Debug, Default)]
pub(crate) struct ToolNames {
    /// The client's name of each of its tools, by the name within the run.
    of_client: HashMap<String, String>,
    /// The name for the model, by the name within the run, where they differ.
    for_model: HashMap<String, String>,
    /// The name within the run, by the name for the model, where they differ.
    within: HashMap<String, String>,
}

impl ClientSide {
    /// The client's tools beside these of ours. `in_use`: the names of all our tools, also of those that the run does
    /// not have.
    pub fn new(offered: Arc<ClientTools>, in_use: &HashSet<&str>, has_replied: bool) -> Self {
        let mut names = ToolNames::default();
        let mut taken: HashSet<String> = in_use.iter().map(|name| (*name).to_owned()).collect();
        taken.extend(offered.tools.iter().map(|tool| tool.name.clone()));
        for ClientTool { name, .. } in &offered.tools {
            if name.len() > NAME_MAX_BYTES {
                let within = free_name("", &short_name(name), &mut taken);
                names.of_client.insert(within.clone(), name.clone());
                names.for_model.insert(name.clone(), within); // in messages that the client shows
                continue;
            }
            if !in_use.contains(name.as_str()) {
                names.of_client.insert(name.clone(), name.clone());
                continue;
            }
            let (within, ours) = (free_name(CLIENTS, name, &mut taken), free_name(OURS, name, &mut taken));
            names.of_client.insert(within.clone(), name.clone());
            names.rename(within, name.clone());
            names.rename(name.clone(), ours);
        }
        let choice = match &offered.choice {
            CallChoice::Tool(name) if name.len() > NAME_MAX_BYTES => {
                CallChoice::Tool(names.for_model.get(name).unwrap_or(name).clone())
            }
            choice => choice.clone(),
        };
        Self { offered, choice, names, has_replied }
    }

    /// The tools, with their names within the run. Only their declarations are used: the client carries the calls out.
    pub fn tools(&self) -> impl Iterator<Item = Arc<dyn Tool>> {
        let by_client: HashMap<&str, &str> =
            self.names.of_client.iter().map(|(within, name)| (name.as_str(), within.as_str())).collect();
        self.offered.tools.iter().filter_map(move |tool| {
            let within = *by_client.get(tool.name.as_str())?;
            Some(Arc::new(DeclaredTool::new(spec_of(tool, within), "only the client can carry this out"))
                as Arc<dyn Tool>)
        })
    }

    /// The rules for the next reply; `None`: the model is free.
    pub(crate) fn rules(&self) -> Option<CallRules<'_>> {
        let choice = match self.has_replied {
            true => &CallChoice::Auto,
            false => &self.choice,
        };
        let one_at_a_time = self.offered.one_at_a_time;
        (one_at_a_time || !choice.is_auto()).then_some(CallRules { choice, one_at_a_time })
    }

    /// Whether a tool of this name within the run is the client's.
    pub(crate) fn has(&self, within: &str) -> bool {
        self.names.of_client.contains_key(within)
    }

    /// The specification of such a tool, with the name of the client: the model reads it in the marks of its results.
    pub(crate) fn spec(&self, within: &str) -> Option<ToolSpec> {
        let name = self.names.of_client.get(within)?;
        let tool = self.offered.tools.iter().find(|tool| tool.name == *name)?;
        Some(spec_of(tool, name))
    }

    /// The request for the results of these calls.
    pub(crate) fn request(&self, calls: &[ToolCall]) -> Option<Asking> {
        let asked = match self.offered.one_at_a_time {
            true => calls.get(..1)?,
            false => calls,
        };
        let (first, rest) = calls.split_first()?;
        let of_client = |call: &ToolCall| ClientCall {
            id: call.id.clone(),
            name: self.names.of_client.get(&call.name).unwrap_or(&call.name).clone(),
            arguments: call.arguments.to_wire_object().to_string(),
        };
        let calls: Vec<ClientCall> = asked.iter().map(of_client).collect();
        let named: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
        let summary = format!("The client carries out: {}", named.join(", "));
        let wanted = Wanted::of(ApprovalKind::ClientCalls { calls, results: Vec::new() }, summary);
        Some(Asking { call: first.clone(), deferred: rest.to_vec(), wanted })
    }
}

impl ToolNames {
    fn rename(&mut self, within: String, for_model: String) {
        self.within.insert(for_model.clone(), within.clone());
        self.for_model.insert(within, for_model);
    }

    /// The tools with the names for the model; `None`: they have them already.
    pub(crate) fn renamed(&self, tools: &ToolSet) -> Option<ToolSet> {
        if self.for_model.is_empty() {
            return None;
        }
        let renamed = |tool: &Arc<dyn Tool>| match self.for_model.get(&tool.spec().name) {
            Some(name) => {
                let spec = ToolSpec { name: name.clone(), ..tool.spec().clone() };
                Arc::new(DeclaredTool::new(spec, "this is a declaration")) as Arc<dyn Tool>
            }
            None => tool.clone(),
        };
        Some(ToolSet::new(tools.iter().map(renamed).collect()))
    }

    /// The messages with the names for the model.
    pub(crate) fn shown<'a>(&self, mut messages: Cow<'a, [Arc<Message>]>) -> Cow<'a, [Arc<Message>]> {
        let differs = |name: &String| self.for_model.contains_key(name);
        let is_concerned = |message: &Message| match &message.body {
            MessageBody::Tool(result) => differs(&result.name),
            _ => message.tool_calls().iter().any(|call| differs(&call.name)),
        };
        if self.for_model.is_empty() || !messages.iter().any(|message| is_concerned(message)) {
            return messages;
        }
        for message in messages.to_mut().iter_mut().filter(|message| is_concerned(message)) {
            let message = Arc::make_mut(message);
            match &mut message.body {
                MessageBody::Tool(result) => self.show(&mut result.name),
                MessageBody::Assistant { tool_calls, .. } => {
                    tool_calls.iter_mut().for_each(|call| self.show(&mut call.name));
                }
                _ => {}
            }
            message.wire = Default::default();
        }
        messages
    }

    fn show(&self, name: &mut String) {
        if let Some(shown) = self.for_model.get(name) {
            name.clone_from(shown);
        }
    }

    /// Gives the tool of a call its name within the run.
    pub(crate) fn take_back(&self, call: &mut ToolCall) {
        if let Some(within) = self.within.get(&call.name) {
            call.name.clone_from(within);
        }
    }
}

fn spec_of(tool: &ClientTool, within: &str) -> ToolSpec {
    ToolSpec {
        schema_form: if tool.strict { SchemaForm::Strict } else { SchemaForm::Whole },
        // Its results are words of other programs, and of pages that they read.
        untrusted: true,
        ..ToolSpec::new(within, tool.description.clone(), tool.parameters.clone())
    }
}

/// The specification of a tool that the client does not offer any more.
pub(crate) fn gone_spec(within: &str) -> ToolSpec {
    ToolSpec { untrusted: true, ..ToolSpec::new(within, "", Value::Null) }
}

/// Whether the model has replied behind the newest results of the client in these messages of the run. `is_ours`: whether
/// a tool of this name is one of ours.
pub fn has_replied(own: &[Arc<Message>], is_ours: impl Fn(&str) -> bool) -> bool {
    let of_client = |message: &Arc<Message>| matches!(&message.body, MessageBody::Tool(result) if result.status == ToolStatus::Success && !is_ours(&result.name));
    let from = own.iter().rposition(of_client).map_or(0, |at| at + 1);
    own[from..].iter().any(|message| matches!(message.body, MessageBody::Assistant { .. }))
}

/// The name of a tool whose own one is too long: the same in each request, and with a digest of the whole name.
fn short_name(name: &str) -> String {
    let beginning: String = name.chars().take(40).collect();
    format!("{CLIENTS}{beginning}_{}", &blake3::hash(name.as_bytes()).to_hex()[..12])
}

/// A name that nothing else has, of at most 64 bytes.
fn free_name(beginning: &str, name: &str, taken: &mut HashSet<String>) -> String {
    let wanted: String = format!("{beginning}{name}").chars().take(60).collect();
    let mut free = wanted.clone();
    let mut number = 1;
    while !taken.insert(free.clone()) {
        number += 1;
        free = format!("{wanted}_{number}");
    }
    free
}

#[cfg(test)]
mod tests {
    use belay_protocol::{Arguments, ToolResult};
    use serde_json::json;

    use super::*;

    fn side(names: &[&str], choice: CallChoice, one_at_a_time: bool) -> ClientSide {
        let tool = |name: &&str| ClientTool {
            name: (*name).to_owned(),
            description: String::new(),
            parameters: json!({"type": "object"}).into(),
            strict: false,
        };
        let offered = ClientTools { tools: names.iter().map(tool).collect(), choice, one_at_a_time };
        ClientSide::new(Arc::new(offered), &HashSet::from(["fetch_url", "calculate"]), false)
    }

    fn call(id: &str, name: &str) -> ToolCall {
        ToolCall { id: id.into(), name: name.into(), arguments: Arguments::parse("{}") }
    }

    fn ours(names: &[&str]) -> Vec<Arc<dyn Tool>> {
        let tool = |name: &&str| Arc::new(DeclaredTool::new(ToolSpec::new(*name, "", json!({})), "")) as Arc<dyn Tool>;
        names.iter().map(tool).collect()
    }

    #[test]
    fn ours_keep_their_names_within_the_run_and_the_clients_keep_theirs_for_the_model() {
        let side = side(&["fetch_url", "client_fetch_url", "weather"], CallChoice::Auto, false);
        let within: Vec<String> = side.tools().map(|tool| tool.spec().name.clone()).collect();
        assert_eq!(within, ["client_fetch_url_2", "client_fetch_url", "weather"]);
        assert!(side.has("client_fetch_url_2") && side.has("weather") && !side.has("fetch_url"));
        let all = ToolSet::new(ours(&["fetch_url", "calculate"]).into_iter().chain(side.tools()).collect());
        let shown = side.names.renamed(&all).expect("a clash");
        let shown: Vec<&str> = shown.iter().map(|tool| tool.spec().name.as_str()).collect();
        assert_eq!(shown, ["belay_fetch_url", "calculate", "client_fetch_url", "fetch_url", "weather"]);
        for (said, within) in [
            ("fetch_url", "client_fetch_url_2"),
            ("belay_fetch_url", "fetch_url"),
            ("weather", "weather"),
            ("other", "other"),
        ] {
            let mut call = call("1", said);
            side.names.take_back(&mut call);
            assert_eq!(call.name, within);
            let result =
                ToolResult { call_id: "1".into(), name: within.into(), status: ToolStatus::Success, text: "".into() };
            let history = [Arc::new(Message::assistant_calls("", vec![call])), Arc::new(Message::tool(result))];
            let back = side.names.shown(Cow::Borrowed(&history));
            assert_eq!(back[0].tool_calls()[0].name, said);
            assert!(matches!(&back[1].body, MessageBody::Tool(result) if result.name == said));
        }
    }

    #[test]
    fn a_long_name_is_short_for_the_model_and_whole_for_the_client() {
        let (long, other) = ("x".repeat(128), format!("{}y", "x".repeat(127)));
        let taken = short_name(&other);
        let side = side(&[&long, &other, &taken], CallChoice::Tool(long.clone()), false);
        let within: Vec<String> = side.tools().map(|tool| tool.spec().name.clone()).collect();
        assert!(within[1] != taken && within[2] == taken, "{within:?}");
        assert!(within[0] != within[1] && within.iter().all(|name| name.len() <= NAME_MAX_BYTES), "{within:?}");
        let shown = side.names.renamed(&ToolSet::new(side.tools().collect())).expect("long names");
        let shown: HashSet<&String> = shown.iter().map(|tool| &tool.spec().name).collect();
        assert_eq!(shown, within.iter().collect());
        assert_eq!(side.rules().map(|rules| rules.choice.clone()), Some(CallChoice::Tool(within[0].clone())));
        // The history that the client shows has its name.
        let history = [Arc::new(Message::assistant_calls("", vec![call("1", &long)]))];
        assert_eq!(side.names.shown(Cow::Borrowed(&history))[0].tool_calls()[0].name, within[0]);
        let mut called = call("2", &within[1]);
        side.names.take_back(&mut called);
        let ApprovalKind::ClientCalls { calls, .. } = side.request(&[called]).expect("a call").wanted.kind else {
            panic!("another kind")
        };
        assert_eq!(calls[0].name, other);
    }

    #[test]
    fn without_a_clash_nothing_is_renamed() {
        let side = side(&["weather"], CallChoice::Auto, false);
        assert!(side.names.renamed(&ToolSet::new(side.tools().collect())).is_none());
        assert!(side.rules().is_none());
    }

    #[test]
    fn a_call_is_demanded_of_the_first_reply_alone() {
        let mut side = side(&["weather"], CallChoice::Required, true);
        assert_eq!(side.rules(), Some(CallRules { choice: &CallChoice::Required, one_at_a_time: true }));
        side.has_replied = true;
        assert_eq!(side.rules(), Some(CallRules { choice: &CallChoice::Auto, one_at_a_time: true }));
    }

    #[test]
    fn a_client_gets_all_its_calls_or_one_at_a_time() {
        for (one_at_a_time, expected) in [(false, 2), (true, 1)] {
            let side = side(&["weather", "fetch_url"], CallChoice::Auto, one_at_a_time);
            let clients = vec![call("1", "client_fetch_url"), call("3", "weather")];
            let asking = side.request(&clients).expect("calls");
            let ApprovalKind::ClientCalls { calls, .. } = asking.wanted.kind else { panic!("another kind") };
            assert_eq!((calls.len(), calls[0].name.as_str()), (expected, "fetch_url"));
        }
    }

    #[test]
    fn the_model_has_replied_if_its_words_are_behind_the_newest_results_of_the_client() {
        let result = |name: &str, status| {
            Message::tool(ToolResult { call_id: "1".into(), name: name.into(), status, text: String::new() })
        };
        let calls = || Message::assistant_calls("", vec![call("1", "weather")]);
        let (good, failed) = (ToolStatus::Success, ToolStatus::NotExecuted);
        for (own, expected) in [
            (vec![Message::user("hi")], false),
            (vec![Message::user("hi"), calls()], true),
            (vec![Message::user("hi"), calls(), result("weather", good)], false),
            (vec![Message::user("hi"), calls(), result("weather", good), calls()], true),
            (vec![Message::user("hi"), calls(), result("calculate", good)], true),
            (vec![Message::user("hi"), calls(), result("nothing", failed)], true),
        ] {
            let own: Vec<_> = own.into_iter().map(Arc::new).collect();
            assert_eq!(has_replied(&own, |name| name == "calculate"), expected, "{own:?}");
        }
    }
}
