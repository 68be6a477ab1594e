//! Requests about routines: create, change, delete, start. Programs, chat commands, messages and events make them.

use std::time::Duration;

use belay_crash_point::crash_point;
use belay_protocol::routine::{ROUTINE_TEXT_MAX_BYTES, WEBHOOK_ECHO_MS};
use belay_protocol::routine_run::ROUTINE_RUN_DETAIL_MAX_CHARS;
use belay_protocol::{
    Asker, Authority, ChannelId, Claim, Echo, FreezeScope, Held, Inbound, NewRoutine, NewRoutineRun, PutBy, PutRule,
    Refusal, ReplyRoute, RoutineAnswer, RoutineId, RoutineOrigin, RoutinePut, RoutineRecord, RoutineRequest,
    RoutineRunId, RoutineSpec, SessionKey, StoreError, Trigger, UnixMillis,
};
use serde_json::Value;

use super::events::TriggeredRoutine;
use super::registry::Handed;
use super::service::RoutineService;
use super::{check, heartbeat};
use belay_schedule::schedule::Schedule;

/// When to try again after a refusal that a running or recent routine run causes.
const BUSY_RETRY: Duration = Duration::from_secs(5);

/// The client of a request about routines.
#[derive(Clone, Debug)]
pub struct RoutineRequester {
    /// The principal in whose name the request is made.
    pub asker: Asker,
    /// The channel of the request.
    pub channel: ChannelId,
    /// The session of the request.
    pub session: SessionKey,
    /// The reply route of that session.
    pub reply_to: Option<ReplyRoute>,
    /// Identifies the request, so that a second delivery is recognised.
    pub key: Option<String>,
}

impl RoutineRequester {
    /// The sender of this message.
    pub fn of(inbound: &Inbound) -> Self {
        let Inbound { principal, channel, session, reply_to, relayed, key, .. } = inbound;
        Self {
            asker: Asker { principal: principal.id.to_string(), authority: principal.role.into(), relayed: *relayed },
            channel: channel.clone(),
            session: session.clone(),
            // The notices of a routine quote no message, since they may come much later.
            reply_to: reply_to.clone().map(|route| ReplyRoute { reply_to: None, ..route }),
            key: key.as_ref().map(|key| format!("{}/{}/{}", key.channel, key.account, key.message_id)),
        }
    }

    /// Returns whether the client may change, see and start a routine.
    pub(super) fn may_touch(&self, routine: &RoutineRecord) -> bool {
        self.asker.owns(&self.channel, &routine.creator, &routine.channel)
    }

    fn is_program(&self) -> bool {
        self.asker.authority != Authority::Conversation
    }
}

/// Executes a request.
///
/// # Errors
/// Why the request was not executed.
pub async fn request(
    service: &RoutineService,
    request: RoutineRequest,
    by: &RoutineRequester,
) -> Result<RoutineAnswer, Refusal> {
    if service.draining.is_cancelled() {
        return Err(Refusal::ShuttingDown);
    }
    match request {
        RoutineRequest::Put { spec, fresh } => put(service, spec, fresh, by).await,
        RoutineRequest::Enable { name, on } => enable(service, &name, on, by).await,
        RoutineRequest::Delete(name) => delete(service, &name, by).await,
        RoutineRequest::Revoke { name, grant } => revoke(service, &name, grant, by).await,
        RoutineRequest::Fire { name, payload } => fire(service, &name, payload, by).await,
        RoutineRequest::Webhook { name, delivery, payload } => webhook(service, &name, delivery, payload, by).await,
        RoutineRequest::Emit { source, event, key, payload } => {
            emit(service, (&source, &event), key, payload, by).await
        }
        RoutineRequest::Heartbeat if by.asker.authority != Authority::Operator => {
            Err(Refusal::Forbidden("Only an operator may look at the heartbeat.".into()))
        }
        RoutineRequest::Heartbeat => {
            let report = heartbeat::report(service).await.map_err(unstored)?;
            Ok(RoutineAnswer::Heartbeat(Box::new(report)))
        }
    }
}

