//! Approvals: which tool calls need a person's answer, the text of the question, and the call that an answer is bound
//! to.
//!
//! The effect gate asks [`Policy`] about every call. If a person has to answer, the effect gate makes an
//! [`ApprovalRequest`](belay_protocol::ApprovalRequest), the run pauses, and the lane receives the answer (see
//! `belay_agent::lane`).
//! [`digest`] binds an answer to the tool, its arguments, and their meaning at the time of the answer.

mod config;
mod form_text;
mod policy;
mod question;
mod shown;
mod standing;

pub(crate) use belay_text::question::MAX_SHOWN_CHARS;
pub use belay_text::question::shown_line;
pub use config::{ApprovalRule, ApprovalsConfig, Fallback, RuleAsk, UntrustedContent};
pub(crate) use policy::Untrusted;
pub use policy::{Case, Need, Policy};
pub use question::Wanted;
pub(crate) use question::question_body;
pub use question::{Answers, ApprovalAnswer, digest};
pub use question::{question_text, reminder_text};
pub use shown::too_long;
pub(crate) use shown::unshown_arguments;
pub use standing::Standing;
