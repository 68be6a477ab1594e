//! Sessions of the editor: conversations of the daemon whose keys begin with `acp:`.

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::{
    CloseSessionResponse, DeleteSessionResponse, ListSessionsResponse, LoadSessionResponse, NewSessionResponse,
    ResumeSessionResponse,
};
use belay_cli::client::{Method, number, text};
use serde_json::Value as Json;
use tokio::time::sleep;
use uuid::Uuid;

use crate::daemon::{AGAIN, Daemon, Trouble};
use crate::endpoint::{Endpoint, json_of, unknown};
use crate::keys::{PREFIX, key, listed, next_of, remembered};
use crate::link::EditorLink;
use crate::requests::Opened;

/// Rows of a page of the API.
const PAGE: &str = "500";

/// Most pages that one list reads before it answers with what it has, and a cursor.
const PAGES_MAX: usize = 10;

/// How often a deletion is tried while a stopped run is still ending. 20: ten seconds.
const DELETE_ATTEMPTS: usize = 20;

impl Endpoint {
    /// `session/new`: a key. The first message creates the conversation.
    pub(crate) fn new_session(&self, params: &Json) -> Result<Opened, Error> {
        let session = key(Uuid::now_v7(), text(params, "/cwd"));
        self.open(&session, params)?;
        Ok((json_of(&NewSessionResponse::new(session.clone()))?, Some(session)))
    }

    /// `session/load`: the history as updates, then the answer.
    pub(crate) async fn load_session(&self, params: &Json, link: &EditorLink) -> Result<Opened, Error> {
        let (session, daemon) = self.known(params).await?;
        let mut after = None;
        loop {
            let path = ["api", "v1", "sessions", &session, "messages"];
            let after_query = after.as_deref().map(|after: &str| ("after", after));
            let query: Vec<_> = [("limit", PAGE)].into_iter().chain(after_query).collect();
            let page = match daemon.get(&path, &query).await {
                Err(trouble) if trouble.is_missing() => break, // nothing was said yet
                page => page.map_err(|trouble| trouble.error())?,
            };
            for message in page.pointer("/messages").and_then(Json::as_array).into_iter().flatten() {
                link.update(&session, remembered(message)).await;
            }
            after = next_of(&page);
            if after.is_none() {
                break;
            }
        }
        // What a prompt of this editor follows is told to its end.
        let open_runs = number(&conversation(&daemon, &session).await?, "/open_runs");
        if open_runs > self.followed(&session) as u64 {
            let words =
                "A message of this conversation is still being answered. Load it again later to see the answer.";
            link.say(&session, words).await;
        }
        self.open(&session, params)?;
        Ok((json_of(&LoadSessionResponse::new())?, Some(session)))
    }

    /// `session/resume`: as a load, without the history.
    pub(crate) async fn resume_session(&self, params: &Json) -> Result<Opened, Error> {
        let (session, _) = self.known(params).await?;
        self.open(&session, params)?;
        Ok((json_of(&ResumeSessionResponse::new())?, Some(session)))
    }

    /// `session/list`: the newest first.
    pub(crate) async fn list_sessions(&self, params: &Json) -> Result<Json, Error> {
        let daemon = self.daemon().map_err(|trouble| trouble.error())?;
        let wanted = params.pointer("/cwd").and_then(Json::as_str);
        let mut cursor = params.pointer("/cursor").and_then(Json::as_str).map(str::to_owned);
        let mut found = Vec::new();
        for _ in 0..PAGES_MAX {
            let after = cursor.as_deref().map(|after| ("after", after));
            let query: Vec<_> = [("limit", PAGE)].into_iter().chain(after).collect();
            let page = daemon.get(&["api", "v1", "sessions"], &query).await.map_err(|trouble| trouble.error())?;
            let rows = page.pointer("/sessions").and_then(Json::as_array).into_iter().flatten();
            found.extend(rows.filter_map(|row| listed(row, wanted)));
            cursor = next_of(&page);
            if cursor.is_none() || !found.is_empty() {
                break;
            }
        }
        json_of(&ListSessionsResponse::new(found).next_cursor(cursor))
    }

    /// `session/close`: stops what runs in it.
    pub(crate) async fn close_session(&self, params: &Json) -> Result<Json, Error> {
        let (session, daemon) = self.known(params).await?;
        self.stop_all(&session, &daemon).await?;
        json_of(&CloseSessionResponse::new())
    }

    /// `session/delete`: stops what runs in it, and deletes its data.
    pub(crate) async fn delete_session(&self, params: &Json) -> Result<Json, Error> {
        let (session, daemon) = self.known(params).await?;
        self.stop_all(&session, &daemon).await?;
        for attempt in 1..=DELETE_ATTEMPTS {
            match daemon.call(Method::DELETE, &["api", "v1", "sessions", &session], &[], None).await {
                // The end of a stopped run may still be on its way.
                Err(Trouble::Refused { status: 409, .. }) if attempt < DELETE_ATTEMPTS => sleep(AGAIN).await,
                Err(trouble) if !trouble.is_missing() => return Err(trouble.error()),
                _ => break,
            }
        }
        json_of(&DeleteSessionResponse::new())
    }

    async fn stop_all(&self, session: &str, daemon: &Daemon) -> Result<(), Error> {
        self.cancel_session(session);
        self.forget_session(session);
        daemon.stop_session(session).await.map_err(|trouble| trouble.error())
    }

    /// The session of a request: one that the editor has opened, or one of an editor that the daemon knows.
    async fn known(&self, params: &Json) -> Result<(String, std::sync::Arc<Daemon>), Error> {
        let session = text(params, "/sessionId");
        let daemon = self.daemon().map_err(|trouble| trouble.error())?;
        if !session.starts_with(PREFIX) {
            return Err(unknown(session));
        }
        if !self.is_open(session) && conversation(&daemon, session).await?.is_null() {
            return Err(unknown(session));
        }
        Ok((session.to_owned(), daemon))
    }

    fn open(&self, session: &str, params: &Json) -> Result<(), Error> {
        let servers = params.pointer("/mcpServers").and_then(Json::as_array).map_or(0, Vec::len);
        self.open_session(session, self.setting().remark(text(params, "/cwd"), servers))
    }
}

/// A session of the daemon; null: there is none.
async fn conversation(daemon: &Daemon, session: &str) -> Result<Json, Error> {
    match daemon.get(&["api", "v1", "sessions", session], &[]).await {
        // A key that the daemon does not take is of no session.
        Err(Trouble::Refused { status: 400 | 404 | 422, .. }) => Ok(Json::Null),
        Err(trouble) => Err(trouble.error()),
        Ok(conversation) => Ok(conversation),
    }
}
