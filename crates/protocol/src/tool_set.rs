//! The tools of a run, and which of them a request offers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::Value;

use crate::ids::{RunId, SessionKey};
use crate::message::{Arguments, Message, MessageBody, ToolCall, WireCache};
use crate::tool::{Tool, ToolSpec};

/// The tool with which a model brings in deferred tools: its argument `names` is a list of their names.
pub const FIND_TOOLS: &str = "find_tools";
/// The tool that reads the rest of a result that was cut. Such a result names it.
pub const READ_OUTPUT: &str = "read_output";
/// Tools of MCP servers that are offered at once. If there are more, all of them are deferred.
const FOREIGN_MAX: usize = 12;
/// Selections that are kept. They are few: most sessions bring in nothing.
const KEPT_MAX: usize = 64;

/// The tools of a run: its allow-list, in a fixed order, serialised once.
///
/// Providers and local servers cache the beginning of a request. So what seldom changes comes first: our tools by name,
/// then those of MCP servers by name; and in a request behind them, in the order in which the conversation brought them
/// in, the deferred ones, then those on demand.
#[derive(Default)]
pub struct ToolSet {
    /// In the order of requests.
    tools: Vec<Arc<dyn Tool>>,
    /// The places in `tools`, ordered by name.
    by_name: Vec<usize>,
    /// The serialised list of schemas.
    pub wire: WireCache,
    described_bytes: OnceLock<usize>,
    many_foreign: OnceLock<bool>,
    /// The selections that requests have offered, as places in `tools`, so that each is serialised once.
    offers: Mutex<BTreeMap<Vec<usize>, Arc<ToolSet>>>,
}

/// The moment of a request, as far as the offered tools depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The session of the run.
    pub session: &'a SessionKey,
    /// The run.
    pub run: RunId,
    /// The conversation so far.
    pub messages: &'a [Arc<Message>],
}

impl ToolSet {
    /// A set of these tools, in an order that is the same after every restart. Of two tools with the same name the
    /// first one stays.
    pub fn new(mut tools: Vec<Arc<dyn Tool>>) -> Self {
        tools.sort_by(|a, b| a.spec().name.cmp(&b.spec().name));
        tools.dedup_by(|later, first| later.spec().name == first.spec().name);
        tools.sort_by_key(|tool| tool.spec().foreign); // stable: by name within both
        Self::in_order(tools)
    }

    /// A set of these tools, whose names differ, in this order.
    fn in_order(tools: Vec<Arc<dyn Tool>>) -> Self {
        let mut by_name: Vec<usize> = (0..tools.len()).collect();
        by_name.sort_by(|a, b| tools[*a].spec().name.cmp(&tools[*b].spec().name));
        Self { tools, by_name, ..Self::default() }
    }

    /// The set with some of its tools changed or left out, in the same order. Their names stay. Its tools of servers stay
    /// deferred if they were.
    pub fn changed(&self, change: impl Fn(&Arc<dyn Tool>) -> Option<Arc<dyn Tool>>) -> Self {
        let many_foreign = self.has_many_foreign().into();
        Self { many_foreign, ..Self::in_order(self.tools.iter().filter_map(change).collect()) }
    }

    /// The tools that a request offers at this moment; `None`: all.
    ///
    /// A tool on demand is offered while it is of use. In a set with [`FIND_TOOLS`], a deferred tool is offered once
    /// the conversation has named it in a call of that tool, or has called it; [`READ_OUTPUT`] also once a result was
    /// cut. The same conversation has the same offer after a restart and at another node. If the conversation is
    /// compacted, the model may have to name the tool again.
    pub fn offered(&self, moment: Moment<'_>) -> Option<Arc<Self>> {
        let selection = self.selection(moment);
        if selection.iter().copied().eq(0..self.tools.len()) {
            return None;
        }
        let mut offers = self.offers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = offers.get(&selection) {
            return Some(known.clone());
        }
        let offer = Arc::new(Self::in_order(selection.iter().map(|at| self.tools[*at].clone()).collect()));
        if offers.len() >= KEPT_MAX {
            offers.clear();
        }
        offers.insert(selection, offer.clone());
        Some(offer)
    }

    /// The places of the offered tools, in the order of the request.
    fn selection(&self, moment: Moment<'_>) -> Vec<usize> {
        let can_find = self.get(FIND_TOOLS).is_some();
        let (mut selection, mut on_demand) = (Vec::with_capacity(self.tools.len()), Vec::new());
        let mut waiting = false;
        for (at, tool) in self.tools.iter().enumerate() {
            match tool.on_demand(moment.session, moment.run) {
                Some(true) => on_demand.push(at),
                Some(false) => {}
                None if can_find && self.is_deferred(tool.spec()) => waiting = true,
                None => selection.push(at),
            }
        }
        if waiting {
            self.bring_in(moment.messages, &mut selection);
        }
        selection.extend(on_demand);
        selection
    }

