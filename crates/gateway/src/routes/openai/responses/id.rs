//! The id of a response: the run, the place in it at which the response begins, and what the request has asked for. So no
//! table has to keep it, and it is valid as long as its run is kept.
//!
//! It is signed for the principal that made the request. For another principal there is no such response.

use belay_protocol::{ApprovalId, Principal, RunId};
use uuid::Uuid;

use crate::app::App;
use crate::routes::openai::{OUR_NAME, TEXT_NAME};

/// Distinguishes these signatures from others by the same key.
const PURPOSE: &[u8] = b"belay response, version 1";

/// The beginning of the id of a response.
pub(super) const RESPONSE: &str = "resp_";
/// The beginning of the id of its text.
pub(super) const MESSAGE: &str = "msg_";

const STORED: u8 = 1;
const BACKGROUND: u8 = 2;
const JSON: u8 = 4;
const TEXT_MODEL: u8 = 8;
const CONFIGURED_MODEL: u8 = 16;
const CONTINUED: u8 = 32;

/// A response that a run gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResponseId {
    pub(super) run: RunId,
    /// The request whose answer the response begins after; `None`: it begins with the run.
    pub(super) after: Option<ApprovalId>,
    pub(super) kind: Kind,
}

/// The wishes of the request that matter later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kind {
    /// Whether the response can be read again.
    pub(super) stored: bool,
    /// Whether the run goes on without its client.
    pub(super) background: bool,
    /// Whether the answer is a JSON value.
    pub(super) json: bool,
    pub(super) model: Model,
}

/// The model of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Model {
    #[default]
    Ours,
    Text,
    Configured,
}

impl Model {
    pub(super) fn of(name: Option<&str>) -> Self {
        match name {
            None | Some(OUR_NAME) => Self::Ours,
            Some(TEXT_NAME) => Self::Text,
            Some(_) => Self::Configured,
        }
    }

    pub(super) fn name(self, app: &App) -> String {
        match self {
            Self::Ours => OUR_NAME.to_owned(),
            Self::Text => TEXT_NAME.to_owned(),
            Self::Configured => app.models.chat.model.clone(),
        }
    }
}

impl ResponseId {
    /// The id as a text that begins with `prefix`.
    pub(super) fn text(&self, app: &App, principal: &Principal, prefix: &str) -> String {
        let after = self.after.map(|after| after.as_uuid().simple().to_string()).unwrap_or_default();
        let (flags, tag) = (self.flags(), Uuid::from_bytes(self.tag(app, principal)).simple());
        format!("{prefix}{}{after}{flags:02x}{tag}", self.run.as_uuid().simple())
    }

    /// The response of such a text; `None`: it is no id, or one of another principal.
    pub(super) fn parse(app: &App, principal: &Principal, prefix: &str, text: &str) -> Option<Self> {
        let rest = text.strip_prefix(prefix).filter(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()))?;
        let (run, rest) = rest.split_at_checked(32)?;
        let (after, rest) = match rest.len() {
            34 => (None, rest),
            66 => rest.split_at_checked(32).map(|(after, rest)| (Some(after), rest))?,
            _ => return None,
        };
        let (flags, tag) = rest.split_at_checked(2)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        let after = after.map(str::parse).transpose().ok()?;
        let id = Self { run: run.parse().ok()?, after, kind: Kind::of(flags)? };
        let shown: Uuid = tag.parse().ok()?;
        let is_valid = id.flags() == flags && constant_time_eq(shown.as_bytes(), &id.tag(app, principal));
        is_valid.then_some(id)
    }

    fn flags(&self) -> u8 {
        let Kind { stored, background, json, model } = self.kind;
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        bit(stored, STORED)
            | bit(background, BACKGROUND)
            | bit(json, JSON)
            | bit(model == Model::Text, TEXT_MODEL)
            | bit(model == Model::Configured, CONFIGURED_MODEL)
            | bit(self.after.is_some(), CONTINUED)
    }

    fn tag(&self, app: &App, principal: &Principal) -> [u8; 16] {
        let run = self.run.as_uuid();
        let after = self.after.map(|after| *after.as_uuid().as_bytes()).unwrap_or_default();
        app.links.tag(PURPOSE, &[run.as_bytes(), &after, &[self.flags()], principal.id.as_bytes()])
    }
}

impl Kind {
    fn of(flags: u8) -> Option<Self> {
        let has = |bit: u8| flags & bit != 0;
        let model = match (has(TEXT_MODEL), has(CONFIGURED_MODEL)) {
            (false, false) => Model::Ours,
            (true, false) => Model::Text,
            (false, true) => Model::Configured,
            (true, true) => return None,
        };
        Some(Self { stored: has(STORED), background: has(BACKGROUND), json: has(JSON), model })
    }
}

fn constant_time_eq(one: &[u8; 16], other: &[u8; 16]) -> bool {
    use subtle::ConstantTimeEq;
    bool::from(one.ct_eq(other))
}
