//! Pairing: a failing store, the end of a code, and guesses. The wire is in the scenarios.

use std::sync::{Arc, Mutex};

use belay_agent::Pairing;
use belay_protocol::people::CODE_VALID_MS;
use belay_protocol::{
    Ack, ChannelPeople, Control, PairedPerson, PairingCode, PairingCodes, PeopleReport, PeopleRequest, PrincipalRole,
    Refusal, RunStatus, StopReason, Stranger, UnixMillis,
};
use belay_testkit::faulty::{Fault, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};

use crate::support::{Running, Setup, end_of, faulty};

/// The people of a channel, as a channel would check them.
#[derive(Default)]
struct People(Mutex<Vec<String>>);

impl People {
    fn paired(&self) -> Vec<String> {
        self.0.lock().expect("a lock").clone()
    }
}

impl ChannelPeople for People {
    fn replace_paired(&self, paired: &[PairedPerson]) {
        *self.0.lock().expect("a lock") = paired.iter().map(|paired| paired.person.id.clone()).collect();
    }

    fn listed(&self) -> Vec<(String, PrincipalRole)> {
        vec![("tester".to_owned(), PrincipalRole::Operator)]
    }

    fn greeting(&self) -> Option<String> {
        Some("Hello.".to_owned())
    }
}

fn stranger(id: &str) -> Stranger {
    Stranger { channel: "one".into(), id: id.to_owned(), name: "Eve `x`".to_owned(), conversation: id.to_owned() }
}

async fn pairing(setup: &Setup, people: &Arc<People>) -> Arc<Pairing> {
    let channels = vec![("one".into(), people.clone() as Arc<dyn ChannelPeople>)];
    let pairing = Pairing::load(setup.store.people.clone(), setup.clock.clone(), channels).await;
    Arc::new(pairing.expect("the store answers"))
}

async fn code(pairing: &Pairing, id: &str) -> PairingCode {
    pairing.issue(stranger(id)).await.expect("the store answers").expect("a code")
}

async fn request(agent: &Running, request: PeopleRequest) -> Result<PeopleReport, Refusal> {
    match agent.one.control(Control::People(request)).await {
        Ack::People(report) => Ok(*report),
        Ack::Refused(refusal) => Err(refusal),
        other => panic!("not an answer about people: {other:?}"),
    }
}

async fn pair(agent: &Running, code: &PairingCode) -> Result<PeopleReport, Refusal> {
    request(agent, PeopleRequest::Pair { code: code.expose().to_owned() }).await
}

