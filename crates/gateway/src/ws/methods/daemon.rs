//! `health`, `status` and `models.list`.

use serde_json::{Value, json};

use super::{Caller, Nothing};
use crate::error::ApiError;
use crate::routes::{daemon_status, not_ready_because};
use crate::ws::connection::json_of;

pub(super) async fn health(caller: &Caller, Nothing {}: Nothing) -> Value {
    let app = &caller.app;
    match not_ready_because(app).await {
        None => json!({ "ok": true, "version": app.version }),
        Some(reason) => json!({ "ok": false, "version": app.version, "reason": reason }),
    }
}

pub(super) async fn status(caller: &Caller, Nothing {}: Nothing) -> Result<Value, ApiError> {
    daemon_status(&caller.app, caller.principal.clone()).await.map(|report| json_of(&report))
}

/// The configured model; other models can be chosen by name.
pub(super) fn models(caller: &Caller, Nothing {}: Nothing) -> Value {
    let model = &caller.app.models.chat;
    json!({ "models": [{
        "id": model.model, "provider": model.provider, "contextTokens": model.context_tokens, "vision": model.vision,
        "rehearsal": model.rehearsal, "default": true,
    }] })
}