fn unstored(error: StoreError) -> Refusal {
    Refusal::Store(error.to_string())
}

fn is_on(service: &RoutineService) -> Result<(), Refusal> {
    if service.registry.config.enabled {
        Ok(())
    } else {
        Err(Refusal::Forbidden("Routines are disabled here (routines.enabled).".into()))
    }
}

/// Finds a routine that the client may see. The error does not reveal whether another person's routine exists.
pub(super) async fn find(
    service: &RoutineService,
    name: &str,
    by: &RoutineRequester,
) -> Result<RoutineRecord, Refusal> {
    let routine = service.routines.routine(name).await.map_err(unstored)?;
    let theirs = routine.filter(|routine| by.may_touch(routine));
    theirs.ok_or_else(|| Refusal::Unknown(format!("There is no routine named {name} of yours; /routine lists them.")))
}

fn not_of_config(routine: &RoutineRecord) -> Result<(), Refusal> {
    match routine.origin {
        RoutineOrigin::Made => Ok(()),
        RoutineOrigin::Config => {
            let name = &routine.spec.name;
            Err(Refusal::Forbidden(format!("The routine {name} is part of the configuration: change it there.")))
        }
        RoutineOrigin::Heartbeat => {
            let what = "The heartbeat is part of the configuration: change, enable or disable it in [heartbeat].";
            Err(Refusal::Forbidden(what.to_owned()))
        }
    }
}

async fn put(
    service: &RoutineService,
    spec: RoutineSpec,
    fresh: bool,
    by: &RoutineRequester,
) -> Result<RoutineAnswer, Refusal> {
    is_on(service)?;
    let (store, now) = (&service.routine_store, service.clock.now());
    // Only for the parts that remain unchanged: the store checks the owner and the number of routines when it writes.
    let old = service.routines.routine(&spec.name).await.map_err(unstored)?;
    let spec = check::with_known_secret(spec, old.as_ref().filter(|old| by.may_touch(old)));
    let mut problems = check::problems(&spec);
    problems.extend(check::reserved(&spec.name).map(|problem| format!("name: {problem}")));
    if !problems.is_empty() {
        return Err(Refusal::Invalid(problems.join("\n")));
    }
    if spec.notify.to.is_some() && by.asker.authority != Authority::Operator {
        let what = "notify.to: only an operator may have a routine write to another conversation; leave it out";
        return Err(Refusal::Forbidden(what.into()));
    }
    if !spec.allow.is_empty() && by.asker.relayed {
        return Err(Refusal::Forbidden("allow: a relayed message cannot grant anything; send it yourself.".into()));
    }
    let (spec, schedule) = check::written_out(spec, old.as_ref(), now)
        .map_err(|error| Refusal::Invalid(format!("trigger.when: {error}")))?;
    let next_at = schedule.as_ref().and_then(|schedule| schedule.next_after(now));
    if let Some(schedule) = schedule.as_ref().filter(|_| next_at.is_none()) {
        return Err(Refusal::Invalid(format!("trigger.when: `{schedule}` is over: it would never fire")));
    }
    let new = NewRoutine {
        id: RoutineId::new(),
        spec,
        creator: by.asker.clone(),
        channel: by.channel.clone(),
        made_in: by.session.clone(),
        reply_to: by.reply_to.clone(),
        origin: RoutineOrigin::Made,
        next_at,
        at: now,
    };
    let hand = match by.asker.authority {
        Authority::Operator => PutBy::Operator,
        Authority::Conversation | Authority::Token => PutBy::Owner { most: service.registry.config.max_per_person },
    };
    match store.put(new, PutRule { fresh, by: hand }).await.map_err(unstored)? {
        RoutinePut::Done(routine) => {
            tracing::info!(routine = routine.spec.name, revision = routine.revision, "a routine was put");
            service.registry.put(&routine);
            Ok(RoutineAnswer::Routine(routine))
        }
        RoutinePut::Refused(why) => Err(Refusal::Invalid(why)),
        RoutinePut::Forbidden(why) => Err(Refusal::Forbidden(why)),
    }
}

