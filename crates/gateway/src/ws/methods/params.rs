//! The schemas of the parameters of methods.

use serde_json::Value;

use super::{Method, Nothing, SubscriptionParams, approvals, chat, sessions};
use crate::agent_rpc::WaitParams;
use crate::openapi::Schemas;
use crate::submit::AgentParams;

impl Method {
    /// The schema of the parameters.
    pub(in crate::ws) fn params(self, schemas: &mut Schemas) -> Value {
        match self {
            Self::Agent => schemas.input::<AgentParams>(),
            Self::AgentWait => schemas.input::<WaitParams>(),
            Self::ChatSend => schemas.input::<chat::SendParams>(),
            Self::ChatAbort => schemas.input::<chat::AbortParams>(),
            Self::ChatHistory => schemas.input::<chat::HistoryParams>(),
            Self::ChatSubscribe | Self::ChatUnsubscribe | Self::SessionsSubscribe | Self::SessionsUnsubscribe => {
                schemas.input::<SubscriptionParams>()
            }
            Self::SessionsList => schemas.input::<sessions::ListParams>(),
            Self::SessionsGet | Self::SessionsCreate | Self::SessionsReset | Self::SessionsStop => {
                schemas.input::<sessions::KeyParams>()
            }
            Self::SessionsPatch => schemas.input::<sessions::PatchParams>(),
            Self::ApprovalsList => schemas.input::<approvals::ListParams>(),
            Self::ApprovalsDecide => schemas.input::<approvals::DecideParams>(),
            Self::Health | Self::Status | Self::ModelsList => schemas.input::<Nothing>(),
        }
    }
}
