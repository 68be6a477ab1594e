//! Answers, freezes, switches, pairing codes, secrets and sign-ins: operations of two writers against each other.

use belay_protocol::people::PENDING_MAX;
use belay_protocol::{
    ApprovalRequest, ApprovalState, ApprovalStore, Decided, EventKind, FirstYes, Freeze, FreezeId, FreezeScope,
    FreezeStore, LINKS_MAX, NewEvent, PendingPairing, PeopleStore, RunStore, SIGN_INS_MAX, SecondYes, SessionKey,
    SignIn, SignInStore, StoreError, Stranger, ToolSwitch, ToolSwitches,
};
use belay_store::{KEY_BYTES, KeyError, SealedSecrets, SqlStore, VaultKey};
use futures_util::future::join_all;

use super::two::{Two, against, two};
use crate::kit::*;

const ROUNDS: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_freezes_of_one_scope_are_one_that_any_thaw_ends() {
    let Some(Two { one, other, database: _database, .. }) = two().await else { return };
    let freeze = |n: usize| Freeze {
        id: FreezeId::new(),
        scope: FreezeScope::person(&format!("telegram:{n}")),
        detail: None,
        actor: "op".into(),
        source: "http".into(),
        at: at(1_000),
        receipt: None,
        thawed_at: None,
    };
    for n in 0..ROUNDS {
        let (a, b) = (freeze(n), freeze(n));
        let (x, y) = against(one.put_freeze(a.clone()), other.put_freeze(b.clone())).await;
        let (x, y) = (x.unwrap(), y.unwrap());
        let in_force = one.freezes().await.unwrap();
        assert!(in_force == [a.clone()] || in_force == [b.clone()], "round {n}: {in_force:?}");
        assert_eq!((x.as_ref(), y.as_ref()), (in_force.first(), in_force.first()), "round {n}: both know it");
        let (ended, late) = if n % 2 == 0 { (a, b) } else { (b, a) };
        other.thaw(ended, at(2_000)).await.unwrap();
        // The receipt of the other one comes after the thaw.
        assert_eq!(one.put_freeze(late).await.unwrap(), None);
        assert_eq!(one.freezes().await.unwrap(), [], "round {n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_database_refuses_a_second_freeze_of_a_scope() {
    let Some(Two { one, database, .. }) = two().await else { return };
    let all = Freeze {
        id: FreezeId::new(),
        scope: FreezeScope::All,
        detail: None,
        actor: "op".into(),
        source: "http".into(),
        at: at(1_000),
        receipt: None,
        thawed_at: None,
    };
    one.put_freeze(all).await.unwrap();
    let copy =
        "INSERT INTO freezes SELECT decode('00', 'hex'), at, NULL, scope, detail, actor, source, receipt FROM freezes";
    let refused = database.sql(copy).unwrap_err();
    assert!(format!("{refused:?}").contains("freezes_in_force"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_switches_with_one_revision_one_is_written_with_its_event() {
    let Some(Two { one, other, database: _database, .. }) = two().await else { return };
    let switch = |store: SqlStore, revision: u64, session: &str| {
        let kind = EventKind::RunAccepted;
        let event = NewEvent { at: at(1_000), session: Some(session.into()), run_id: None, kind };
        async move { store.switch(ToolSwitch { name: "t".into(), revision, off: None }, vec![event]).await.unwrap() }
    };
    for revision in 1..=ROUNDS as u64 {
        let (a, b) = against(switch(one.clone(), revision, "a"), switch(other.clone(), revision, "b")).await;
        assert!(a != b, "{revision}: one knows that it is not written");
        let events = facts(&one, "a".into()).await.len() + facts(&one, "b".into()).await.len();
        assert_eq!(events as u64, revision);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pairing_code_and_a_link_are_taken_by_one_of_two() {
    let Some(Two { one, other, database: _database, .. }) = two().await else { return };
    for n in 0..ROUNDS {
        let (id, digest) = (n.to_string(), format!("digest {n}"));
        let person = Stranger { channel: id.as_str().into(), id: id.clone(), name: "Ann".into(), conversation: id };
        let code = PendingPairing { person, code_digest: digest.clone(), expires_at: at(9_000) };
        one.put_pairing(code.clone(), at(1_000)).await.unwrap();
        let take = |store: &SqlStore| {
            let (store, digest) = (store.clone(), digest.clone());
            async move { store.take_pairing(digest, at(1_000)).await.unwrap() }
        };
        let (a, b) = against(take(&one), take(&other)).await;
        assert_eq!(a.iter().chain(&b).collect::<Vec<_>>(), [&code], "round {n}");

        one.put_link(digest.clone(), at(1_000), at(9_000)).await.unwrap();
        let (a, b) =
            against(one.take_link(digest.clone(), at(2_000)), other.take_link(digest.clone(), at(2_000))).await;
        assert!(a.unwrap() != b.unwrap(), "round {n}");
    }
    let put = |store: &SqlStore, n: usize| {
        let store = store.clone();
        async move { store.put_link(format!("link {n}"), at(1_000), at(9_000)).await.unwrap() }
    };
    for n in 0..ROUNDS {
        against(put(&one, 2 * n), put(&other, 2 * n + 1)).await;
    }
    let mut valid = 0;
    for n in 0..2 * ROUNDS {
        valid += usize::from(other.take_link(format!("link {n}"), at(2_000)).await.unwrap());
    }
    assert_eq!(valid, LINKS_MAX, "of both together");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_does_not_know_the_first_yes_expires_nothing_too_early() {
    let Some(Two { one, other, database: _database, .. }) = two().await else { return };
    let lease = open(&one, "s").await.lease;
    let run = accept(&one, &lease, input("hi")).await;
    let asked = ApprovalRequest { second: Some(Box::default()), ..approval(&lease, run) };
    one.pause_run(&lease, paused(asked.clone())).await.unwrap();
    let first = FirstYes { by: "ann".into(), person: "telegram:1".into(), at: at(1_700) };
    let second = SecondYes { first: Some(first), place: None };
    let Decided::Now(extended) = other.first_yes(asked.id, second, at(9_000), None).await.unwrap() else {
        panic!("nobody else has answered")
    };
    let expire = async |now| one.decide(asked.id, ApprovalState::Expired, None, "nobody", at(now)).await.unwrap();
    assert_eq!(expire(1_800).await, Decided::Before(extended));
    assert!(matches!(expire(9_000).await, Decided::Now(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limits_of_codes_secrets_and_sign_ins_hold_for_both_together() {
    let Some(Two { one, other, database: _database, .. }) = two().await else { return };
    let code = |channel: usize, id: String| PendingPairing {
        person: Stranger {
            channel: format!("c{channel}").as_str().into(),
            id: id.clone(),
            name: "Ann".into(),
            conversation: id.clone(),
        },
        code_digest: id,
        expires_at: at(9_000),
    };
    for round in 0..ROUNDS {
        for n in 1..PENDING_MAX {
            one.put_pairing(code(round, n.to_string()), at(1_000)).await.unwrap();
        }
        let last = against(
            one.put_pairing(code(round, "a".into()), at(1_000)),
            other.put_pairing(code(round, "b".into()), at(1_000)),
        );
        let (a, b) = last.await;
        assert!(a.is_ok() != b.is_ok(), "round {round}: {a:?} {b:?}");
        assert!(matches!(a.and(b), Err(StoreError::TooMuch(_))));
        // Another code of the same person takes no place, and a code that has expired neither.
        one.put_pairing(code(round, "1".into()), at(1_000)).await.unwrap();
        other.put_pairing(code(round, "late".into()), at(9_000)).await.unwrap();
    }
    for round in 0..ROUNDS / 4 {
        let session = SessionKey::new(format!("s{round}"));
        let put = |store: SqlStore, name: String| {
            let session = session.clone();
            async move { store.put_sealed(&session, &name, vec![1], at(1_000)).await }
        };
        join_all((1..100).map(|n| put(one.clone(), n.to_string()))).await.into_iter().for_each(Result::unwrap);
        let (a, b) = against(put(one.clone(), "a".into()), put(other.clone(), "b".into())).await;
        assert!(a.is_ok() != b.is_ok(), "round {round}: {a:?} {b:?}");
    }
    let sign_in = |n: usize| SignIn {
        id: format!("id{n}"),
        digest: format!("digest{n}"),
        tokens: "t".into(),
        principal: "ann".into(),
        agent: String::new(),
        created_at: at(1_000),
        used_at: at(1_000),
        expires_at: at(9_000),
    };
    for n in 0..ROUNDS {
        let (a, b) = against(one.put_sign_in(sign_in(2 * n)), other.put_sign_in(sign_in(2 * n + 1))).await;
        a.unwrap();
        b.unwrap();
        assert!(one.sign_ins().await.unwrap().len() <= SIGN_INS_MAX, "round {n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_answered_or_withdrawn_and_never_both() {
    let Some(Two { one, other, database: _database, .. }) = two().await else { return };
    let lease = open(&one, "s").await.lease;
    for n in 0..ROUNDS {
        let run = accept(&one, &lease, input("hi")).await;
        let asked = pause(&one, &lease, run).await;
        let (withdrew, answered) = against(
            one.finish_runs(&lease, vec![finished(run, "stopped")]),
            other.decide(asked.id, ApprovalState::Denied, None, "ann", at(1_800)),
        )
        .await;
        withdrew.unwrap();
        let resolved: Vec<String> = kinds(&one, run).await.into_iter().filter_map(resolution).collect();
        match answered.unwrap() {
            Decided::Now(_) => assert_eq!(resolved, ["denied"], "round {n}"),
            Decided::Before(_) => assert_eq!(resolved, ["withdrawn"], "round {n}"),
            Decided::Unknown => panic!("round {n}"),
        }
    }
}

/// The new state of an approval request, by its event.
fn resolution(kind: EventKind) -> Option<String> {
    match kind {
        EventKind::ApprovalResolved { state, .. } => Some(state.to_string()),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_of_the_first_node_is_the_key_of_all() {
    let Some(Two { one, other, database, .. }) = two().await else { return };
    let [first, second] = [1, 2].map(|byte| VaultKey::from_bytes(&[byte; KEY_BYTES]).unwrap());
    let (a, b) = against(one.check_key(&first), other.check_key(&second)).await;
    assert!(a.is_ok() != b.is_ok(), "{a:?} {b:?}");
    let (right, wrong) = if a.is_ok() { (&first, &second) } else { (&second, &first) };
    for store in [&one, &other] {
        store.check_key(right).await.unwrap();
        let refused = store.check_key(wrong).await.unwrap_err();
        assert!(matches!(refused, KeyError::OtherThanCluster), "{refused}");
        assert!(refused.to_string().contains("copy the key file"), "{refused}");
    }
    // The way out that the error names.
    database.sql("UPDATE belay_schema SET key_check = NULL").unwrap();
    other.check_key(wrong).await.unwrap();
    assert!(one.check_key(right).await.is_err());
}
