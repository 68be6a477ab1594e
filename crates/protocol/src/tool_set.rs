//! The tools of a run, and which of them a request offers.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::Value;

use crate::ids::{RunId, SessionKey};
use crate::message::{Arguments, Message, WireCache};
use crate::tool::{Tool, ToolSpec};

/// The tool with which a model brings in deferred tools: its argument `names` is a list of their names.
pub const FIND_TOOLS: &str = "find_tools";
/// Tools of MCP servers that are offered at once. If there are more, all of them are deferred.
const FOREIGN_MAX: usize = 12;
/// Selections that are kept. They are few: most sessions bring in nothing.
const KEPT_MAX: usize = 64;

/// The tools of a run: its allow-list, in a fixed order, serialised once.
#[derive(Default)]
pub struct ToolSet {
    tools: Vec<Arc<dyn Tool>>,
    /// The serialised list of schemas.
    pub wire: WireCache,
    described_bytes: OnceLock<usize>,
    many_foreign: OnceLock<bool>,
    /// The selections that requests have offered, so that each is serialised once.
    offers: Mutex<BTreeMap<Vec<bool>, Arc<ToolSet>>>,
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
    /// A set of these tools, ordered by name so that requests are the same after every restart. Of two tools with the
    /// same name the first one stays.
    pub fn new(mut tools: Vec<Arc<dyn Tool>>) -> Self {
        tools.sort_by(|a, b| a.spec().name.cmp(&b.spec().name));
        tools.dedup_by(|later, first| later.spec().name == first.spec().name);
        Self { tools, ..Self::default() }
    }

    /// The set with some of its tools changed or left out. Its tools of servers stay deferred if they were.
    pub fn changed(&self, change: impl Fn(&Arc<dyn Tool>) -> Option<Arc<dyn Tool>>) -> Self {
        let many_foreign = self.has_many_foreign().into();
        Self { many_foreign, ..Self::new(self.tools.iter().filter_map(change).collect()) }
    }

    /// The tools that a request offers at this moment; `None`: all.
    ///
    /// A tool on demand is offered while it is of use. In a set with [`FIND_TOOLS`], a deferred tool is offered once
    /// the conversation has named it in a call of that tool, or has called it. The same conversation has the same offer
    /// after a restart and at another node. If the conversation is compacted, the model may have to name the tool
    /// again.
    pub fn offered(&self, moment: Moment<'_>) -> Option<Arc<Self>> {
        let can_find = self.get(FIND_TOOLS).is_some();
        let mut brought = None;
        let mut is_offered = |tool: &Arc<dyn Tool>| {
            let spec = tool.spec();
            match tool.on_demand(moment.session, moment.run) {
                Some(of_use) => of_use,
                None if !can_find || !self.is_deferred(spec) => true,
                None => brought.get_or_insert_with(|| brought_in(moment.messages)).contains(spec.name.as_str()),
            }
        };
        let selection: Vec<bool> = self.tools.iter().map(&mut is_offered).collect();
        if selection.iter().all(|offered| *offered) {
            return None;
        }
        let mut offers = self.offers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = offers.get(&selection) {
            return Some(known.clone());
        }
        let tools = self.tools.iter().zip(&selection).filter(|(_, offered)| **offered).map(|(tool, _)| tool.clone());
        let offer = Arc::new(Self::new(tools.collect()));
        if offers.len() >= KEPT_MAX {
            offers.clear();
        }
        offers.insert(selection, offer.clone());
        Some(offer)
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
        self.tools.binary_search_by(|tool| tool.spec().name.as_str().cmp(name)).ok().map(|at| &self.tools[at])
    }

    /// All tools, by name.
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

/// The tools that these messages have named in a call of [`FIND_TOOLS`], or have called.
fn brought_in(messages: &[Arc<Message>]) -> HashSet<&str> {
    let mut names = HashSet::new();
    for call in messages.iter().flat_map(|message| message.tool_calls()) {
        match &call.arguments {
            Arguments::Object(arguments) if call.name == FIND_TOOLS => {
                let named = arguments.get("names").and_then(Value::as_array);
                names.extend(named.into_iter().flatten().filter_map(Value::as_str));
            }
            _ => {
                names.insert(&*call.name);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use serde_json::{Map, json};

    use super::*;
    use crate::ids::CallId;
    use crate::message::ToolCall;
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
        assert_eq!(names(&tools, std::slice::from_ref(&named)), ["a", "c", FIND_TOOLS]);
        let odd = [called(FIND_TOOLS, json!({ "names": "c" })), called(FIND_TOOLS, json!({ "query": "c" }))];
        assert_eq!(names(&tools, &odd), begin);
        assert_eq!(names(&tools, &[named, called("b", json!({}))]), ["a", "b", "c", FIND_TOOLS]);
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
        let tools = set([spec("a"), spec(FIND_TOOLS), deferred("b")]);
        let offer = |messages: &[Arc<Message>]| {
            let moment = Moment { session: &SessionKey::new("s"), run: RunId::new(), messages };
            tools.offered(moment)
        };
        let (first, again) = (offer(&[]).expect("not all"), offer(&[]).expect("not all"));
        assert!(Arc::ptr_eq(&first, &again));
        assert!(offer(&[called("b", json!({}))]).is_none(), "all");
    }
}
