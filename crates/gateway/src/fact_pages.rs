//! Pages of new facts, read from the log and written as server-sent events once for all readers that are up to date.
//!
//! Fifty open consoles follow the same facts. Without this, each of them reads and serialises each fact.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{Event, EventLog, EventQuery, Seq, SessionKey, StoreError};
use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::event_json::one_line;

/// Facts per read.
const PAGE: u32 = 256;

/// How long a page is shared. 1 s: readers that were woken by the same commit come within milliseconds, and a later one
/// must not see what was deleted since then.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// Reads the facts of all sessions.
pub(crate) struct FactPages {
    log: Arc<dyn EventLog>,
    /// The newest page. Held while the log is read, so that one reader reads for all that wait.
    newest: Mutex<Option<Arc<FactPage>>>,
}

/// Consecutive facts of the log.
pub(crate) struct FactPage {
    after: Seq,
    /// All facts after `after` up to this one are in the page.
    pub(crate) upto: Seq,
    facts: Vec<WrittenFact>,
    bytes: Bytes,
    read_at: Instant,
}

/// A fact of a page, and where its server-sent event ends in the bytes of the page.
struct WrittenFact {
    seq: Seq,
    session: Option<SessionKey>,
    end: usize,
}

impl FactPages {
    /// Reads this log.
    pub(crate) fn new(log: Arc<dyn EventLog>) -> Self {
        Self { log, newest: Mutex::new(None) }
    }

    /// Returns a page with the first facts between `after` and `tip`, a number that the log has reached. It may begin
    /// before `after`, and end after `tip`.
    ///
    /// # Errors
    /// The log cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe: another reader reads the page.
    pub(crate) async fn read(&self, after: Seq, tip: Seq) -> Result<Arc<FactPage>, StoreError> {
        // A replay of old facts must not delay the readers of new ones.
        if tip.0.saturating_sub(after.0) > u64::from(PAGE) {
            return self.page(after, tip).await;
        }
        let mut newest = self.newest.lock().await;
        if let Some(page) = newest.as_ref().filter(|page| page.serves(after, tip)) {
            return Ok(page.clone());
        }
        let page = self.page(after, tip).await?;
        *newest = Some(page.clone());
        Ok(page)
    }

    async fn page(&self, after: Seq, tip: Seq) -> Result<Arc<FactPage>, StoreError> {
        let mut facts = self.log.read(EventQuery { after, run: None, session: None, limit: PAGE }).await?;
        let is_full = facts.len() >= PAGE as usize;
        // No cursor may be ahead of the newest fact that readers know of.
        facts.retain(|fact| fact.seq <= tip);
        let upto = facts.last().filter(|_| is_full).map_or(tip, |last| last.seq);
        let mut text = String::new();
        let write = |fact: Event| {
            text.push_str(&written(&fact));
            WrittenFact { seq: fact.seq, session: fact.session, end: text.len() }
        };
        let facts = facts.into_iter().map(write).collect();
        Ok(Arc::new(FactPage { after, upto, facts, bytes: text.into(), read_at: Instant::now() }))
    }
}

impl FactPage {
    /// Whether the page has the facts between these two, or the first of them.
    fn serves(&self, after: Seq, tip: Seq) -> bool {
        let has_first = self.after <= after && after < self.upto;
        has_first && self.upto >= tip && self.read_at.elapsed() < SHARED_FOR
    }

    /// The sessions of the facts after this one, each once for consecutive facts.
    pub(crate) fn sessions(&self, after: Seq) -> impl Iterator<Item = &SessionKey> {
        let mut last = None;
        self.facts
            .iter()
            .filter(move |fact| fact.seq > after)
            .filter_map(|fact| fact.session.as_ref())
            .filter(move |session| last.replace(*session) != Some(*session))
    }

    /// The events of the facts after this one whose session may be shown, in order. Pieces share the page's memory.
    pub(crate) fn events(&self, after: Seq, shown: impl Fn(&SessionKey) -> bool) -> Vec<Bytes> {
        let mut pieces: Vec<std::ops::Range<usize>> = Vec::new();
        let mut begin = 0;
        for fact in &self.facts {
            let event = begin..fact.end;
            begin = fact.end;
            if fact.seq <= after || !fact.session.as_ref().is_none_or(&shown) {
                continue;
            }
            match pieces.last_mut() {
                Some(piece) if piece.end == event.start => piece.end = event.end,
                _ => pieces.push(event),
            }
        }
        pieces.into_iter().map(|piece| self.bytes.slice(piece)).collect()
    }
}

/// A fact as a server-sent event.
fn written(fact: &Event) -> String {
    let value = serde_json::to_value(fact).unwrap_or_default(); // our own type: all keys are strings
    let kind = value.get("type").and_then(|kind| kind.as_str()).unwrap_or("event");
    event_text(fact.seq, kind, &value.to_string())
}