    /// Adds the deferred tools that these messages have brought in, in the order in which they did.
    fn bring_in(&self, messages: &[Arc<Message>], selection: &mut Vec<usize>) {
        let mut bring_in = |name: &str| {
            if let Some(at) = self.place(name).filter(|at| self.is_deferred(self.tools[*at].spec()))
                && !selection.contains(&at)
            {
                selection.push(at);
            }
        };
        for message in messages {
            match &message.body {
                MessageBody::Assistant { tool_calls, .. } => {
                    tool_calls.iter().flat_map(names_in).for_each(&mut bring_in);
                }
                MessageBody::Tool(result) if result.text.contains(READ_OUTPUT) => bring_in(READ_OUTPUT),
                _ => {}
            }
        }
    }

    /// The tools of the set that requests offer only once the model has named them, if the set has [`FIND_TOOLS`].
    pub fn deferred(&self) -> impl Iterator<Item = &ToolSpec> {
        self.iter().map(|tool| tool.spec()).filter(|spec| self.is_deferred(spec))
    }

    fn is_deferred(&self, spec: &ToolSpec) -> bool {
        spec.deferred || spec.foreign && self.has_many_foreign()
    }

    fn has_many_foreign(&self) -> bool {
        let many = || self.tools.iter().filter(|tool| tool.spec().foreign).nth(FOREIGN_MAX).is_some();
        *self.many_foreign.get_or_init(many)
    }

    /// The tool with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.place(name).map(|at| &self.tools[at])
    }

    fn place(&self, name: &str) -> Option<usize> {
        let found = self.by_name.binary_search_by(|at| self.tools[*at].spec().name.as_str().cmp(name));
        found.ok().map(|at| self.by_name[at])
    }

    /// All tools, in the order of requests.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.tools.iter()
    }

    /// The length of all descriptions and schemas in bytes, for estimates of requests. Computed once.
    pub fn described_bytes(&self) -> usize {
        let of = |tool: &Arc<dyn Tool>| tool.spec().description.len() + tool.spec().shown_schema().get().len();
        *self.described_bytes.get_or_init(|| self.tools.iter().map(of).sum())
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }
}

impl fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tools.iter().map(|tool| &tool.spec().name)).finish()
    }
}