async fn enable(
    service: &RoutineService,
    name: &str,
    on: bool,
    by: &RoutineRequester,
) -> Result<RoutineAnswer, Refusal> {
    let (routine, now) = (find(service, name, by).await?, service.clock.now());
    if routine.origin == RoutineOrigin::Heartbeat {
        not_of_config(&routine)?;
    }
    let next_at = match check::schedule_of(&routine.spec) {
        Ok(schedule) => schedule.and_then(|schedule: Schedule| schedule.next_after(now)),
        Err(error) => return Err(Refusal::Invalid(format!("The schedule of {name} cannot be read: {error}"))),
    };
    let why = if on { String::new() } else { format!("disabled by {}", by.asker.principal) };
    let switched = service.routine_store.enable(routine.routine_id, on, &why, next_at, now).await.map_err(unstored)?;
    match switched {
        Some(routine) => {
            service.registry.put(&routine);
            Ok(RoutineAnswer::Routine(Box::new(routine)))
        }
        None => Err(Refusal::Unknown(format!("There is no routine named {name}."))),
    }
}

/// Revokes a grant. It also ends for a job of the routine that works at this moment.
async fn revoke(
    service: &RoutineService,
    name: &str,
    grant: usize,
    by: &RoutineRequester,
) -> Result<RoutineAnswer, Refusal> {
    let routine = find(service, name, by).await?;
    not_of_config(&routine)?;
    let (store, by, now) = (&service.routine_store, &by.asker.principal, service.clock.now());
    match store.revoke_grant(routine.routine_id, grant, by, now).await.map_err(unstored)? {
        Some(routine) => {
            tracing::info!(routine = name, grant, actor = by, "a grant of a routine was revoked");
            service.registry.put(&routine);
            Ok(RoutineAnswer::Routine(Box::new(routine)))
        }
        None => {
            Err(Refusal::Unknown(format!("The routine {name} has no grant {grant}; /routine show {name} lists them.")))
        }
    }
}

async fn delete(service: &RoutineService, name: &str, by: &RoutineRequester) -> Result<RoutineAnswer, Refusal> {
    let id = match find(service, name, by).await {
        Ok(routine) => {
            not_of_config(&routine)?;
            Some(routine.routine_id) // the name may belong to another routine by now
        }
        // A stored routine that can no longer be read has no owner; an operator may delete it.
        Err(Refusal::Unknown(_)) if by.asker.authority == Authority::Operator => None,
        Err(refusal) => return Err(refusal),
    };
    if !service.routine_store.delete(name, id).await.map_err(unstored)? {
        return Err(Refusal::Unknown(format!("There is no routine named {name}.")));
    }
    service.registry.remove(name);
    Ok(RoutineAnswer::Deleted(name.to_owned()))
}

async fn fire(
    service: &RoutineService,
    name: &str,
    payload: Option<String>,
    by: &RoutineRequester,
) -> Result<RoutineAnswer, Refusal> {
    is_on(service)?;
    let routine = find(service, name, by).await?;
    let key = match &by.key {
        Some(key) => format!("manual:{key}"),
        None => format!("manual:{}", RoutineRunId::new()),
    };
    let cause = Cause { by: "manual", key, echo: None, detail: format!("by {}", by.asker.principal), payload };
    let told = cause.payload.clone();
    match claim(service, &TriggeredRoutine::of(&routine), cause).await? {
        Claim::Known(routine_run) if routine_run.payload != told => {
            Err(Refusal::Decided(format!("that key was used for another run of the routine {name}: use a new one")))
        }
        claim => answered(name, claim),
    }
}

