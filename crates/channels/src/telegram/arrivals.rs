//! Messages on their way to the agent, while their files are fetched.
//!
//! Each conversation keeps its order: a message waits for the files of the messages before it. Other conversations go on,
//! and so do commands that act at once and answers by buttons. The parts of an album, which Telegram sends as messages of
//! their own, become one message.
//!
//! Nothing here is durable. An update is confirmed only after the acknowledgement of its message, so after a crash
//! Telegram sends it again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    AckSender, Attachment, AttachmentContent, Body, NO_TEXT, Provenance, SessionKey, Uploader, with_spoken,
};
use futures_util::future::OptionFuture;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tracing::error;

use super::attached::RemoteFile;
use super::repeated::Repeated;
use super::router::{AgentMessage, UpdateRouter};
use crate::commands::{acts_at_once, is_stop_command};

/// The time after a part of an album in which another part may follow. 500 ms: Telegram delivers the parts of an album
/// within a few milliseconds of each other, and a slow network spreads them.
const ALBUM_PAUSE: Duration = Duration::from_millis(500);

/// Messages that wait at the same time, in all conversations. Polling never has more than 100 unsettled updates; the
/// webhook refuses further ones, and Telegram delivers them again.
const WAITING_MAX: usize = 128;

/// Why a file was not read whose message was stopped.
const NOT_FETCHED: &str = "its message was stopped before it was fetched";

/// Longest transcript that becomes the text of its message. 8 KiB: about ten minutes of speech.
const SPOKEN_MAX_BYTES: usize = 8192;

/// A message on its way to the agent.
pub(super) struct Arrival {
    /// The number of its update.
    pub(super) update_id: i64,
    /// The numbers of the updates of further parts of its album.
    pub(super) more_updates: Vec<i64>,
    pub(super) message: AgentMessage,
    /// The webhook's calls that wait for its acknowledgement; none in polling mode. One when the message goes to the agent.
    pub(super) acks: Vec<AckSender>,
}

/// Keeps messages in order while files are fetched, and owns the tasks that fetch them.
pub(super) struct Arrivals {
    router: Arc<UpdateRouter>,
    /// The conversations in which a message waits. No line is empty.
    lines: HashMap<SessionKey, VecDeque<Waiting>>,
    /// Messages that wait for nothing more.
    ready: VecDeque<Arrival>,
    fetches: JoinSet<Result<Attachment, String>>,
    /// The message and the place in its files of each task.
    places: HashMap<Id, Place>,
    repeated: Repeated,
}

/// The place for the result of a task.
struct Place {
    session: SessionKey,
    /// The update of the message.
    update_id: i64,
    /// The number of the file in the message.
    at: usize,
}

/// A message that waits.
struct Waiting {
    arrival: Arrival,
    files: Vec<(RemoteFile, Option<Result<Attachment, String>>)>,
    /// For an album: the time until which further parts may come.
    open_until: Option<Instant>,
}

impl Waiting {
    fn has_files(&self) -> bool {
        self.files.iter().all(|(_, result)| result.is_some())
    }

    fn is_complete(&self, now: Instant) -> bool {
        self.open_until.is_none_or(|until| until <= now) && self.has_files()
    }

    /// The message with its files, of which it has at most `most`. A file that is not fetched yet is not read.
    fn finished(self, repeated: &mut Repeated, most: usize) -> Arrival {
        let Self { mut arrival, files, .. } = self;
        let files =
            files.into_iter().map(|(file, result)| (file, result.or_else(|| Some(Err(NOT_FETCHED.to_owned())))));
        arrival.message.complete(files.collect(), most);
        let updates = [&[arrival.update_id], &arrival.more_updates[..]].concat();
        let acks = std::mem::take(&mut arrival.acks);
        arrival.acks = repeated.remember(updates, &arrival.message.after, acks).into_iter().collect();
        arrival
    }

    fn has_update(&self, update_id: i64) -> bool {
        self.arrival.update_id == update_id || self.arrival.more_updates.contains(&update_id)
    }
}

impl Arrivals {
    pub(super) fn new(router: Arc<UpdateRouter>) -> Self {
        let (lines, ready, fetches, places, repeated) = Default::default();
        Self { router, lines, ready, fetches, places, repeated }
    }

