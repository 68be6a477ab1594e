//! Reports of the stand-in for the agent.

use belay_protocol::context::PartReport;
use belay_protocol::*;

use super::{NOW, model};

pub(super) fn status() -> StatusReport {
    StatusReport {
        version: "0.0.0".into(),
        boot_id: BootId::new(),
        started_at: UnixMillis(NOW),
        draining: false,
        model: model(),
        sessions_awake: 1,
        running: vec![],
        queued: 0,
        paused: 0,
        channels: vec!["http".into()],
        spent_today_micro_usd: 0,
        spent_today_for: Default::default(),
        limit_today_micro_usd: None,
        limit_today_for: Default::default(),
        open_reservations: Default::default(),
        degraded: Vec::new(),
        model_trouble: None,
        candidates: Vec::new(),
        tools: vec![],
        frozen: vec![],
        beside: belay_protocol::BackgroundWork {
            jobs: None,
            routines: None,
            processes: Vec::new(),
            channel_states: Vec::new(),
        },
    }
}

/// What an agent says whose only tool is web_search, which is off unless it is switched on.
pub(super) fn tools(request: &ToolRequest) -> Ack {
    let on = ToolHealth { name: "web_search".into(), description: "Searches.".into(), ..ToolHealth::default() };
    let off = |why: &str| ToolHealth { state: ToolState::Off, detail: why.into(), ..on.clone() };
    match request {
        ToolRequest::List => Ack::Tools(vec![off("it failed")]),
        ToolRequest::Disable { name, detail: why } if *name == on.name => Ack::Tools(vec![off(why)]),
        ToolRequest::Enable(name) if *name == on.name => Ack::Tools(vec![on]),
        ToolRequest::Disable { name, .. } | ToolRequest::Enable(name) => {
            Ack::Refused(Refusal::Unknown(format!("There is no tool {name:?}.")))
        }
    }
}

pub(super) fn context(session: &SessionKey, full: bool) -> ContextReport {
    let part =
        |name: &str| PartReport { name: name.into(), chars: 8, tokens: 2, text: full.then(|| "the text".to_owned()) };
    ContextReport {
        session: session.clone(),
        model: "m".into(),
        context_tokens: 1000,
        used_tokens: 4,
        prompt: vec![part("identity")],
        files: Vec::new(),
        skills: Vec::new(),
        skipped: Vec::new(),
        tools: Vec::new(),
        summary: None,
        messages: 1,
        conversation: part("messages"),
    }
}
