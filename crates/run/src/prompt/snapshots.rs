//! Which skills a conversation began with: it keeps them, so that its prompt stays the same, until it begins anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use belay_protocol::{SessionKey, Skills};

/// Sessions whose skills are remembered. Then: the one that began longest ago looks for them anew with its next run.
const CAPACITY: usize = 1024;

/// The skills of conversations. In memory alone: after a restart they are looked for anew. Held for a look-up.
#[derive(Debug, Default)]
pub struct Snapshots(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    of: HashMap<SessionKey, (u64, Arc<Skills>)>,
    next: u64,
}

impl Snapshots {
    /// The skills that a conversation began with.
    pub fn of(&self, session: &SessionKey) -> Option<Arc<Skills>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.of.get(session).map(|(_, skills)| skills.clone())
    }

    /// Remembers them, unless they are remembered already.
    pub fn keep(&self, session: &SessionKey, skills: &Arc<Skills>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.of.contains_key(session) {
            return;
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
    }

    /// The conversation begins anew.
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
