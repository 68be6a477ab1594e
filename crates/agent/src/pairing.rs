//! Pairing: issues codes to strangers, and admits those whose code an operator enters.
//!
//! Codes and admissions are in memory and in the store. A change is durable before it takes effect and before anybody
//! is told. No message costs a look-up in the store: channels check a snapshot of the admitted people. A code is taken
//! from the store, so that it is valid once among all daemons that share the database.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use belay_protocol::people::{CODE_CHARS, CODE_VALID_MS, PENDING_MAX};
use belay_protocol::{
    AdmittedBy, ChannelId, ChannelPeople, Clock, PairedPerson, PairingCode, PairingCodes, PendingPairing,
    PendingReport, PeopleReport, PeopleStore, PersonReport, Principal, PrincipalRole, Refusal, StoreError, Stranger,
    UnixMillis,
};
use tokio::sync::Mutex as AsyncMutex;
use uuid::Uuid;

/// The answer to every text that is no valid code, so that it tells nothing about the codes.
const NO_SUCH_CODE: &str = "There is no such code. A code is valid for one hour, and once.";

/// The number of wrong codes that one person may enter within [`WRONG_WINDOW_MS`].
const WRONG_MAX: usize = 10;

/// The time after which a wrong code no longer counts, in milliseconds. 10 minutes.
const WRONG_WINDOW_MS: i64 = 600_000;

/// The number of wrong codes that are remembered, of all people. Beyond it, nobody may enter a code until the oldest is
/// forgotten.
const WRONG_KEPT: usize = 256;

/// Issues codes, admits people and removes them.
pub struct Pairing {
    store: Arc<dyn PeopleStore>,
    clock: Arc<dyn Clock>,
    /// The channels with pairing.
    channels: Vec<(ChannelId, Arc<dyn ChannelPeople>)>,
    /// Codes that this daemon has issued or loaded and that nobody has entered here, expired ones included. The lock is
    /// held for a few instructions.
    pending: Mutex<Vec<PendingPairing>>,
    /// The admitted people. Changed by the holder of `writing`; the lock is held for a copy.
    paired: Mutex<Vec<PairedPerson>>,
    /// The wrong codes of the last minutes, the oldest first.
    wrong: Mutex<VecDeque<(UnixMillis, ChannelId, Arc<str>)>>,
    /// Held while a code is looked up, and while an admission is written and takes effect: wrong codes are counted one
    /// by one, and the snapshots follow the store in its order.
    writing: AsyncMutex<()>,
}

/// A person who was admitted just now.
pub(crate) struct Admission {
    pub(crate) person: Stranger,
    /// The first message to the person.
    pub(crate) greeting: Option<String>,
}