/// A server-sent event. The data is JSON, which has no line break.
pub(crate) fn event_text(id: Seq, kind: &str, data: &str) -> String {
    format!("id: {}\nevent: {kind}\ndata: {}\n\n", id.0, one_line(data.into()))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as StdMutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use belay_protocol::{EventKind, NewEvent, UnixMillis};
    use tokio::sync::watch;

    use super::*;

    /// A log that counts how often it is read.
    #[derive(Default)]
    struct Log {
        facts: StdMutex<Vec<Event>>,
        reads: AtomicUsize,
        tip: watch::Sender<Seq>,
    }

    impl Log {
        /// Adds facts of these sessions.
        fn add(&self, sessions: &[&str]) -> Seq {
            let mut facts = self.facts.lock().unwrap();
            for session in sessions {
                let seq = Seq(facts.len() as u64 + 1);
                let (at, session) = (UnixMillis(0), Some((*session).into()));
                facts.push(Event { seq, at, session, run_id: None, kind: EventKind::RunAccepted });
            }
            self.tip.send_replace(Seq(facts.len() as u64));
            Seq(facts.len() as u64)
        }

        fn reads(&self) -> usize {
            self.reads.load(Ordering::Relaxed)
        }
    }

    #[async_trait]
    impl EventLog for Log {
        async fn append(&self, _: Vec<NewEvent>) -> Result<(), StoreError> {
            Ok(())
        }

        async fn read(&self, query: EventQuery) -> Result<Vec<Event>, StoreError> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            let facts = self.facts.lock().unwrap();
            Ok(facts.iter().filter(|fact| fact.seq > query.after).take(query.limit as usize).cloned().collect())
        }

        fn tip(&self) -> watch::Receiver<Seq> {
            self.tip.subscribe()
        }

        async fn newest(&self) -> Result<Seq, StoreError> {
            Ok(*self.tip.borrow())
        }
    }

    fn pages() -> (Arc<Log>, FactPages) {
        let log = Arc::new(Log::default());
        (log.clone(), FactPages::new(log))
    }

    /// The numbers and sessions of the events of a page.
    fn ids(page: &FactPage, after: u64, shown: impl Fn(&SessionKey) -> bool) -> Vec<u64> {
        let text: Vec<u8> = page.events(Seq(after), shown).concat();
        let text = String::from_utf8(text).unwrap();
        text.lines().filter_map(|line| line.strip_prefix("id: ")).map(|id| id.parse().unwrap()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn readers_that_are_up_to_date_share_one_read_of_the_log() {
        let (log, pages) = pages();
        let tip = log.add(&["a", "b", "a"]);
        let read = futures_util::future::join_all((0..50).map(|_| pages.read(Seq(1), tip))).await;
        for page in read {
            let page = page.unwrap();
            assert_eq!((ids(&page, 1, |_| true), page.upto), (vec![2, 3], Seq(3)));
        }
        assert_eq!(log.reads(), 1);

        // A reader that is a fact ahead uses the same page, and one that is behind reads one for both.
        assert_eq!(ids(&pages.read(Seq(2), tip).await.unwrap(), 2, |_| true), [3]);
        assert_eq!((ids(&pages.read(Seq(0), tip).await.unwrap(), 0, |_| true), log.reads()), (vec![1, 2, 3], 2));
        assert_eq!((ids(&pages.read(Seq(1), tip).await.unwrap(), 1, |_| true), log.reads()), (vec![2, 3], 2));

        let tip = log.add(&["c"]);
        assert_eq!((ids(&pages.read(Seq(3), tip).await.unwrap(), 3, |_| true), log.reads()), (vec![4], 3));
        tokio::time::advance(SHARED_FOR).await;
        pages.read(Seq(3), tip).await.unwrap();
        assert_eq!(log.reads(), 4, "a page is not kept");
    }

    #[tokio::test]
    async fn a_replay_reads_all_pages_and_leaves_the_newest_one() {
        let (log, pages) = pages();
        let tip = log.add(&["a"; 600]);
        pages.read(Seq(599), tip).await.unwrap();
        let (mut after, mut found) = (Seq(0), Vec::new());
        while after < tip {
            let page = pages.read(after, tip).await.unwrap();
            found.extend(ids(&page, after.0, |_| true));
            after = page.upto;
        }
        assert_eq!((found, log.reads()), ((1..=600).collect::<Vec<_>>(), 4));
        assert_eq!(
            ids(&pages.page(Seq(0), Seq(7)).await.unwrap(), 0, |_| true),
            [1, 2, 3, 4, 5, 6, 7],
            "not yet known"
        );
    }

    #[tokio::test]
    async fn hidden_facts_are_left_out() {
        let (log, pages) = pages();
        let tip = log.add(&["a", "hidden", "a", "a", "hidden"]);
        let page = pages.read(Seq(0), tip).await.unwrap();
        let shown = |session: &SessionKey| session.as_str() != "hidden";
        assert_eq!(ids(&page, 0, shown), [1, 3, 4]);
        assert_eq!(page.events(Seq(0), shown).len(), 2, "consecutive facts are one piece");
        assert_eq!(page.sessions(Seq(0)).map(SessionKey::as_str).collect::<Vec<_>>(), ["a", "hidden", "a", "hidden"]);
        assert_eq!(page.sessions(Seq(3)).map(SessionKey::as_str).collect::<Vec<_>>(), ["a", "hidden"]);
    }
}
