//! The open links, and the authentication of their requests.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use belay_protocol::{JobToken, LinkId, OpenLink, WorkerLink, WorkerLinks};
use subtle::ConstantTimeEq;

use crate::auth::bearer;

/// Most links that are open at a time; a further job is refused. 256: the limit of process trees.
const MOST_JOBS: usize = 256;

/// The open links.
pub(super) struct Jobs {
    socket: PathBuf,
    open: Mutex<HashMap<LinkId, Job>>,
}

/// One open link.
struct Job {
    /// A digest, so that both sides of a comparison always have the same length.
    token: blake3::Hash,
    host: Arc<dyn WorkerLink>,
}

impl Jobs {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self { socket, open: Mutex::default() }
    }

    /// Returns the worker host of a job, if the request's token is right.
    pub(super) fn admit(&self, job: LinkId, headers: &HeaderMap) -> Option<Arc<dyn WorkerLink>> {
        let presented = headers.get(AUTHORIZATION).and_then(|header| bearer(header.as_bytes())).unwrap_or_default();
        let presented = blake3::hash(presented);
        let open = self.open();
        let known = open.get(&job);
        // For an unknown job, the comparison takes the same time as for a wrong token, and fails.
        let token = known.map_or_else(|| blake3::hash(b"no such job"), |job| job.token);
        let matches = bool::from(token.as_bytes().ct_eq(presented.as_bytes()));
        known.filter(|_| matches).map(|job| job.host.clone())
    }

    fn open(&self) -> MutexGuard<'_, HashMap<LinkId, Job>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens links over one server.
pub(super) struct Links(pub(super) Arc<Jobs>);

impl WorkerLinks for Links {
    fn open(&self, host: Arc<dyn WorkerLink>) -> Result<OpenLink, String> {
        let token = draw().map_err(|error| format!("the system gives no randomness: {error}"))?;
        let job = LinkId::new();
        {
            let mut open = self.0.open();
            if open.len() >= MOST_JOBS {
                return Err(format!("{MOST_JOBS} workers are running, which is the maximum; try again later"));
            }
            open.insert(job, Job { token: blake3::hash(token.expose().as_bytes()), host });
        }
        let jobs = self.0.clone();
        let revoke = move || {
            jobs.open().remove(&job);
        };
        Ok(OpenLink::new(job, self.0.socket.clone(), token, revoke))
    }
}

/// Draws a random token.
///
/// Source: random(4), `/dev/urandom`: suitable for keys once the machine has started.
fn draw() -> std::io::Result<JobToken> {
    let mut bytes = [0; JobToken::BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(JobToken::from_bytes(bytes))
}
