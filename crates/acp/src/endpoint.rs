//! The open things between one editor and the daemon: sessions, prompts, and tasks that answer requests.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_client_protocol::{Error, ErrorCode};
use belay_cli::args::{AcpArgs, ClientArgs};
use belay_cli::client::Client;
use belay_program::environment::Environment;
use belay_program::output::note;
use belay_protocol::CommandInfo;
use serde::Serialize;
use serde_json::Value as Json;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::daemon::{Daemon, Trouble};
use crate::setting::Setting;

/// Most open sessions of an editor.
const SESSIONS_MAX: usize = 1024;

/// How long the end waits for the stopped runs. 20 s: a message on its way takes up to 8, and the stop of its run 10.
const END_LIMIT: Duration = Duration::from_secs(20);

/// A session that the editor has opened.
struct OpenSession {
    /// A remark that is still to be said in it.
    remark: Option<String>,
    /// Cancelled when the daemon has the message of the last prompt.
    last_sent: CancellationToken,
}

/// A prompt that is not answered yet.
struct OpenPrompt {
    session: String,
    stop: CancellationToken,
    /// The run that it tells the editor about.
    run: Option<String>,
}

/// The prompts that are not answered yet, by number.
#[derive(Default)]
struct OpenPrompts {
    last: u64,
    open: HashMap<u64, OpenPrompt>,
}

/// The open sessions, prompts and tasks of one editor.
pub(crate) struct Endpoint {
    args: AcpArgs,
    env: Environment,
    pub(crate) commands: Vec<CommandInfo>,
    daemon: Mutex<Option<Arc<Daemon>>>,
    setting: Mutex<Setting>,
    sessions: Mutex<HashMap<String, OpenSession>>,
    prompts: Mutex<OpenPrompts>,
    /// Each answers one request.
    pub(crate) tasks: Mutex<JoinSet<()>>,
}

impl Endpoint {
    pub(crate) fn new(args: AcpArgs, env: Environment, commands: Vec<CommandInfo>) -> Self {
        Self {
            args,
            env,
            commands,
            daemon: Mutex::default(),
            setting: Mutex::default(),
            sessions: Mutex::default(),
            prompts: Mutex::default(),
            tasks: Mutex::default(),
        }
    }

    /// The daemon, found once. It is reached anew for each request.
    pub(crate) fn daemon(&self) -> Result<Arc<Daemon>, Trouble> {
        let mut found = lock(&self.daemon);
        if let Some(daemon) = &*found {
            return Ok(daemon.clone());
        }
        let args = ClientArgs { url: self.args.url.clone(), json: false };
        let daemon = Arc::new(Daemon(Client::find(&args, &self.env).map_err(Trouble::Away)?));
        *found = Some(daemon.clone());
        Ok(daemon)
    }

    pub(crate) fn setting(&self) -> Setting {
        lock(&self.setting).clone()
    }

    pub(crate) fn set(&self, setting: Setting) {
        *lock(&self.setting) = setting;
    }

    /// Opens a session, with what is to be said in it. An open one keeps the order of its prompts.
    pub(crate) fn open_session(&self, session: &str, remark: Option<String>) -> Result<(), Error> {
        let mut sessions = lock(&self.sessions);
        if sessions.len() >= SESSIONS_MAX && !sessions.contains_key(session) {
            return Err(Error::new(ErrorCode::INTERNAL_ERROR, "too many sessions are open; close one"));
        }
        let open = sessions.entry(session.to_owned()).or_insert_with(|| {
            let last_sent = CancellationToken::new();
            last_sent.cancel(); // nothing is on its way
            OpenSession { remark: None, last_sent }
        });
        open.remark = remark;
        Ok(())
    }

    /// Whether the editor has opened a session.
    pub(crate) fn is_open(&self, session: &str) -> bool {
        lock(&self.sessions).contains_key(session)
    }

