//! Groups that have become supergroups. Telegram gives such a group a new id.
//!
//! Belay goes on with the first id: sessions, stored replies, jobs and routines keep it. Only requests to Telegram have the
//! newest id, and messages from it count as messages of the first one. So nothing that is stored has to change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_protocol::{ChannelId, MoveStore, MovedConversation, StoreError};
use tracing::{error, info, warn};

use super::NAME;
use super::people::AllowLists;

/// The groups that have moved, as a snapshot.
#[derive(Debug, Default)]
pub(super) struct MovedGroups {
    moves: Vec<MovedConversation>,
    /// The next id of an id.
    next: HashMap<i64, i64>,
    /// The previous id of an id, where the session is kept.
    previous: HashMap<i64, i64>,
}

impl MovedGroups {
    pub(super) fn of(moves: Vec<MovedConversation>) -> Self {
        let ids = |moved: &MovedConversation| Some((moved.from.parse().ok()?, moved.to.parse().ok()?));
        let next: HashMap<i64, i64> = moves.iter().filter_map(ids).collect();
        let kept = moves.iter().filter(|moved| moved.keeps_session).filter_map(ids);
        let previous = kept.map(|(from, to)| (to, from)).collect();
        Self { moves, next, previous }
    }

    /// The id that Telegram knows the group by.
    pub(super) fn current(&self, chat: i64) -> i64 {
        followed(&self.next, chat).last().unwrap_or(chat)
    }

    /// The id that the sessions of the group have.
    pub(super) fn first(&self, chat: i64) -> i64 {
        followed(&self.previous, chat).last().unwrap_or(chat)
    }

    /// All ids of the group, from the first to the newest.
    pub(super) fn ids(&self, chat: i64) -> impl DoubleEndedIterator<Item = i64> + use<> {
        followed(&self.next, self.first(chat)).collect::<Vec<_>>().into_iter()
    }

    /// Whether this is known: the new id, and that the session is kept if that is asked for.
    fn has(&self, from: i64, to: i64, keeps_session: bool) -> bool {
        self.next.get(&from) == Some(&to) && (!keeps_session || self.previous.get(&to) == Some(&from))
    }

    fn with(&self, moved: MovedConversation) -> Self {
        let others = self.moves.iter().filter(|known| known.from != moved.from).cloned();
        Self::of(others.chain([moved.clone()]).collect())
    }
}

/// The ids from `chat` on. Never endless, whatever the table says.
fn followed(steps: &HashMap<i64, i64>, chat: i64) -> impl Iterator<Item = i64> {
    std::iter::successors(Some(chat), |chat| steps.get(chat).copied()).take(steps.len() + 1)
}

/// How a move became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// By a service message, which Telegram sends at the time of the move.
    Message,
    /// By a refused request, perhaps long after the move.
    Refusal,
}

/// Learns which groups have moved, and keeps it in the store.
pub(super) struct Moves {
    lists: AllowLists,
    store: Arc<dyn MoveStore>,
    /// How many moves have taken effect. Held while one does, so that it is told once, and never over a call of the store: one
    /// that does not answer would hold up all groups.
    changes: Mutex<u64>,
}

impl Moves {
    pub(super) fn new(lists: AllowLists, store: Arc<dyn MoveStore>) -> Self {
        Self { lists, store, changes: Mutex::default() }
    }

    /// Reads the moves that are stored. Another node may have learned them.
    pub(super) async fn load(&self) -> Result<(), StoreError> {
        loop {
            let before = *self.changes();
            let stored = MovedGroups::of(self.store.moves(ChannelId::new(NAME)).await?);
            let changes = self.changes();
            // A move that has taken effect meanwhile may not be among them.
            if *changes == before {
                self.lists.replace_moved(stored);
                return Ok(());
            }
        }
    }

    fn changes(&self) -> MutexGuard<'_, u64> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id that Telegram knows the group by.
    pub(super) fn current(&self, chat: i64) -> i64 {
        self.lists.moved().current(chat)
    }

    /// Notes the new id that a refusal names. If the store fails, the next refusal names it again.
    pub(super) async fn note_refusal(&self, from: i64, to: i64) {
        if let Err(error) = self.note(from, to, Source::Refusal).await {
            error!(%error, from, to, "the new id of a group could not be stored");
        }
    }

    /// Notes that a served group has a new id: durable first, then in effect, then told once.
    ///
    /// # Errors
    /// The store fails; nothing is noted.
    pub(super) async fn note(&self, from: i64, to: i64, source: Source) -> Result<(), StoreError> {
        let known = self.lists.moved();
        let is_circle = known.ids(from).any(|id| id == to) && !known.has(from, to, false);
        if from >= 0 || to >= 0 || from == to || is_circle {
            return Ok(());
        }
        // Anybody may add the bot to a group and upgrade it: others are not remembered.
        if !self.lists.serves_group(from) && !self.lists.serves_group(to) {
            return Ok(());
        }
        // Where the settings have the new id before its move is known, it may already have a session of its own.
        let keeps_session = source == Source::Message || !self.lists.lists_group(to);
        if known.has(from, to, keeps_session) {
            return Ok(());
        }
        let (channel, moved) = (ChannelId::new(NAME), (from.to_string(), to.to_string()));
        let mut moved = MovedConversation { channel, from: moved.0, to: moved.1, keeps_session };
        self.store.put_move(moved.clone()).await?;
        let (is_news, overtook) = {
            let mut changes = self.changes();
            let known = self.lists.moved();
            let overtook = !keeps_session && known.has(from, to, true);
            moved.keeps_session |= overtook;
            self.lists.replace_moved(known.with(moved.clone()));
            *changes += 1;
            (!known.has(from, to, false), overtook)
        };
        if overtook {
            self.store.put_move(moved).await?; // it was stored at the same time, with its session
        }
        match self.lists.line_for_settings(from, to).filter(|_| is_news) {
            Some(line) => warn!(
                from,
                to,
                line,
                "a group has become a supergroup with a new id, under which it is served as before; put the line into the \
                 settings file, section [channels.telegram.groups]"
            ),
            None => info!(from, to, "a group has become a supergroup with a new id"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(from: i64, to: i64, keeps_session: bool) -> MovedConversation {
        MovedConversation { channel: "telegram".into(), from: from.to_string(), to: to.to_string(), keeps_session }
    }

    #[test]
    fn a_group_has_a_first_and_a_newest_id_over_any_number_of_moves() {
        let groups = MovedGroups::of(vec![moved(-1, -1001, true), moved(-1001, -1002, true), moved(-5, -1005, false)]);
        for (chat, first, current) in [
            (-1, -1, -1002),
            (-1001, -1, -1002),
            (-1002, -1, -1002),
            (-5, -5, -1005),
            (-1005, -1005, -1005),
            (-9, -9, -9),
        ] {
            assert_eq!((groups.first(chat), groups.current(chat)), (first, current), "{chat}");
        }
        assert!(groups.ids(-1002).eq([-1, -1001, -1002]) && groups.ids(-9).eq([-9]));
        let circle = MovedGroups::of(vec![moved(-1, -2, true), moved(-2, -1, true), moved(-3, -3, true)]);
        assert!(circle.current(-1) < 0 && circle.first(-2) < 0 && circle.ids(-3).count() > 0, "it ends");
    }
}