/// The tools that a call brings in: those that a call of [`FIND_TOOLS`] names, else the called one.
fn names_in(call: &ToolCall) -> impl Iterator<Item = &str> {
    let named = match &call.arguments {
        Arguments::Object(arguments) if call.name == FIND_TOOLS => arguments.get("names").and_then(Value::as_array),
        _ => None,
    };
    named.into_iter().flatten().filter_map(Value::as_str).chain(std::iter::once(&*call.name))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use serde_json::{Map, json};

    use super::*;
    use crate::ids::CallId;
    use crate::message::{ToolResult, ToolStatus};
    use crate::tool::{ToolContext, ToolOutput};

    struct Plain(ToolSpec);

    #[async_trait]
    impl Tool for Plain {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        fn on_demand(&self, _session: &SessionKey, _run: RunId) -> Option<bool> {
            (self.0.name == "process").then_some(false)
        }

        async fn call(&self, _arguments: &Map<String, Value>, _context: &ToolContext) -> ToolOutput {
            Ok(String::new().into())
        }
    }

    fn spec(name: &str) -> ToolSpec {
        ToolSpec::new(name, "", json!({}))
    }

    fn set(specs: impl IntoIterator<Item = ToolSpec>) -> ToolSet {
        ToolSet::new(specs.into_iter().map(|spec| Arc::new(Plain(spec)) as Arc<dyn Tool>).collect())
    }

    fn deferred(name: &str) -> ToolSpec {
        ToolSpec { deferred: true, ..spec(name) }
    }

    fn called(name: &str, arguments: Value) -> Arc<Message> {
        let Value::Object(arguments) = arguments else { panic!("{arguments}") };
        let call = ToolCall { id: CallId::new("c1"), name: name.into(), arguments: Arguments::Object(arguments) };
        Arc::new(Message::assistant_calls("", vec![call]))
    }

    /// The names that a request behind these messages offers.
    fn names(tools: &ToolSet, messages: &[Arc<Message>]) -> Vec<String> {
        let moment = Moment { session: &SessionKey::new("s"), run: RunId::new(), messages };
        let offered = tools.offered(moment);
        offered.as_deref().unwrap_or(tools).iter().map(|tool| tool.spec().name.clone()).collect()
    }

    #[test]
    fn a_deferred_tool_is_offered_once_the_conversation_has_named_or_called_it() {
        let tools = set([spec("a"), spec(FIND_TOOLS), deferred("b"), deferred("c"), deferred("d"), spec("process")]);
        let begin = ["a", FIND_TOOLS];
        assert_eq!(names(&tools, &[]), begin);
        let named = called(FIND_TOOLS, json!({ "names": ["c", "nothing", 7] }));
        assert_eq!(names(&tools, std::slice::from_ref(&named)), ["a", FIND_TOOLS, "c"]);
        let odd = [called(FIND_TOOLS, json!({ "names": "c" })), called(FIND_TOOLS, json!({ "query": "c" }))];
        assert_eq!(names(&tools, &odd), begin);
        let later = [named, called("b", json!({})), called("c", json!({}))];
        assert_eq!(names(&tools, &later), ["a", FIND_TOOLS, "c", "b"], "in the order of the conversation");
    }

    #[test]
    fn a_result_that_was_cut_brings_in_the_tool_that_reads_the_rest() {
        let tools = set([spec(FIND_TOOLS), deferred(READ_OUTPUT), deferred("b")]);
        let result = |text: &str| {
            let (call_id, name) = (CallId::new("c1"), "a".to_owned());
            Arc::new(Message::tool(ToolResult { call_id, name, status: ToolStatus::Success, text: text.into() }))
        };
        assert_eq!(names(&tools, &[result("whole")]), [FIND_TOOLS]);
        assert_eq!(names(&tools, &[result("…[cut; read_output has the rest]…")]), [FIND_TOOLS, READ_OUTPUT]);
    }

    #[test]
    fn tools_that_change_stand_behind_those_that_stay() {
        let foreign = |name: &str| ToolSpec { foreign: true, ..spec(name) };
        let tools = set([foreign("a"), spec("c"), foreign("b"), spec("d"), deferred("e"), spec(FIND_TOOLS)]);
        assert_eq!(names(&tools, &[called("e", json!({}))]), ["c", "d", FIND_TOOLS, "a", "b", "e"]);
        assert!(
            ["a", "b", "c", "d", "e"].into_iter().all(|name| tools.get(name).is_some_and(|it| it.spec().name == name))
        );
        let fewer = tools.changed(|tool| (tool.spec().name != "d").then(|| tool.clone()));
        assert!(fewer.get("d").is_none() && fewer.get("e").is_some());
    }

    #[test]
    fn without_the_tool_that_finds_them_all_are_offered() {
        assert_eq!(names(&set([spec("a"), deferred("b")]), &[]), ["a", "b"]);
    }

    #[test]
    fn tools_of_servers_are_deferred_when_there_are_many() {
        let foreign = |count: usize| (0..count).map(|n| ToolSpec { foreign: true, ..spec(&format!("m{n:02}")) });
        let few = set(foreign(FOREIGN_MAX).chain([spec(FIND_TOOLS)]));
        assert_eq!(names(&few, &[]).len(), FOREIGN_MAX + 1);
        let many = set(foreign(FOREIGN_MAX + 1).chain([spec(FIND_TOOLS)]));
        assert_eq!(names(&many, &[]), [FIND_TOOLS]);
        assert_eq!(names(&many, &[called("m03", json!({}))]), [FIND_TOOLS, "m03"]);
    }

    #[test]
    fn tools_of_servers_stay_deferred_without_one_of_them() {
        let foreign = (0..=FOREIGN_MAX).map(|n| ToolSpec { foreign: true, ..spec(&format!("m{n:02}")) });
        let fewer =
            set(foreign.chain([spec(FIND_TOOLS)])).changed(|tool| (tool.spec().name != "m03").then(|| tool.clone()));
        assert_eq!((fewer.deferred().count(), names(&fewer, &[])), (FOREIGN_MAX, vec![FIND_TOOLS.to_owned()]));
    }

    #[test]
    fn the_same_offer_is_serialised_once() {
        let tools = set([spec("a"), spec(FIND_TOOLS), deferred("z")]);
        let offer = |messages: &[Arc<Message>]| {
            let moment = Moment { session: &SessionKey::new("s"), run: RunId::new(), messages };
            tools.offered(moment)
        };
        let (first, again) = (offer(&[]).expect("not all"), offer(&[]).expect("not all"));
        assert!(Arc::ptr_eq(&first, &again));
        assert!(offer(&[called("z", json!({}))]).is_none(), "all");
    }
}
