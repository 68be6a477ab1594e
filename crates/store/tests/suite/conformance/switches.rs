//! Tools that are switched off.

use std::sync::Arc;

use belay_protocol::{EventKind, EventQuery, NewEvent, ToolOff, ToolSwitch};

use super::for_every_store;
use crate::kit::*;

for_every_store! {
    a_switch_is_kept_with_what_is_told_of_it
    of_two_writes_the_newer_counts_in_whatever_order_they_come
}

type Store = Arc<dyn Everything>;

fn off(why: &str) -> ToolOff {
    ToolOff {
        since: at(1_000),
        until: Some(at(61_000)),
        for_s: 60,
        actor: "rule".into(),
        detail: why.into(),
        failures: 10,
        runs: 3,
    }
}

fn switch(name: &str, revision: u64, off: Option<ToolOff>) -> ToolSwitch {
    ToolSwitch { name: name.into(), revision, off }
}

fn told(switch: &ToolSwitch) -> Vec<NewEvent> {
    let kind = EventKind::ToolStateChanged {
        name: switch.name.clone(),
        on: switch.off.is_none(),
        actor: "rule".into(),
        detail: switch.revision.to_string(),
        until_ms: None,
    };
    vec![NewEvent { at: at(1_000), session: None, run_id: None, kind }]
}

/// The revisions whose facts are in the log.
async fn facts(store: &Store) -> Vec<String> {
    let events = store.read(EventQuery::default()).await.unwrap();
    let revision = |kind| match kind {
        EventKind::ToolStateChanged { detail: why, .. } => Some(why),
        _ => None,
    };
    events.into_iter().filter_map(|event| revision(event.kind)).collect()
}

async fn a_switch_is_kept_with_what_is_told_of_it(store: Store) {
    assert_eq!(store.switches().await.unwrap(), []);
    let (web, files) = (switch("web_search", 1, Some(off("it failed"))), switch("mcp:files", 2, Some(off("ended"))));
    for switch in [&web, &files] {
        store.switch(switch.clone(), told(switch)).await.unwrap();
    }
    assert_eq!(store.switches().await.unwrap(), [files.clone(), web]);
    let on = switch("web_search", 3, None);
    store.switch(on.clone(), told(&on)).await.unwrap();
    assert_eq!(store.switches().await.unwrap(), [files, on]);
    assert_eq!(facts(&store).await, ["1", "2", "3"]);
}

async fn of_two_writes_the_newer_counts_in_whatever_order_they_come(store: Store) {
    let (older, newer) = (switch("web_search", 4, Some(off("late"))), switch("web_search", 5, None));
    for (switch, is_newer) in [(&newer, true), (&older, false), (&newer, false)] {
        assert_eq!(store.switch(switch.clone(), told(switch)).await.unwrap(), is_newer);
    }
    assert_eq!(store.switches().await.unwrap(), [newer]);
    assert_eq!(facts(&store).await, ["5"], "what an older write says is not told behind the newer one");
}