    /// Takes a message. Returns it if it waits for nothing. Drops it if too many wait.
    pub(super) fn admit(&mut self, mut arrival: Arrival) -> Option<Arrival> {
        let message = &mut arrival.message;
        let is_part = message.album.is_some() && self.router.rules.takes_files;
        let waits = !message.files.is_empty() || is_part;
        let session = &message.inbound.session;
        if is_stop(message)
            && let Some(line) = self.lines.remove(session)
        {
            // The messages before it go to the agent as they are, so that it stops them too.
            let most = self.router.fetcher.max_count();
            self.ready.extend(line.into_iter().map(|waiting| waiting.finished(&mut self.repeated, most)));
            self.ready.push_back(arrival);
            return None;
        }
        if passes(message) || (!waits && !self.lines.contains_key(session)) {
            if is_part {
                message.set_notice();
            }
            return Some(arrival);
        }
        if self.is_full() {
            return None; // its acknowledgement is dropped: the webhook answers 503
        }
        let (session, files, update_id) = (session.clone(), std::mem::take(&mut message.files), arrival.update_id);
        if self.is_repeated(&session, &mut arrival) {
            return None;
        }
        let line = self.lines.entry(session.clone()).or_default();
        let place = place_in(line, arrival, is_part.then(|| Instant::now() + ALBUM_PAUSE))?;
        let inbound = &place.arrival.message.inbound;
        let from = Uploader { channel: inbound.channel.clone(), principal: inbound.principal.id.to_string() };
        for file in files {
            if place.files.iter().any(|(known, _)| known.id == file.id) {
                continue; // each part of an album replies to the same message
            }
            let at = place.files.len();
            place.files.push((file.clone(), None));
            let (router, from) = (Arc::clone(&self.router), from.clone());
            let task = self.fetches.spawn(async move { router.fetcher.fetch(&router.api, &from, &file).await });
            self.places.insert(task.id(), Place { session: session.clone(), update_id, at });
        }
        None
    }

    /// Whether Telegram has delivered the update before and waits for the answer to a further call. That call gets the
    /// acknowledgement of the first one.
    fn is_repeated(&mut self, session: &SessionKey, arrival: &mut Arrival) -> bool {
        let acks = std::mem::take(&mut arrival.acks);
        if acks.is_empty() {
            return false; // polling knows its updates
        }
        let update_id = arrival.update_id;
        let mut line = self.lines.get_mut(session).into_iter().flatten();
        if let Some(waiting) = line.find(|waiting| waiting.has_update(update_id)) {
            arrival.message.after.repeats(&waiting.arrival.message.after);
            waiting.arrival.acks.extend(acks);
            return true;
        }
        arrival.acks = self.repeated.answer(update_id, &arrival.message.after, acks);
        arrival.acks.is_empty()
    }

    /// Whether no further message may wait.
    fn is_full(&self) -> bool {
        self.lines.values().map(VecDeque::len).sum::<usize>() >= WAITING_MAX
    }

    /// Waits for the next message that waits for nothing more.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn next(&mut self) -> Arrival {
        loop {
            if let Some(arrival) = self.ready.pop_front() {
                return arrival;
            }
            // Only of messages that wait for nothing else: the end of a fetch comes by its task.
            let fronts = self.lines.values().filter_map(VecDeque::front).filter(|first| first.has_files());
            let due = fronts.filter_map(|first| first.open_until).min();
            tokio::select! {
                Some(done) = self.fetches.join_next_with_id() => self.fetched(done),
                Some(()) = OptionFuture::from(due.map(sleep_until)) => {}
                else => std::future::pending().await,
            }
            self.release();
        }
    }

    /// Ends all tasks. The messages that wait are not settled, so Telegram delivers them again.
    pub(super) async fn close(&mut self) {
        self.fetches.shutdown().await;
    }

    fn fetched(&mut self, done: Result<(Id, Result<Attachment, String>), JoinError>) {
        let (id, result) = match done {
            Ok(done) => done,
            Err(broken) => {
                error!(%broken, "the task that fetches a file broke");
                (broken.id(), Err("Belay could not fetch it".to_owned()))
            }
        };
        let Some(Place { session, update_id, at }) = self.places.remove(&id) else { return };
        let line = self.lines.get_mut(&session);
        let waiting = line.and_then(|line| line.iter_mut().find(|waiting| waiting.has_update(update_id)));
        if let Some((_, place)) = waiting.and_then(|waiting| waiting.files.get_mut(at)) {
            *place = Some(result);
        }
    }

    /// Moves the messages that wait for nothing more to `ready`, in the order of their conversation.
    fn release(&mut self) {
        let now = Instant::now();
        let (ready, repeated, most) = (&mut self.ready, &mut self.repeated, self.router.fetcher.max_count());
        self.lines.retain(|_, line| {
            while line.front().is_some_and(|first| first.is_complete(now)) {
                let Some(first) = line.pop_front() else { break };
                ready.push_back(first.finished(repeated, most));
            }
            !line.is_empty()
        });
    }
}

/// Adds a message to a line: to its album, or at the end.
fn place_in(line: &mut VecDeque<Waiting>, arrival: Arrival, open_until: Option<Instant>) -> Option<&mut Waiting> {
    match line.iter().position(|waiting| waiting.arrival.message.is_part_of(&arrival.message)) {
        Some(at) => {
            let first = line.get_mut(at)?;
            first.open_until = open_until;
            first.arrival.absorb(arrival);
            Some(first)
        }
        None => {
            line.push_back(Waiting { arrival, files: Vec::new(), open_until });
            line.back_mut()
        }
    }
}

