#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::Arc;

use belay_protocol::ModelErrorKind::{self, *};
use belay_protocol::{Heard, Message, NoSink, Picture, TextFormat, Thinking};

use super::*;
use crate::retry_budget::{FIRST_PAUSE, PAUSES_SUM_MAX};
use crate::testing::{Asked, RecordingSink, info};
use crate::thinking::{Ability, Gate};

const BUSY: ModelErrorKind = Overloaded { retry_after: None };
const LIMITED: ModelErrorKind = RateLimited { retry_after: None };

fn limited(seconds: u64) -> ModelErrorKind {
    RateLimited { retry_after: Some(Duration::from_secs(seconds)) }
}

/// The behaviour of a candidate for one request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Behaviour {
    /// Sends a piece of text, then fails with this error.
    Fails(ModelErrorKind),
    /// Never answers.
    Hangs,
    /// Refuses a request with a level of thinking; answers one without.
    RefusesThinking,
    /// Refuses a request with a form of the answer, with these words; answers one without.
    RefusesForms(&'static str),
    /// Refuses a request with any of these parts, with the words for the first of them.
    Refuses(&'static [(Part, &'static str)]),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Thinking,
    Form,
    Pictures,
    LaterSystem,
}

impl Part {
    fn is_in(self, request: &ModelRequest<'_>) -> bool {
        match self {
            Self::Thinking => request.thinking.is_some(),
            Self::Form => request.format.is_some(),
            Self::Pictures => request.send_pictures,
            Self::LaterSystem => request.later_system,
        }
    }
}

use Behaviour::{Fails, Hangs, Refuses, RefusesForms, RefusesThinking};

/// A provider that follows its script, then answers every request.
struct ScriptedProvider {
    info: ModelInfo,
    behaviours: Mutex<VecDeque<Behaviour>>,
    seen: Mutex<Vec<(Option<String>, Option<Thinking>)>>,
}

#[async_trait]
impl ModelProvider for ScriptedProvider {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn takes_format(&self, format: &TextFormat) -> bool {
        format.name != "unknown"
    }

    async fn call(&self, request: ModelRequest<'_>, sink: &mut dyn DeltaSink) -> Result<ModelReply, ModelError> {
        assert_eq!(request.max_attempts, 1);
        self.seen.lock().unwrap().push((request.model.map(str::to_owned), request.thinking));
        let next = {
            let mut behaviours = self.behaviours.lock().unwrap();
            let keeps = matches!(behaviours.front(), Some(RefusesThinking | RefusesForms(_) | Refuses(_)));
            if keeps { behaviours.front().copied() } else { behaviours.pop_front() }
        };
        match next {
            Some(Hangs) => std::future::pending().await,
            Some(Fails(kind)) => {
                sink.text("piece");
                Err(ModelError { abandoned: u32::from(kind == Network), ..ModelError::new(kind, "no") })
            }
            Some(RefusesThinking) if request.thinking.is_some() => Err(ModelError::new(BadRequest, "what level?")),
            Some(RefusesForms(words)) if request.format.is_some() => Err(ModelError::new(BadRequest, words)),
            Some(Refuses(parts)) => match parts.iter().find(|(part, _)| part.is_in(&request)) {
                Some((_, words)) => Err(ModelError::new(BadRequest, *words)),
                None => Ok(ModelReply { attempts: 1, ..ModelReply::default() }),
            },
            Some(RefusesThinking | RefusesForms(_)) | None => Ok(ModelReply { attempts: 1, ..ModelReply::default() }),
        }
    }
}

/// Candidates `a`, `b`, … with models of these names, and access to their state.
struct Setup {
    fallback: Fallback,
    providers: Vec<Arc<ScriptedProvider>>,
}

