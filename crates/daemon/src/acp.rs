//! `belay acp`, which is a part.

pub(crate) use belay_acp::serve;
