//! Approvals: when a person is asked about a tool call, what the question says, and what an answer is bound to.
//!
//! The effect gate asks [`Policy`] about every call. Where a person has to answer, it makes a
//! [`Gate`](belay_protocol::Gate), the run rests on it, and the lane takes the answer: see `belay_agent::lane`. An answer is
//! bound by [`digest`] to the tool, its arguments and what they meant in the world when it was given.

mod config;
mod policy;
mod question;

pub use config::{ApprovalRule, ApprovalsConfig, Outside, RuleAsk};
pub(crate) use policy::Untrusted;
pub use policy::{Case, Need, Policy};
pub(crate) use question::Wanted;
pub use question::question_text;
pub use question::{Answers, ApprovalAnswer, digest, parse_answer, too_long};