async fn webhook(
    service: &RoutineService,
    name: &str,
    delivery: Option<String>,
    payload: String,
    by: &RoutineRequester,
) -> Result<RoutineAnswer, Refusal> {
    is_on(service)?;
    programs_only(by)?;
    let routine = service.routines.routine(name).await.map_err(unstored)?;
    let has_hook = |routine: &RoutineRecord| matches!(routine.spec.trigger, Trigger::Webhook { .. });
    let routine = routine
        .filter(has_hook)
        .ok_or_else(|| Refusal::Unknown(format!("There is no routine with a webhook named {name}.")))?;
    service.registry.admit_webhook(routine.routine_id).map_err(|retry_after| {
        let most = service.registry.config.webhooks_per_minute;
        Refusal::Busy {
            what: format!("more than {most} calls of this webhook in a minute (routines.webhooks_per_minute)"),
            retry_after,
        }
    })?;
    let cause = match delivery {
        Some(id) => Cause {
            by: "webhook",
            key: format!("webhook:id:{id}"),
            echo: None,
            detail: format!("delivery {id}"),
            payload: None,
        },
        None => unnamed(&payload, service.clock.now()),
    };
    let payload = Some(payload).filter(|payload| !payload.is_empty());
    answered(name, claim(service, &TriggeredRoutine::of(&routine), Cause { payload, ..cause }).await?)
}

/// A delivery without an id. It counts as a repetition of a call with the same payload within [`WEBHOOK_ECHO_MS`]. Its
/// key contains the number of the current span, so that a later call has another key; `echo` covers the span before.
fn unnamed(said: &str, now: UnixMillis) -> Cause {
    let (digest, span) = (blake3::hash(said.as_bytes()), now.0.div_euclid(WEBHOOK_ECHO_MS));
    let key = |span: i64| format!("webhook:body:{digest}:{span}");
    let since = UnixMillis(now.0.saturating_sub(WEBHOOK_ECHO_MS - 1));
    Cause {
        by: "webhook",
        key: key(span),
        echo: Some(Echo { key: key(span.saturating_sub(1)), since }),
        detail: "a delivery without an id".to_owned(),
        payload: None,
    }
}

fn programs_only(by: &RoutineRequester) -> Result<(), Refusal> {
    if by.is_program() {
        Ok(())
    } else {
        Err(Refusal::Forbidden("Only a program with the API token may report events.".into()))
    }
}

async fn emit(
    service: &RoutineService,
    (source, event): (&str, &str),
    key: Option<String>,
    payload: Value,
    by: &RoutineRequester,
) -> Result<RoutineAnswer, Refusal> {
    is_on(service)?;
    programs_only(by)?;
    let key = key.unwrap_or_else(|| RoutineRunId::new().to_string());
    let mut fired = Vec::new();
    for waiting in service.registry.events().for_event(source, event, &payload) {
        let cause = Cause {
            by: "system",
            key: format!("system:{source}:{event}:{key}"),
            echo: None,
            detail: format!("{source} {event}"),
            payload: Some(payload.to_string()).filter(|_| !payload.is_null()),
        };
        let name = &waiting.name;
        match claim(service, &waiting, cause).await? {
            Claim::Claimed(routine_run) | Claim::Known(routine_run) => fired.push(*routine_run),
            Claim::Held(held) => tracing::info!(routine = name, held = held.word(), "an event is held back"),
            Claim::Off(why) => tracing::debug!(routine = name, why, "an event fires nothing"),
        }
    }
    Ok(RoutineAnswer::Fired(fired))
}

/// What triggers a routine.
struct Cause {
    by: &'static str,
    key: String,
    echo: Option<Echo>,
    detail: String,
    payload: Option<String>,
}

/// Whether a freeze of the routine or of its creator refuses a routine run. A freeze of everything keeps it, like a
/// message.
async fn is_frozen(service: &RoutineService, routine: &str) -> Result<bool, Refusal> {
    if !service.run.freezer.holds_anything() {
        return Ok(false);
    }
    let routine = service.routines.routine(routine).await.map_err(unstored)?;
    let freeze = routine.and_then(|routine| service.run.freezer.holds_routine(&routine));
    Ok(freeze.is_some_and(|freeze| freeze.scope != FreezeScope::All))
}