impl Setup {
    /// Makes candidates with these context sizes, each on its own server.
    fn of(candidates: &[(u64, &[Behaviour])]) -> Self {
        let providers: Vec<_> = ["a", "b", "c"]
            .iter()
            .zip(candidates)
            .map(|(name, (context_tokens, behaviours))| {
                let price = Price { input: *context_tokens, cached_input: None, output: 1 };
                let info = ModelInfo {
                    model: (*name).into(),
                    context_tokens: *context_tokens,
                    price: Some(price),
                    vision: true,
                    ..info()
                };
                let behaviours = Mutex::new(behaviours.iter().copied().collect());
                Arc::new(ScriptedProvider { info, behaviours, seen: Mutex::default() })
            })
            .collect();
        let backends = providers.iter().enumerate().map(|(server, provider)| {
            Backend::new(
                &provider.info.model,
                &provider.info.model,
                server,
                provider.clone(),
                Gate::new(Ability::Unknown),
            )
        });
        let backends: Vec<Backend> = backends.collect();
        let price = |it: &Backend| Some((it.name.clone(), it.provider.info().price?));
        let prices: std::collections::HashMap<_, _> = backends.iter().filter_map(price).collect();
        Self { fallback: Fallback::new(backends, PriceList::from(prices)), providers }
    }

    fn alone(kinds: &[ModelErrorKind]) -> Self {
        let behaviours: Vec<_> = kinds.iter().map(|kind| Fails(*kind)).collect();
        Self::of(&[(1000, &behaviours)])
    }

    async fn call(&self, budget: u32, sink: &mut dyn DeltaSink) -> (Result<ModelReply, ModelError>, Duration) {
        let asked = Asked::new("", false, vec![]);
        let start = Instant::now();
        let request = ModelRequest { max_attempts: budget, ..asked.request() };
        (self.fallback.call(request, sink).await, start.elapsed())
    }

    /// The candidate that answered, or the error, and the number of requests.
    async fn outcome(&self, budget: u32) -> (String, u32) {
        match self.call(budget, &mut NoSink).await.0 {
            Ok(reply) => (reply.answered_by.unwrap_or_default(), reply.attempts),
            Err(error) => (error.kind.word().to_owned(), error.attempts),
        }
    }

    /// The number of requests that each candidate has got.
    fn asked(&self) -> Vec<usize> {
        self.providers.iter().map(|provider| provider.seen.lock().unwrap().len()).collect()
    }