impl Arrival {
    /// The same message, without the calls that wait for its acknowledgement.
    pub(super) fn copy(&self) -> Self {
        let (message, more_updates) = (self.message.clone(), self.more_updates.clone());
        Self { update_id: self.update_id, more_updates, message, acks: Vec::new() }
    }

    /// Adds a further part of the album.
    fn absorb(&mut self, part: Self) {
        let Self { update_id, more_updates, message, acks } = part;
        self.more_updates.push(update_id);
        self.more_updates.extend(more_updates);
        self.acks.extend(acks);
        message.after.repeats(&self.message.after); // the first call may not wait long enough
        self.message.absorb(message);
    }
}

/// Whether a message is `/stop`, which stops the messages before it.
pub(super) fn is_stop(message: &AgentMessage) -> bool {
    match &message.inbound.body {
        Body::Text(text) => is_stop_command(text) && !message.inbound.is_relayed(),
        Body::Edit(_) | Body::Control(_) => false,
    }
}

/// Whether a message waits for no earlier one.
pub(super) fn passes(message: &AgentMessage) -> bool {
    match &message.inbound.body {
        Body::Text(text) => acts_at_once(text) && !message.inbound.is_relayed(),
        Body::Edit(_) => false,
        Body::Control(_) => true,
    }
}

impl AgentMessage {
    /// Whether it belongs to the same album as `part`, of the same sender.
    fn is_part_of(&self, part: &Self) -> bool {
        let (own, other) = (&self.inbound, &part.inbound);
        self.album.is_some() && self.album == part.album && own.principal.id == other.principal.id
    }

    /// Adds the text and the attachments of a further part of the album.
    fn absorb(&mut self, part: Self) {
        let Body::Text(more) = part.inbound.body else { return };
        let facts = part.inbound.provenance.as_deref();
        let mut provenance = self.inbound.provenance.as_deref().cloned().unwrap_or_default();
        self.inbound.relayed |= part.inbound.relayed;
        if let Some(facts) = facts {
            // Words of somebody else stay so, whichever part brings them.
            provenance.forwarded_from = provenance.forwarded_from.or_else(|| facts.forwarded_from.clone());
            provenance.not_read.extend(facts.not_read.iter().cloned());
            provenance.links.extend(facts.links.iter().cloned());
        }
        if let Body::Text(text) = &mut self.inbound.body
            && more != NO_TEXT
        {
            match text.as_str() {
                NO_TEXT => {
                    *text = more;
                    // An edit of the caption names its part.
                    provenance.message_id = facts.and_then(|facts| facts.message_id.clone());
                }
                _ => text.extend(["\n", &more]),
            }
        }
        self.inbound.provenance = Some(Arc::new(provenance));
    }

    /// Adds the files of the message, at most `most`, and the notice about those that were not read.
    fn complete(&mut self, files: Vec<(RemoteFile, Option<Result<Attachment, String>>)>, most: usize) {
        let mut provenance: Provenance = self.inbound.provenance.as_deref().cloned().unwrap_or_default();
        let mut voices = Vec::new();
        for (file, result) in files {
            match result {
                Some(Ok(attachment)) if provenance.attachments.len() < most => {
                    voices.extend(file.is_voice().then_some(provenance.attachments.len()));
                    if let Some(quote) = provenance.reply_to.as_mut().filter(|_| file.is_quoted) {
                        quote.file = Some(attachment.name.clone());
                    }
                    provenance.attachments.push(attachment);
                }
                Some(Ok(_)) => {
                    let reason = format!("a message has at most {most} files (attachments.max_count)");
                    provenance.not_read.push(file.unread(reason));
                }
                Some(Err(reason)) => provenance.not_read.push(file.unread(reason)),
                None => {}
            }
        }
        self.inbound.provenance = Some(Arc::new(provenance.cleaned()));
        self.set_notice();
        self.say(&voices);
    }

    /// Makes the transcripts of these attachments the text of the message: its sender has spoken instead of written. The
    /// text is marked, so it is neither a command nor an answer to a question. As a message with a file, it is still
    /// untrusted content: a recording may have the words of others.
    fn say(&mut self, voices: &[usize]) {
        let inbound = &mut self.inbound;
        let is_own = !inbound.is_relayed();
        let (Body::Text(text), Some(facts)) = (&mut inbound.body, &mut inbound.provenance) else { return };
        let files = &mut Arc::make_mut(facts).attachments;
        for at in voices.iter().filter(|_| is_own) {
            let Some(AttachmentContent::Text { text: spoken, detail, .. }) = files.get(*at).map(|file| &file.content)
            else {
                continue;
            };
            if spoken.len() > SPOKEN_MAX_BYTES {
                continue; // it stays the text of a file
            }
            let detail = format!("{detail}, which is part of the text of this message");
            files[*at].content = AttachmentContent::Spoken { text: spoken.clone(), detail };
        }
        *text = with_spoken(text, files);
    }
}