    /// Takes what is still to be said in a session.
    pub(crate) fn remark(&self, session: &str) -> Option<String> {
        lock(&self.sessions).get_mut(session).and_then(|open| open.remark.take())
    }

    /// Puts a prompt behind the last one of its session: the daemon answers messages in the order in which it gets them. Returns the
    /// token to wait for. `sent` is the token for the next prompt. `None`: the editor has not opened the session.
    pub(crate) fn line_up(&self, session: &str, sent: CancellationToken) -> Option<CancellationToken> {
        lock(&self.sessions).get_mut(session).map(|open| std::mem::replace(&mut open.last_sent, sent))
    }

    /// Closes a session.
    pub(crate) fn forget_session(&self, session: &str) {
        lock(&self.sessions).remove(session);
    }

    /// Cancels the open prompts of a session.
    pub(crate) fn cancel_session(&self, session: &str) {
        for prompt in lock(&self.prompts).open.values().filter(|prompt| prompt.session == session) {
            prompt.stop.cancel();
        }
    }

    /// Registers a prompt. Returns its number, and the token that the editor cancels.
    pub(crate) fn open_prompt(&self, session: &str) -> (u64, CancellationToken) {
        let (mut prompts, stop) = (lock(&self.prompts), CancellationToken::new());
        prompts.last += 1;
        let number = prompts.last;
        prompts.open.insert(number, OpenPrompt { session: session.to_owned(), stop: stop.clone(), run: None });
        (number, stop)
    }

    pub(crate) fn close_prompt(&self, number: u64) {
        lock(&self.prompts).open.remove(&number);
    }

    /// Whether a prompt of this editor follows a run.
    pub(crate) fn is_followed(&self, run: &str) -> bool {
        lock(&self.prompts).open.values().any(|prompt| prompt.run.as_deref() == Some(run))
    }

    /// How many runs of a session the prompts of this editor follow.
    pub(crate) fn followed(&self, session: &str) -> usize {
        let prompts = lock(&self.prompts);
        let runs =
            prompts.open.values().filter(|prompt| prompt.session == session).filter_map(|prompt| prompt.run.as_ref());
        runs.collect::<HashSet<_>>().len()
    }

    /// Makes a prompt the one that tells of a run. `false`: another one does.
    pub(crate) fn follows(&self, number: u64, run: &str) -> bool {
        let mut prompts = lock(&self.prompts);
        let others = prompts.open.iter().filter(|(other, _)| **other != number);
        let is_first = !others.into_iter().any(|(_, prompt)| prompt.run.as_deref() == Some(run));
        if let (true, Some(prompt)) = (is_first, prompts.open.get_mut(&number)) {
            prompt.run = Some(run.to_owned());
        }
        is_first
    }

    /// Stops the runs of the open prompts, and waits for their ends: nobody is there any more who could read or stop them.
    pub(crate) async fn end(&self) {
        lock(&self.prompts).open.values().for_each(|prompt| prompt.stop.cancel());
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        let all = async {
            while let Some(ended) = tasks.join_next().await {
                read_panic(ended);
            }
        };
        if timeout(END_LIMIT, all).await.is_err() {
            note("not every run of this editor has ended; `belay status` shows what runs");
        }
        tasks.shutdown().await;
    }
}

/// Says on stderr that a task has panicked. The responder of a request that it had answers by itself.
pub(crate) fn read_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        note(&format!("a task failed: {error}"));
    }
}

/// The error for a session that does not exist, or that the editor has not opened.
pub(crate) fn unknown(session: &str) -> Error {
    let session: String = session.chars().take(64).collect();
    Error::new(ErrorCode::RESOURCE_NOT_FOUND, format!("no such session: {session}"))
}

/// A result as JSON.
pub(crate) fn json_of(result: &impl Serialize) -> Result<Json, Error> {
    serde_json::to_value(result).map_err(Error::into_internal_error)
}

/// Nothing that holds a lock panics, so a poisoned one is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
