//! Claims to the keys of commands and answers. A claim is in the store before the command is carried out, so that it has
//! one effect over restarts and over all nodes of a cluster.
//!
//! A claim without a result belongs to a daemon that works, or to one that ended in between. The sender then learns that
//! the outcome is unknown, unless the command may be carried out twice.

use std::time::Duration;

use belay_protocol::store::{ClaimState, Claimed, KeyClaim};
use belay_protocol::{Ack, ActedOn, BootId, CommandReply, Decision, Refusal, Sent, UnixMillis};
use tokio::time::{Instant, sleep};

use crate::agent_services::AgentServices;
use crate::queue::BUSY_RETRY;
use crate::submission::word_of as word_of_text;

/// The reply to a redelivery, which is not carried out again.
const ACTED_ON_BEFORE: &str = "This was delivered before and has been carried out.";
const REFUSED_BEFORE: &str = "This was delivered before and was refused; send it with a new key to try again.";
/// The refusal of a command whose daemon has ended.
pub(crate) const UNKNOWN: &str =
    "Outcome unknown: the daemon that carried this out has ended. Look before you repeat it with a new key.";

/// How long a redelivery waits for the result of another node. 2 s: longer than a command takes that asks no model.
const WAIT: Duration = Duration::from_secs(2);
/// Pause between two readings of the result.
const LOOK: Duration = Duration::from_millis(100);

/// The time since which each claim of an ended daemon is taken over, for a command that may be carried out twice.
pub(crate) const ALWAYS: Option<UnixMillis> = Some(UnixMillis(i64::MIN));

/// A command or an answer that is about to be carried out.
pub(crate) struct Act<'a> {
    pub(crate) sent: &'a Sent,
    /// Whether it is a secret, whose digest is not stored.
    pub(crate) is_secret: bool,
    /// The word of the command, for the reply to a redelivery.
    pub(crate) word: &'a str,
    /// The node that has claimed it before, and has sent it here.
    pub(crate) claimed: Option<BootId>,
    /// See [`KeyClaim::again_since`].
    pub(crate) again_since: Option<UnixMillis>,
}

/// Claims the key of a command or an answer. `Err`: the acknowledgement of a redelivery or of a failure, instead of
/// carrying it out.
pub(crate) async fn claim(services: &AgentServices, act: &Act<'_>) -> Result<(), Box<Ack>> {
    let Act { sent, is_secret, word, claimed, again_since } = act;
    if *claimed == Some(services.boot) {
        return Ok(());
    }
    let claim = KeyClaim {
        key: sent.key.clone(),
        digest: (!is_secret).then(|| sent.digest.clone()),
        owner: services.boot,
        from: *claimed,
        again_since: *again_since,
        at: services.clock.now(),
    };
    Err(Box::new(match services.store.dispatcher.claim_key(claim).await {
        Ok(Claimed::Now) => return Ok(()),
        Ok(Claimed::Message(known)) if sent.is_again(&known) => Ack::Accepted(known.again(None)),
        Ok(Claimed::Message(known)) => Ack::Refused(Refusal::Conflict { run_id: known.run_id }),
        Ok(Claimed::Used { digest, state }) => used(sent, digest.as_deref(), state, word),
        Err(error) => Ack::Refused(Refusal::Store(error.to_string())),
    }))
}

/// Same as [`claim`], and waits for the result if another node carries it out.
pub(crate) async fn claim_or_wait(services: &AgentServices, act: &Act<'_>) -> Result<(), Box<Ack>> {
    let until = Instant::now() + WAIT;
    loop {
        match claim(services, act).await {
            Err(instead) if is_busy(&instead) && Instant::now() < until => sleep(LOOK).await,
            claimed => return claimed,
        }
    }
}

fn is_busy(instead: &Ack) -> bool {
    matches!(instead, Ack::Refused(Refusal::Busy { .. }))
}

/// The acknowledgement of a message, a command or an answer whose key a command or an answer has. `digest`: that of the
/// earlier one; `None`: it was a secret, and everything under its key counts as a redelivery.
pub(crate) fn used(sent: &Sent, digest: Option<&str>, state: ClaimState, word: &str) -> Ack {
    if digest.is_some_and(|digest| digest != sent.digest) {
        return Ack::Refused(Refusal::ConflictWithCommand);
    }
    match state {
        ClaimState::CarriedOut => acted_on_before(word.to_owned(), false),
        ClaimState::Refused => acted_on_before(word.to_owned(), true),
        ClaimState::Unknown => Ack::Refused(Refusal::Decided(UNKNOWN.to_owned())),
        ClaimState::InProgress => {
            let what = "another node carries this out at this moment".to_owned();
            Ack::Refused(Refusal::Busy { what, retry_after: BUSY_RETRY })
        }
    }
}

/// The reply to a redelivery of a command or an answer that was answered before.
pub(crate) fn acted_on_before(command: String, refused: bool) -> Ack {
    let reply = if refused { REFUSED_BEFORE } else { ACTED_ON_BEFORE }.to_owned();
    Ack::Command(CommandReply { command, reply, resumes: None, refused })
}

/// Stores that a command or an answer was acted on, or refused for good, before its sender is informed. It ends the claim.
pub(crate) async fn keep(services: &AgentServices, acted_on: ActedOn) {
    if let Err(error) = services.store.dispatcher.note_acted_on(&acted_on, services.clock.now()).await {
        tracing::warn!(%error, "the result of a command or an answer could not be stored: its outcome is unknown after a restart");
    }
}

/// The command in a text, or the command that an answer stands for. A secret is not repeated.
pub(crate) fn word_of_answer(text: &str) -> String {
    match Decision::from_words(text) {
        _ if text.trim_start().starts_with('/') => word_of_text(text),
        Some(decision) => word_of(decision).to_owned(),
        None => "/secret".to_owned(),
    }
}

/// The command that a decision stands for.
pub(crate) fn word_of(decision: Decision) -> &'static str {
    match decision {
        Decision::Approve => "/approve",
        Decision::Always => "/always",
        Decision::Deny => "/deny",
    }
}