/// Claims a routine run and hands it to the engine.
async fn claim(service: &RoutineService, routine: &TriggeredRoutine, cause: Cause) -> Result<Claim, Refusal> {
    let Cause { by, key, echo, detail, payload } = cause;
    if payload.as_ref().is_some_and(|payload| payload.len() > ROUTINE_TEXT_MAX_BYTES || payload.contains('\0')) {
        let what = format!("payload: must be text of at most {ROUTINE_TEXT_MAX_BYTES} bytes, without NUL characters");
        return Err(Refusal::Invalid(what));
    }
    let content = payload.as_ref().map(|payload| blake3::hash(payload.as_bytes()).to_hex().to_string());
    let routine_run = NewRoutineRun {
        id: RoutineRunId::new(),
        routine_id: routine.id,
        routine: routine.name.clone(),
        by,
        key,
        echo,
        scheduled_at: None,
        by_hand: by == "manual",
        detail: detail.chars().filter(|c| !c.is_control()).take(ROUTINE_RUN_DETAIL_MAX_CHARS).collect(),
        payload,
        content,
        missed: Vec::new(),
        next_at: None,
        boot: service.boot,
        at: service.clock.now(),
    };
    if is_frozen(service, &routine.name).await? {
        return Ok(Claim::Off(format!("the routine {} is frozen", routine.name)));
    }
    let id = routine_run.id;
    crash_point!("routine.before-claim");
    let claim = match service.routine_run_store.claim(routine_run, service.registry.config.max_concurrent).await {
        Ok(claim) => claim,
        Err(error) => {
            service.registry.hand_over(Handed::Unsure(id));
            service.registry.ring();
            return Err(unstored(error));
        }
    };
    if let Claim::Claimed(routine_run) = &claim {
        service.registry.hand_over(Handed::Claimed(routine_run.clone()));
        service.registry.ring();
    }
    Ok(claim)
}

fn answered(name: &str, claim: Claim) -> Result<RoutineAnswer, Refusal> {
    match claim {
        Claim::Claimed(routine_run) | Claim::Known(routine_run) => Ok(RoutineAnswer::Fired(vec![*routine_run])),
        Claim::Held(held) => {
            let retry_after = match held {
                Held::Cooldown(ms) => Duration::from_millis(ms),
                Held::Concurrent | Held::Global | Held::Content => BUSY_RETRY,
            };
            Err(Refusal::Busy { what: format!("the routine {name} {}", why_held(held)), retry_after })
        }
        Claim::Off(why) => Err(Refusal::Decided(why)),
    }
}

/// Why a routine run is not started now, to follow the name of the routine.
fn why_held(held: Held) -> String {
    match held {
        Held::Cooldown(ms) => format!("fired a moment ago and waits for {} s (guard.cooldown_s)", ms.div_ceil(1000)),
        Held::Concurrent => "is running as often as it may at once (guard.max_concurrent)".to_owned(),
        Held::Global => "has to wait: the maximum number of routines is running (routines.max_concurrent)".to_owned(),
        Held::Content => "was triggered by the same content a moment ago (guard.dedup_window_s)".to_owned(),
    }
}

/// Starts the routines that a message of their owner triggers. Returns the answer to the owner.
///
/// # Errors
/// The store does not answer. The routine runs that were claimed before continue, and the message may be sent again.
pub async fn start(
    service: &RoutineService,
    waiting: &[TriggeredRoutine],
    text: &str,
    by: &RoutineRequester,
) -> Result<String, Refusal> {
    let key = by.key.clone().unwrap_or_else(|| RoutineRunId::new().to_string());
    let mut lines = Vec::with_capacity(waiting.len());
    for routine in waiting {
        let name = &routine.name;
        let cause = Cause {
            by: "event",
            key: format!("event:{key}"),
            echo: None,
            detail: text.to_owned(),
            payload: Some(shortened(text)),
        };
        lines.push(match claim(service, routine, cause).await? {
            Claim::Claimed(_) | Claim::Known(_) => format!("Routine {name} has started."),
            Claim::Held(held) => format!("Not started: the routine {name} {}.", why_held(held)),
            Claim::Off(why) => format!("Not started: {why}."),
        });
    }
    Ok(lines.join("\n"))
}

/// The message, cut to the longest payload of a routine run.
fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(ROUTINE_TEXT_MAX_BYTES)].to_owned()
}
