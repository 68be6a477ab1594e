//! Who may talk to Belay, and in which rooms. Messages, reactions, invitations and autonomous work are all checked
//! here.
//!
//! A listed room may have several people. Every other room is served while it has one person beside Belay.

mod access;
mod crowd;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_protocol::principal::Role;
use belay_protocol::{MoveStore, MovedConversation, StoreError};

use crate::NAME;
use crate::config::{MatrixConfig, is_room};

/// The people and rooms of the settings, and what is known about rooms. Clones share it. The lock is held for a few
/// instructions and never across an await.
#[derive(Clone, Default)]
pub struct MatrixPeople(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    allow: HashSet<String>,
    operators: HashSet<String>,
    rooms: HashSet<String>,
    /// Whether rooms that are not listed have more than one person beside Belay, as far as it is known.
    crowded: HashMap<String, bool>,
    /// How often people may have come or gone.
    changes: u64,
    /// The room that has replaced a room, and the reverse.
    next: HashMap<String, String>,
    previous: HashMap<String, String>,
}

impl State {
    /// The ids of a room, from the first to the newest. Never endless, whatever the tables say.
    fn ids<'a>(&'a self, room: &'a str) -> Vec<&'a str> {
        let first = followed(&self.previous, room).last();
        followed(&self.next, first.unwrap_or_default()).collect()
    }

    fn is_listed(&self, room: &str) -> bool {
        self.rooms.contains(room) || self.ids(room).into_iter().any(|id| self.rooms.contains(id))
    }

    fn role(&self, user: &str) -> Option<Role> {
        let listed = |list: &HashSet<String>, role| list.contains(user).then_some(role);
        listed(&self.operators, Role::Operator).or_else(|| listed(&self.allow, Role::User))
    }
}

fn followed<'a>(steps: &'a HashMap<String, String>, room: &'a str) -> impl Iterator<Item = &'a str> {
    std::iter::successors(Some(room), |room| steps.get(*room).map(String::as_str)).take(steps.len() + 1)
}

impl MatrixPeople {
    /// The people and rooms of these settings.
    pub fn of(config: &MatrixConfig) -> Self {
        let people = Self::default();
        people.replace(config);
        people
    }

    /// Replaces what comes from the settings.
    pub fn replace(&self, config: &MatrixConfig) {
        let set = |ids: &[String]| ids.iter().cloned().collect();
        let mut state = self.state();
        (state.allow, state.operators, state.rooms) = (set(&config.allow), set(&config.operators), set(&config.rooms));
    }

    /// Reads which rooms others have replaced.
    ///
    /// # Errors
    /// The store fails; nothing has changed.
    pub async fn load_moves(&self, store: &dyn MoveStore) -> Result<(), StoreError> {
        self.note_moves(store.moves(NAME.into()).await?);
        Ok(())
    }

    /// Notes the rooms that others have replaced.
    pub(crate) fn note_moves(&self, moves: Vec<MovedConversation>) {
        let mut state = self.state();
        for MovedConversation { from, to, keeps_session, .. } in moves {
            let is_circle = state.ids(&from).contains(&to.as_str());
            if is_room(&from) && is_room(&to) && !is_circle {
                if keeps_session {
                    state.previous.insert(to.clone(), from.clone());
                }
                state.next.insert(from, to);
            }
        }
    }

    /// The conversation of a room: the id that it had first.
    pub(crate) fn conversation(&self, room: &str) -> String {
        let state = self.state();
        followed(&state.previous, room).last().unwrap_or(room).to_owned()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg_attr(not(feature = "client"), expect(dead_code, reason = "a build without the channel"))]
impl MatrixPeople {
    /// Whether anybody may talk to Belay.
    pub(crate) fn has_anybody(&self) -> bool {
        let state = self.state();
        !state.allow.is_empty() || !state.operators.is_empty()
    }

    /// The role of a user; `None`: the user may not talk to Belay.
    pub(crate) fn role(&self, user: &str) -> Option<Role> {
        self.state().role(user)
    }

    /// Whether the settings list the room, under any of its ids.
    pub(crate) fn is_listed(&self, room: &str) -> bool {
        self.state().is_listed(room)
    }

    /// The room that stands for this one now.
    pub(crate) fn current(&self, room: &str) -> String {
        let state = self.state();
        followed(&state.next, room).last().unwrap_or(room).to_owned()
    }
}

#[cfg(test)]
mod tests;