fn remove(id: &str) -> PeopleRequest {
    PeopleRequest::Remove { channel: "one".into(), id: id.to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_admits_nobody_and_loses_no_code() {
    let (setup, store) = faulty(ScriptedModel::new([]));
    let people = Arc::new(People::default());
    let made = pairing(&setup, &people).await;
    let mut agent = setup.start_with(|parts| parts.pairing = Some(made.clone())).await;
    store.plan().nth_of(StoreOp::WritePairing, 1, Fault::Fail);
    assert!(made.issue(stranger("eve")).await.is_err());
    let code = code(&made, "eve").await;
    store.plan().clear();

    store.plan().nth_of(StoreOp::AdmitPerson, 1, Fault::Fail);
    assert!(matches!(pair(&agent, &code).await, Err(Refusal::Store(_))));
    assert!(people.paired().is_empty(), "durable before it takes effect");
    store.plan().clear();
    let report = pair(&agent, &code).await.expect("admitted");
    assert_eq!((people.paired(), report.pending.len()), (vec!["eve".to_owned()], 0));
    assert_eq!(report.people.len(), 2, "{report:?}");
    let greeting = agent.one.next_message().await;
    assert_eq!(&*greeting.route.conversation, "eve");
    assert!(greeting.text.ends_with("Hello."), "{}", greeting.text);

    store.plan().nth_of(StoreOp::RemovePerson, 1, Fault::Fail);
    assert!(matches!(request(&agent, remove("eve")).await, Err(Refusal::Store(_))));
    assert_eq!(people.paired().len(), 1);
    store.plan().clear();
    request(&agent, remove("eve")).await.expect("removed");
    assert!(people.paired().is_empty());
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_code_ends_after_an_hour_and_makes_room_for_the_next_stranger() {
    let setup = Setup::new(ScriptedModel::new([]));
    setup.clock.set(0);
    let people = Arc::new(People::default());
    let made = pairing(&setup, &people).await;
    let agent = setup.start_with(|parts| parts.pairing = Some(made.clone())).await;
    let first = code(&made, "a").await;
    setup.clock.set(1);
    code(&made, "b").await;
    code(&made, "c").await;
    for id in ["a", "d"] {
        assert!(made.issue(stranger(id)).await.expect("the store answers").is_none(), "{id}");
    }
    setup.clock.set(CODE_VALID_MS);
    assert!(matches!(pair(&agent, &first).await, Err(Refusal::Unknown(_))), "it has ended");
    code(&made, "d").await;
    assert!(made.issue(stranger("a")).await.expect("the store answers").is_none(), "three are valid");
    // A stranger who could not be told gets another code.
    made.withdraw(&stranger("b")).await;
    let again = code(&made, "b").await;
    agent.shut_down().await;

    let later = pairing(&setup, &people).await;
    assert!(later.issue(stranger("b")).await.expect("the store answers").is_none(), "a restart keeps the codes");
    let agent = setup.start_with(|parts| parts.pairing = Some(later)).await;
    pair(&agent, &again).await.expect("admitted");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn guesses_are_limited_for_each_operator_and_only_operators_guess() {
    let setup = Setup::new(ScriptedModel::new([]));
    setup.clock.set(0);
    let made = pairing(&setup, &Arc::default()).await;
    let agent = setup.start_with(|parts| parts.pairing = Some(made.clone())).await;
    let (right, wrong) = (code(&made, "eve").await, PairingCode::from_bytes([0; 8]));
    let Ack::Command(refused) = agent.one.text_of("bob", "bob", &format!("/pair {}", right.expose())).await else {
        panic!("no command")
    };
    assert!(refused.refused && refused.reply.contains("Only an operator"), "{}", refused.reply);
    for guess in 0..10 {
        assert!(matches!(pair(&agent, &wrong).await, Err(Refusal::Unknown(_))), "{guess}");
    }
    assert!(matches!(pair(&agent, &right).await, Err(Refusal::Forbidden(_))));
    // The operators of another channel are other people.
    let Ack::Command(admitted) = agent.two.text("op", &format!("/pair {}", wrong.expose())).await else {
        panic!("no command")
    };
    assert!(admitted.reply.contains("no such code"), "{}", admitted.reply);
    setup.clock.set(UnixMillis(600_000).0);
    pair(&agent, &right).await.expect("admitted");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_removal_ends_the_running_and_the_waiting_work_of_the_person_alone() {
    let setup = Setup::new(ScriptedModel::new([]).then_forever(Scripted::hang()));
    let people = Arc::new(People::default());
    let made = pairing(&setup, &people).await;
    let agent = setup.start_with(|parts| parts.pairing = Some(made.clone())).await;
    pair(&agent, &code(&made, "eve").await).await.expect("admitted");
    let mut runs = Vec::new();
    for (who, session) in [("eve", "eve"), ("eve", "eve"), ("bob", "bob")] {
        let Ack::Accepted(accepted) = agent.one.text_of(who, session, "count for ever").await else {
            panic!("not accepted")
        };
        runs.push(accepted);
    }
    agent.asked(2).await;
    request(&agent, remove("eve")).await.expect("removed");
    for run in runs.drain(..2) {
        let record = end_of(run).await;
        assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(StopReason::OperatorStop)));
    }
    let report = request(&agent, PeopleRequest::List).await.expect("a list");
    assert_eq!(report.people.len(), 1);
    assert_eq!(agent.model.dropped_count(), 1, "the run of the other person goes on");
    agent.shut_down().await;
}