impl Pairing {
    /// Loads the people whom earlier starts have admitted, and gives them to their channels.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn load(
        store: Arc<dyn PeopleStore>,
        clock: Arc<dyn Clock>,
        channels: Vec<(ChannelId, Arc<dyn ChannelPeople>)>,
    ) -> Result<Self, StoreError> {
        let (paired, pending) = (store.paired().await?, store.pending_pairings(clock.now()).await?);
        let (paired, pending) = (Mutex::new(paired), Mutex::new(pending));
        let this =
            Self { store, clock, channels, pending, paired, wrong: Mutex::default(), writing: AsyncMutex::default() };
        this.channels.iter().for_each(|(channel, _)| this.publish(channel));
        Ok(this)
    }

    /// The people of all channels, and the strangers with a valid code.
    pub(crate) fn report(&self) -> PeopleReport {
        let listed = self.channels.iter().flat_map(|(channel, people)| {
            let listed = people.listed().into_iter();
            listed.map(|(id, role)| PersonReport {
                channel: channel.clone(),
                id,
                name: None,
                role: if role == PrincipalRole::Operator { "operator" } else { "user" },
                admitted: AdmittedBy::Settings,
            })
        });
        let paired = lock(&self.paired).clone();
        let paired = paired.into_iter().map(|paired| PersonReport {
            channel: paired.person.channel,
            id: paired.person.id,
            name: Some(paired.person.name),
            role: "user",
            admitted: AdmittedBy::Pairing {
                operator: paired.admitted_by,
                through: paired.admitted_through,
                at: paired.admitted_at,
            },
        });
        let now = self.clock.now();
        let pending = lock(&self.pending).clone();
        let pending = pending.into_iter().filter(|code| code.expires_at > now).map(|code| {
            let Stranger { channel, id, name, conversation: _ } = code.person;
            PendingReport { channel, id, name, expires_at: code.expires_at }
        });
        PeopleReport { people: listed.chain(paired).collect(), pending: pending.collect() }
    }

    /// Admits the stranger with this code. `by` is an operator of the channel `through`.
    ///
    /// # Errors
    /// There is no such code, the operator has entered too many wrong ones, or the store fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, the code may be used up without an admission. The stranger gets another one after an
    /// hour.
    pub(crate) async fn admit(&self, code: &str, by: &Principal, through: &ChannelId) -> Result<Admission, Refusal> {
        let _writing = self.writing.lock().await;
        let now = self.clock.now();
        self.refuse_guesses(now, by, through)?;
        let Some(pending) = self.take(code, now).await? else {
            self.note_wrong(now, by, through);
            tracing::warn!(operator = %by.id, channel = %through, "a pairing code that does not exist");
            return Err(Refusal::Unknown(NO_SUCH_CODE.to_owned()));
        };
        let paired = PairedPerson {
            person: pending.person.clone(),
            admitted_by: by.id.to_string(),
            admitted_through: through.clone(),
            admitted_at: now,
        };
        if let Err(error) = self.store.admit_person(paired.clone()).await {
            self.give_back(pending, now).await;
            return Err(Refusal::Store(error.to_string()));
        }
        let Stranger { channel, id, .. } = &paired.person;
        tracing::info!(person = %format_args!("{channel}:{id}"), operator = %by.id, "a person is admitted by pairing");
        {
            let mut all = lock(&self.paired);
            all.retain(|known| known.person.channel != *channel || known.person.id != *id);
            all.push(paired.clone());
        }
        self.publish(channel);
        let greeting = self.greeting(channel);
        Ok(Admission { person: paired.person, greeting })
    }

    /// Revokes the admission of a person.
    ///
    /// # Errors
    /// Pairing has not admitted the person, or the store fails.
    pub(crate) async fn remove(&self, channel: &ChannelId, id: &str, by: &Principal) -> Result<(), Refusal> {
        let _writing = self.writing.lock().await;
        let revoked = self.store.remove_person(channel.clone(), id.to_owned()).await;
        if !revoked.map_err(|error| Refusal::Store(error.to_string()))? {
            return Err(Refusal::Unknown(self.not_paired(channel, id)));
        }
        tracing::info!(person = %format_args!("{channel}:{id}"), operator = %by.id, "a person is removed");
        lock(&self.paired).retain(|known| known.person.channel != *channel || known.person.id != id);
        self.publish(channel);
        Ok(())
    }

    /// Reads the people and the codes again, which other daemons may have changed. Returns the people who are admitted no
    /// more.
    ///
    /// # Errors
    /// The store does not answer.
    pub(crate) async fn reload(&self) -> Result<Vec<Stranger>, StoreError> {
        let _writing = self.writing.lock().await;
        let stored = self.store.paired().await?;
        // A code that is written at this moment may be missing here until the next reading; the store has it.
        let codes = self.store.pending_pairings(self.clock.now()).await?;
        *lock(&self.pending) = codes;
        let known = std::mem::replace(&mut *lock(&self.paired), stored.clone());
        if known == stored {
            return Ok(Vec::new());
        }
        self.channels.iter().for_each(|(channel, _)| self.publish(channel));
        let is_stored = |person: &Stranger| {
            stored.iter().any(|paired| paired.person.channel == person.channel && paired.person.id == person.id)
        };
        Ok(known.into_iter().map(|paired| paired.person).filter(|person| !is_stored(person)).collect())
    }

    fn not_paired(&self, channel: &ChannelId, id: &str) -> String {
        let is_listed = |people: &Arc<dyn ChannelPeople>| people.listed().iter().any(|(listed, _)| listed == id);
        if self.people_of(channel).is_some_and(is_listed) {
            return format!(
                "The settings admit {channel}:{id}. Remove the id from channels.{channel}.allow or operators, and \
                 reload the settings."
            );
        }
        format!("Pairing has not admitted {channel}:{id}. `belay people` lists everybody.")
    }

    /// The first message of a channel to a person.
    pub(crate) fn greeting(&self, channel: &ChannelId) -> Option<String> {
        self.people_of(channel)?.greeting()
    }

    fn people_of(&self, channel: &ChannelId) -> Option<&Arc<dyn ChannelPeople>> {
        self.channels.iter().find(|(name, _)| name == channel).map(|(_, people)| people)
    }

    /// Gives a channel its admitted people.
    fn publish(&self, channel: &ChannelId) {
        let Some(people) = self.people_of(channel) else { return };
        let paired = lock(&self.paired);
        let of_channel: Vec<_> = paired.iter().filter(|paired| paired.person.channel == *channel).cloned().collect();
        people.replace_paired(&of_channel);
    }

    /// Takes a valid code out of the store. `None`: there is no such code.
    async fn take(&self, code: &str, now: UnixMillis) -> Result<Option<PendingPairing>, Refusal> {
        let Some(code) = PairingCode::parse(code) else { return Ok(None) };
        let taken = self.store.take_pairing(code.digest(), now).await;
        let taken = taken.map_err(|error| Refusal::Store(error.to_string()))?;
        if let Some(pending) = &taken {
            self.forget(&pending.person);
        }
        Ok(taken)
    }

    /// Stores a code again that was taken without an admission. If that fails too, the stranger can ask for another one.
    async fn give_back(&self, pending: PendingPairing, now: UnixMillis) {
        match self.store.put_pairing(pending.clone(), now).await {
            Ok(()) => lock(&self.pending).push(pending),
            Err(error) => tracing::warn!(%error, "a pairing code is lost; the stranger gets another one on request"),
        }
    }

    fn refuse_guesses(&self, now: UnixMillis, by: &Principal, through: &ChannelId) -> Result<(), Refusal> {
        let mut wrong = lock(&self.wrong);
        while wrong.front().is_some_and(|(at, ..)| now.0.saturating_sub(at.0) >= WRONG_WINDOW_MS) {
            wrong.pop_front();
        }
        let own = wrong.iter().filter(|(_, channel, id)| channel == through && *id == by.id).count();
        if own >= WRONG_MAX || wrong.len() >= WRONG_KEPT {
            return Err(Refusal::Forbidden("Too many wrong codes. Try again in ten minutes.".to_owned()));
        }
        Ok(())
    }

    fn note_wrong(&self, now: UnixMillis, by: &Principal, through: &ChannelId) {
        lock(&self.wrong).push_back((now, through.clone(), by.id.clone()));
    }

    /// Reserves a code for a stranger, in memory.
    fn reserve(&self, stranger: &Stranger, now: UnixMillis) -> Option<(PairingCode, PendingPairing)> {
        let mut pending = lock(&self.pending);
        pending.retain(|code| code.expires_at > now);
        let of_channel = pending.iter().filter(|code| code.person.channel == stranger.channel);
        if of_channel.count() >= PENDING_MAX || pending.iter().any(|code| is_of(code, stranger)) {
            return None;
        }
        let code = random_code();
        let new = PendingPairing {
            person: stranger.clone(),
            code_digest: code.digest(),
            expires_at: UnixMillis(now.0.saturating_add(CODE_VALID_MS)),
        };
        pending.push(new.clone());
        Some((code, new))
    }

    fn forget(&self, stranger: &Stranger) {
        lock(&self.pending).retain(|code| !is_of(code, stranger));
    }
}