    /// The seconds until each circuit is half open, rounded up.
    fn cooling(&self) -> Vec<u64> {
        let rest = |candidate: Candidate| candidate.cooling.map_or(0, |it| it.left.as_secs_f64().ceil() as u64);
        self.fallback.candidates().into_iter().map(rest).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_again_within_the_budget() {
    for (kinds, budget, attempts) in [
        (vec![], 3, Ok(1)),
        (vec![BUSY, Network], 3, Ok(3)),
        (vec![BUSY, Network, limited(1)], 3, Err((3, limited(1)))),
        (vec![Network], 1, Err((1, Network))),
        (vec![Auth], 3, Err((1, Auth))),
        (vec![Network, BadRequest], 3, Err((2, BadRequest))),
        (vec![ContextTooLong], 3, Err((1, ContextTooLong))),
        (vec![limited(61)], 3, Err((1, limited(61)))),
    ] {
        let (result, took) = Setup::alone(&kinds).call(budget, &mut NoSink).await;
        let outcome = result.map(|reply| reply.attempts).map_err(|error| (error.attempts, error.kind));
        assert_eq!(outcome, attempts, "{kinds:?}");
        assert!(took <= Duration::from_secs(4), "{kinds:?} took {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_tried_again_or_elsewhere_once_a_piece_was_heard() {
    let many = Setup::of(&[(1000, &[Fails(Network); 2]), (1000, &[])]);
    for setup in [Setup::alone(&[Network, Network]), many] {
        let error = setup.call(3, &mut RecordingSink::default()).await.0.unwrap_err();
        assert_eq!((error.attempts, error.heard, error.abandoned), (1, true, 1));
        assert_eq!(setup.asked()[0], 1);
        assert!(setup.asked()[1..].iter().all(|asked| *asked == 0));
    }
}

#[tokio::test(start_paused = true)]
async fn the_providers_delay_lengthens_a_pause() {
    let (result, took) = Setup::alone(&[limited(60)]).call(3, &mut NoSink).await;
    assert_eq!((result.unwrap().attempts, took.as_secs()), (2, 60));
    let (result, took) = Setup::alone(&[limited(0)]).call(3, &mut NoSink).await;
    assert!(result.unwrap().attempts == 2 && took >= FIRST_PAUSE && took <= FIRST_PAUSE * 2, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn our_own_pauses_never_sum_to_more_than_their_bound() {
    for _ in 0..20 {
        let (result, took) = Setup::alone(&[Network; 100]).call(100, &mut NoSink).await;
        assert!(result.is_err() && took > Duration::from_secs(1) && took <= PAUSES_SUM_MAX, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_earlier_attempt_that_had_begun_is_not_forgotten() {
    let error = Setup::alone(&[Network, Auth]).call(3, &mut NoSink).await.0.unwrap_err();
    assert!(error.abandoned > 0);
}

#[tokio::test(start_paused = true)]
async fn a_lone_model_is_always_asked() {
    let setup = Setup::alone(&[Auth, Auth, limited(600)]);
    for expected in ["auth", "auth", "rate_limited", ""] {
        assert_eq!(setup.outcome(1).await.0, expected);
    }
    assert!(setup.fallback.candidates().is_empty());
}

/// For each behaviour of the first and the second candidate: who answers, the number of requests, and the open time of
/// each circuit afterwards.
#[tokio::test(start_paused = true)]
async fn each_failure_of_the_first_leads_to_the_right_one() {
    for (first, second, budget, expected, cooling) in [
        (vec![], vec![], 3, ("a", 1), [0, 0]),
        (vec![Fails(Auth)], vec![], 3, ("b", 2), [1800, 0]),
        (vec![Fails(LIMITED)], vec![], 3, ("b", 2), [60, 0]),
        (vec![Fails(limited(7))], vec![], 3, ("b", 2), [7, 0]),
        (vec![Fails(BUSY)], vec![], 3, ("b", 2), [0, 0]),
        (vec![Fails(Network)], vec![], 3, ("b", 2), [0, 0]),
        (vec![Fails(BUSY)], vec![Fails(BUSY)], 3, ("a", 3), [0, 0]),
        (vec![Fails(BUSY)], vec![Fails(Auth)], 3, ("a", 3), [0, 1800]),
        (vec![Fails(BUSY); 2], vec![Fails(BUSY); 2], 4, ("overloaded", 4), [0, 0]),
        (vec![Fails(LIMITED)], vec![Fails(LIMITED)], 5, ("rate_limited", 2), [60, 60]),
        (vec![Fails(Auth)], vec![Fails(Auth)], 5, ("auth", 2), [1800, 1800]),
        (vec![Fails(LIMITED)], vec![Fails(limited(9))], 3, ("b", 3), [51, 0]),
        // A fault of the request concerns every candidate, so the second one is not asked.
        (vec![Fails(BadRequest)], vec![], 3, ("bad_request", 1), [0, 0]),
        (vec![Fails(ContextTooLong)], vec![], 3, ("context_too_long", 1), [0, 0]),
        (vec![Fails(LIMITED)], vec![Fails(BadRequest)], 3, ("bad_request", 2), [60, 0]),
        // The budget is shared by all candidates.
        (vec![Fails(Auth)], vec![], 1, ("auth", 1), [1800, 0]),
        (vec![Fails(Network); 3], vec![Fails(Network); 3], 3, ("network", 3), [0, 0]),
    ] {
        let setup = Setup::of(&[(1000, &first), (1000, &second)]);
        let (who, attempts) = setup.outcome(budget).await;
        assert_eq!((who.as_str(), attempts), expected, "{first:?} {second:?}");
        assert_eq!(setup.cooling(), cooling, "{first:?} {second:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_rests_is_passed_over_and_tried_again_when_its_time_has_come() {
    let setup = Setup::of(&[(1000, &[Fails(LIMITED), Fails(LIMITED)]), (1000, &[])]);
    for (wait, who, asked) in
        [(0, "b", [1, 1]), (59, "b", [1, 2]), (1, "b", [2, 3]), (119, "b", [2, 4]), (1, "a", [3, 4])]
    {
        tokio::time::advance(Duration::from_secs(wait)).await;
        assert_eq!(setup.outcome(3).await.0, who);
        assert_eq!(setup.asked(), asked);
    }
    assert_eq!(setup.cooling(), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn the_reply_says_who_answered_and_why_not_the_first() {
    let setup = Setup::of(&[(1000, &[Fails(LIMITED)]), (2000, &[])]);
    let fell_back = || Some(FellBack { from: "a".into(), why: "rate_limited".into() });
    for _ in 0..2 {
        let reply = setup.call(3, &mut NoSink).await.0.unwrap();
        assert_eq!((reply.answered_by.as_deref(), reply.fell_back), (Some("b"), fell_back()));
        assert_eq!(reply.price.unwrap().input, 2000);
    }
    tokio::time::advance(Duration::from_secs(60)).await;
    let reply = setup.call(3, &mut NoSink).await.0.unwrap();
    assert_eq!((reply.answered_by.as_deref(), reply.fell_back), (Some("a"), None));
    assert_eq!(setup.fallback.dearest().unwrap().input, 2000, "what is reserved must do for the dearer one");
    assert_eq!(Setup::alone(&[]).call(3, &mut NoSink).await.0.unwrap().answered_by, None);
}

#[tokio::test(start_paused = true)]
async fn when_all_rest_a_short_one_is_waited_for_and_a_long_one_is_told() {
    let setup = Setup::of(&[(1000, &[Fails(limited(30)); 2]), (1000, &[Fails(LIMITED); 2])]);
    // The delay that the provider requested is waited for. The second candidate is not asked before its time.
    let (result, took) = setup.call(3, &mut NoSink).await;
    assert_eq!((result.unwrap_err().attempts, took.as_secs()), (3, 30));
    let setup = Setup::of(&[(1000, &[Fails(LIMITED)]), (1000, &[Fails(Auth)])]);
    assert_eq!(setup.outcome(3).await, ("rate_limited".to_owned(), 2));
    tokio::time::advance(Duration::from_secs(45)).await;
    let (result, took) = setup.call(3, &mut NoSink).await;
    let error = result.unwrap_err();
    assert_eq!((error.kind, error.attempts, took), (limited(15), 0, Duration::ZERO), "{error}");
    assert!(error.detail.contains("a, in 15 s (rate_limited)"), "{error}");
    tokio::time::advance(Duration::from_secs(8)).await;
    let (result, took) = setup.call(3, &mut NoSink).await;
    assert_eq!((result.unwrap().attempts, took.as_secs()), (1, 7), "seven seconds are within patience");
}

#[tokio::test(start_paused = true)]
async fn a_smaller_context_that_overflows_is_told_once_larger_ones_are_out() {
    let (busy, long) = ([Fails(BUSY); 3], [Fails(ContextTooLong); 3]);
    for (candidates, expected, asked) in [
        (vec![(1000, &busy[..]), (500, &long), (2000, &[])], ("c", 3), vec![1, 1, 1]),
        (vec![(1000, &busy[..]), (500, &long), (400, &[])], ("context_too_long", 4), vec![3, 1, 0]),
        (vec![(1000, &[Fails(Auth)][..]), (500, &long), (2000, &busy)], ("context_too_long", 5), vec![1, 1, 3]),
        (vec![(1000, &busy[..1]), (500, &long)], ("a", 3), vec![2, 1]),
        (vec![(1000, &busy[..1]), (1000, &long), (2000, &[])], ("context_too_long", 2), vec![1, 1, 0]),
    ] {
        let setup = Setup::of(&candidates);
        let (who, attempts) = setup.outcome(9).await;
        assert_eq!(((who.as_str(), attempts), setup.asked()), (expected, asked), "{candidates:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_lets_the_next_one_try_out_the_candidate() {
    let setup = Setup::of(&[(1000, &[Fails(LIMITED), Hangs]), (1000, &[])]);
    assert_eq!(setup.outcome(3).await.0, "b");
    tokio::time::advance(Duration::from_secs(60)).await;
    {
        let mut sink = NoSink;
        let mut trial = Box::pin(setup.call(3, &mut sink));
        assert!(futures_util::poll!(trial.as_mut()).is_pending());
        assert_eq!(setup.outcome(3).await.0, "b", "while one tries it out, others go elsewhere");
    }
    assert_eq!(setup.outcome(3).await.0, "a", "a stop says nothing about the candidate");
}

#[tokio::test(start_paused = true)]
async fn many_calls_at_once_open_a_circuit_once() {
    let setup = Setup::of(&[(1000, &[Fails(LIMITED); 8]), (1000, &[])]);
    let calls = (0..8).map(|_| setup.outcome(3));
    let outcomes = futures_util::future::join_all(calls).await;
    assert!(outcomes.iter().all(|(who, _)| who == "b"), "{outcomes:?}");
    assert_eq!(setup.cooling(), [60, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_chosen_model_goes_first_and_an_unlisted_name_to_the_first_server_alone() {
    let setup = Setup::of(&[(1000, &[]), (1000, &[Fails(Auth)])]);
    let asked = Asked::new("", false, vec![]);
    assert_eq!(setup.fallback.models(), ["a", "b"]);
    for (name, who, seen) in [("b", "a", None), ("other", "a", Some("other")), ("a", "a", None), ("b", "a", None)] {
        let request = ModelRequest { model: Some(name), ..asked.request() };
        let reply = setup.fallback.call(request, &mut NoSink).await.unwrap();
        let last = setup.providers[0].seen.lock().unwrap().last().unwrap().0.clone();
        assert_eq!((reply.answered_by.as_deref(), last.as_deref()), (Some(who), seen), "{name}");
    }
    assert_eq!(setup.asked(), [4, 1], "a refused key is not tried again for being chosen");

    let setup = Setup::of(&[(1000, &[Fails(LIMITED)]), (1000, &[])]);
    let request = ModelRequest { model: Some("other"), max_attempts: 1, ..asked.request() };
    assert_eq!(setup.fallback.call(request, &mut NoSink).await.unwrap_err().kind, LIMITED);
    assert_eq!(setup.cooling(), [0, 0], "its failures are its own");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_refuses_a_level_of_thinking_is_asked_once_more_without_it_and_never_sent_one_again() {
    for (budget, first, then) in [(3, Ok(2), Ok(1)), (1, Err(1), Ok(1))] {
        let setup = Setup::of(&[(1000, &[RefusesThinking])]);
        let asked = Asked::new("", false, vec![]);
        for expected in [first, then] {
            let request = ModelRequest { thinking: Some(Thinking::High), max_attempts: budget, ..asked.request() };
            let result = setup.fallback.call(request, &mut NoSink).await;
            assert_eq!(result.map(|reply| reply.attempts).map_err(|error| error.attempts), expected);
        }
        let levels: Vec<_> = setup.providers[0].seen.lock().unwrap().iter().map(|(_, level)| *level).collect();
        assert_eq!(levels.iter().filter(|level| level.is_some()).count(), 1, "{levels:?}");
    }
    // A request that is also refused without a level was not refused because of the level.
    let setup = Setup::alone(&[BadRequest, BadRequest]);
    let asked = Asked::new("", false, vec![]);
    for _ in 0..2 {
        let request = ModelRequest { thinking: Some(Thinking::Low), ..asked.request() };
        let _ = setup.fallback.call(request, &mut NoSink).await;
    }
    let levels: Vec<_> = setup.providers[0].seen.lock().unwrap().iter().map(|(_, level)| *level).collect();
    assert_eq!(levels, [Some(Thinking::Low), None, Some(Thinking::Low)]);
}

#[tokio::test(start_paused = true)]
async fn a_form_of_an_answer_that_is_refused_is_left_out_at_once_and_from_then_on() {
    let form = |name: &str| TextFormat { name: name.into(), schema: serde_json::json!({"title": name}) };
    for (words, thinking, first, then) in [
        ("Invalid schema for response_format", Some(Thinking::High), 2, 1),
        ("Invalid schema for response_format", None, 2, 1),
        ("no", None, 2, 1),
        ("no", Some(Thinking::High), 3, 1), // the level is suspected first
    ] {
        let setup = Setup::of(&[(1000, &[RefusesForms(words)])]);
        let asked = Asked::new("", false, vec![]);
        let (one, other, unknown) = (form("one"), form("other"), form("unknown"));
        for (format, expected) in [(&one, first), (&one, then), (&other, first), (&other, then), (&unknown, 1)] {
            let request = ModelRequest { format: Some(format), thinking, ..asked.request() };
            let reply = setup.fallback.call(request, &mut NoSink).await.unwrap();
            assert_eq!(reply.attempts, expected, "{words} {thinking:?} {}", format.name);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn parts_that_are_refused_together_are_left_out_together_and_from_then_on() {
    const LEVEL: (Part, &str) = (Part::Thinking, "what level?");
    const FORM: (Part, &str) = (Part::Form, "Invalid schema for response_format");
    const PICTURES: (Part, &str) = (Part::Pictures, "image input is not supported");
    const SYSTEM: (Part, &str) = (Part::LaterSystem, "System message must be at the beginning.");
    let form = TextFormat { name: "one".into(), schema: serde_json::json!({}) };
    let picture = Picture { media_type: "image/png".into(), base64: "aGk=".into() };
    let said = vec![Message::user("look").with_pictures(vec![picture]), Message::system("be brief")];
    let asked = Asked::new("", false, said);
    let request = ModelRequest { thinking: Some(Thinking::High), format: Some(&form), ..asked.request() };
    type Case = (&'static [(Part, &'static str)], u32, &'static [Result<u32, u32>]);
    let cases: [Case; 13] = [
        (&[SYSTEM, PICTURES], 3, &[Ok(3), Ok(1)]),
        (&[PICTURES, SYSTEM], 3, &[Ok(3), Ok(1)]),
        (&[SYSTEM, LEVEL], 3, &[Ok(3), Ok(1)]),
        (&[LEVEL, SYSTEM], 3, &[Ok(3), Ok(1)]),
        (&[SYSTEM, FORM], 3, &[Ok(3), Ok(1)]),
        (&[FORM, SYSTEM], 3, &[Ok(3), Ok(1)]),
        (&[PICTURES, LEVEL], 3, &[Ok(3), Ok(1)]),
        (&[PICTURES, FORM], 3, &[Ok(3), Ok(1)]),
        (&[FORM, LEVEL], 3, &[Ok(3), Ok(1)]),
        (&[FORM, PICTURES, LEVEL, SYSTEM], 5, &[Ok(5), Ok(1)]),
        // A small budget learns a part with each call.
        (&[SYSTEM, PICTURES], 1, &[Err(1), Err(1), Ok(1)]),
        (&[FORM, PICTURES, SYSTEM], 2, &[Err(2), Ok(2), Ok(1)]),
        // The same words do not say that the first part was a cause, so that it is tried again.
        (&[(Part::Thinking, "no"), (Part::Form, "no")], 3, &[Ok(3), Ok(2), Ok(1)]),
    ];
    for (parts, max_attempts, expected) in cases {
        let setup = Setup::of(&[(1000, &[Refuses(parts)])]);
        for (call, expected) in expected.iter().enumerate() {
            let result = setup.fallback.call(ModelRequest { max_attempts, ..request }, &mut NoSink).await;
            let attempts = result.map(|reply| reply.attempts).map_err(|error| error.attempts);
            assert_eq!(attempts, *expected, "{parts:?} {call}");
        }
    }
}

/// Records when requests are sent, and when a call waits before the next one.
#[derive(Default)]
struct SentLog(Vec<&'static str>);

impl DeltaSink for SentLog {
    fn sent(&mut self) {
        self.0.push("sent");
    }

    fn text(&mut self, _piece: &str) -> Heard {
        Heard::Nobody
    }

    fn reasoning(&mut self, _piece: &str) -> Heard {
        Heard::Nobody
    }

    fn restart(&mut self) {
        self.0.push("void");
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_said_when_each_request_goes_out_and_that_none_is_under_way_in_a_pause() {
    let mut log = SentLog::default();
    Setup::alone(&[Network]).call(3, &mut log).await.0.unwrap();
    assert_eq!(log.0, ["sent", "void", "sent"]);

    // Dropped during the pause: the last report says that no request is in progress.
    let (mut log, setup) = (SentLog::default(), Setup::alone(&[limited(30)]));
    let waits = tokio::time::timeout(Duration::from_secs(1), setup.call(3, &mut log)).await;
    assert!(waits.is_err(), "it waits for longer");
    assert_eq!(log.0, ["sent", "void"]);
}
