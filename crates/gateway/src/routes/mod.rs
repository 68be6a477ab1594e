//! The routes. A handler is thin: extract, ask a port, map the answer.

pub(crate) mod agent;
pub(crate) mod approvals;
pub(crate) mod archive;
pub(crate) mod backups;
pub(crate) mod compactions;
pub(crate) mod console;
pub(crate) mod context;
pub(crate) mod costs;
pub(crate) mod ends;
pub(crate) mod events;
pub(crate) mod files;
pub(crate) mod freeze;
pub(crate) mod health;
pub(crate) mod heartbeat;
pub(crate) mod hooks;
pub(crate) mod jobs;
pub(crate) mod judge;
pub(crate) mod logins;
pub(crate) mod memory;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod nodes;
pub(crate) mod openai;
pub(crate) mod people;
pub(crate) mod principals;
pub(crate) mod progress;
pub(crate) mod resume;
pub(crate) mod routine_runs;
pub(crate) mod routines;
pub(crate) mod runs;
pub(crate) mod sessions;
pub(crate) mod settings;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod tools;
pub(crate) mod webhook;

use axum::response::{IntoResponse, Response};

pub(crate) use approvals::{decide_approval, list_approvals};
pub(crate) use health::not_ready_because;
pub(crate) use sessions::list_sessions;
pub(crate) use status::daemon_status;
pub(crate) use stop::{Stop, stop_and_wait};

use crate::error::ApiError;

/// The error in the format of that path's API.
pub(crate) fn error_for(path: &str, error: ApiError) -> Response {
    match path {
        path if path.starts_with("/v1/") => openai::error_for(path, error),
        _ => error.into_response(),
    }
}