#[async_trait]
impl PairingCodes for Pairing {
    async fn issue(&self, stranger: Stranger) -> Result<Option<PairingCode>, StoreError> {
        let now = self.clock.now();
        let Some((code, pending)) = self.reserve(&stranger, now) else { return Ok(None) };
        if let Err(error) = self.store.put_pairing(pending, now).await {
            self.forget(&stranger);
            // Other daemons have issued codes too.
            return if matches!(error, StoreError::TooMuch(_)) { Ok(None) } else { Err(error) };
        }
        tracing::info!(person = %format_args!("{}:{}", stranger.channel, stranger.id), "a stranger has a pairing code");
        Ok(Some(code))
    }

    async fn withdraw(&self, stranger: &Stranger) {
        self.forget(stranger);
        if let Err(error) = self.store.drop_pairing(stranger.channel.clone(), stranger.id.clone()).await {
            tracing::warn!(%error, "a pairing code that nobody has received stays until it expires");
        }
    }
}

fn is_of(code: &PendingPairing, stranger: &Stranger) -> bool {
    code.person.channel == stranger.channel && code.person.id == stranger.id
}

/// A code from the operating system's random numbers: the first bytes of a random UUID, none of which is fixed before
/// the seventh. Source: RFC 9562, section 5.4.
fn random_code() -> PairingCode {
    let (first, second) = (Uuid::new_v4().into_bytes(), Uuid::new_v4().into_bytes());
    let mut bytes = [0; CODE_CHARS];
    bytes[..4].copy_from_slice(&first[..4]);
    bytes[4..].copy_from_slice(&second[..4]);
    PairingCode::from_bytes(bytes)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
