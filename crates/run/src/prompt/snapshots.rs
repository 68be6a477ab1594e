//! The skills that each conversation began with. They stay the same until a new conversation begins, so that the prompt
//! does not change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use belay_protocol::{SessionKey, Skills};

/// Maximum number of sessions. Beyond it, the oldest entry is evicted, and that session reads its skills from the store
/// with its next run.
const CAPACITY: usize = 1024;

/// The skills of conversations, in memory. The store has them too. The lock is held for a look-up.
#[derive(Debug, Default)]
pub struct Snapshots(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    of: HashMap<SessionKey, (u64, Arc<Skills>)>,
    next: u64,
}

impl Snapshots {
    /// The skills that a conversation began with, if known.
    pub fn of(&self, session: &SessionKey) -> Option<Arc<Skills>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.of.get(session).map(|(_, skills)| skills.clone())
    }

    /// Stores the skills of a conversation, unless it has some already. Returns whether it did.
    pub fn keep(&self, session: &SessionKey, skills: &Arc<Skills>) -> bool {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.of.contains_key(session) {
            return false;
        }
        if kept.of.len() == CAPACITY
            && let Some(oldest) =
                kept.of.iter().min_by_key(|(_, (number, _))| *number).map(|(session, _)| session.clone())
        {
            kept.of.remove(&oldest);
        }
        let number = kept.next;
        kept.next += 1;
        kept.of.insert(session.clone(), (number, skills.clone()));
        true
    }

    /// Removes the skills of a session whose new conversation begins.
    pub fn forget(&self, session: &SessionKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).of.remove(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_keeps_its_skills_until_it_begins_anew() {
        let snapshots = Snapshots::default();
        let [first, second]: [Arc<Skills>; 2] = [Arc::default(), Arc::default()];
        let session = SessionKey::new("a");
        assert!(snapshots.of(&session).is_none());
        snapshots.keep(&session, &first);
        snapshots.keep(&session, &second);
        assert!(snapshots.of(&session).is_some_and(|kept| Arc::ptr_eq(&kept, &first)));
        snapshots.forget(&session);
        snapshots.keep(&session, &second);
        assert!(snapshots.of(&session).is_some_and(|kept| Arc::ptr_eq(&kept, &second)));
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let snapshots = Snapshots::default();
        for number in 0..=CAPACITY {
            snapshots.keep(&SessionKey::new(number.to_string()), &Arc::default());
        }
        assert!(snapshots.of(&SessionKey::new("0")).is_none());
        assert!(snapshots.of(&SessionKey::new("1")).is_some());
    }
}
