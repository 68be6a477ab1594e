//! Agent events as server-sent events. The reader pulls, and resumes after the last id that it saw.

use std::collections::{HashMap, VecDeque};

use axum::response::sse;
use belay_protocol::RunId;
use futures_util::Stream;
use tokio::sync::OwnedSemaphorePermit;

use super::agent::{AgentEvent, AgentMapper};
use super::source::{News, Source};
use crate::app::Shared;
use crate::event_json::one_line;

/// The event stream of one reader.
struct Feed {
    app: Shared,
    source: Source,
    mappers: HashMap<RunId, AgentMapper>,
    out: VecDeque<AgentEvent>,
    /// Released when the stream is dropped.
    _permit: OwnedSemaphorePermit,
}

impl Feed {
    async fn next(&mut self) -> Option<AgentEvent> {
        loop {
            if let Some(event) = self.out.pop_front() {
                return Some(event);
            }
            let news = self.source.next().await?;
            if let News::Fact(fact, _) = &news
                && let Some(notice) = AgentEvent::notice(fact)
            {
                return Some(notice);
            }
            let Some((run, session)) = news.concerns() else { continue };
            let known = self.mappers.contains_key(&run);
            let mapper = self.mappers.entry(run).or_insert_with(|| AgentMapper::new(run, session, 0));
            self.out.extend(mapper.news(news, self.app.clock.now()));
            // Facts after the end of a run, such as its delivery, start no new mapper.
            if mapper.is_over() || (!known && self.out.is_empty()) {
                self.mappers.remove(&run);
            }
        }
    }
}

/// The events of a source. Dropping the stream releases the permit.
pub(crate) fn events(app: Shared, source: Source, permit: OwnedSemaphorePermit) -> impl Stream<Item = sse::Event> {
    let feed = Feed { app, source, mappers: HashMap::new(), out: VecDeque::new(), _permit: permit };
    futures_util::stream::unfold(feed, |mut feed| async move {
        let event = feed.next().await?;
        let id = event.cursor.map(|cursor| cursor.to_string());
        // Our own type: all keys are strings, so it cannot fail.
        let data = one_line(serde_json::to_string(&event).unwrap_or_default());
        let sent = sse::Event::default().event("agent").data(data);
        Some((id.into_iter().fold(sent, sse::Event::id), feed))
    })
}
