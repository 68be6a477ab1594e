//! A store with rows in every table.

use std::sync::Arc;

use belay_protocol::store::KeyClaim;
use belay_protocol::{
    ActedOn, ApprovalState, ApprovalStore, Attachment, AttachmentContent, Authority, BootId, DispatcherStore, Freeze,
    FreezeId, FreezeScope, FreezeStore, JobAttempts, JobCaps, JobStore, NewInput, NoteArchive, NoteSelection,
    NoteStore, NoteVector, NoteVectors, Outbox, PairedPerson, PendingPairing, PeopleStore, Person, Provenance, Purpose,
    RoutineRunStatus, RoutineRunStore, RunStore, Secret, SecretVault, SignIn, SignInStore, SkillSnapshot, SkillStore,
    SpendLedger, StoreHealth, Stranger, ThreadEdit, ToolOff, ToolSwitch, ToolSwitches, Upload, UploadId, UploadStore,
    Uploader,
};
use belay_store::{SealedVault, SqlStore, VaultKey};

use crate::kit::*;

/// The highest number of a note, which was deleted.
pub(super) const HIGHEST_NOTE: u64 = 3;

/// Fills the store. With a copied conversation, eight messages have the word "weather".
pub(super) async fn fill(store: &SqlStore) {
    conversations(store).await;
    people(store).await;
    notes(store).await;
    work(store).await;
    let picture = Attachment {
        name: "a.png".into(),
        media_type: "image/png".into(),
        bytes: 3,
        digest: "a".repeat(64).parse().unwrap(),
        content: AttachmentContent::Named { detail: "PNG".into() },
    };
    let from = Uploader { channel: "http".into(), principal: "ann".into() };
    let upload = Upload { id: UploadId::new(), attachment: picture };
    assert!(store.record_upload(&from, &upload, at(100), at(0), 10).await.unwrap());
    let vault = SealedVault::new(Arc::new(store.clone()), VaultKey::from_bytes(&[1; 32]).unwrap());
    vault.keep(&"s".into(), "mail", &Secret::new("hunter2".into()), at(1)).await.unwrap();
    store.ping().await.unwrap(); // relaxed writes are committed with it
}

async fn conversations(store: &SqlStore) {
    let lease = open(store, "s").await.lease;
    let sender = Person { name: "Änn".into(), username: None, id: "p".into() };
    let provenance = Some(Arc::new(Provenance { sender: Some(sender), ..Provenance::default() }));
    let run = accept(store, &lease, NewInput { provenance, ..input("Café weather \u{1f600}") }).await;
    store.finish_runs(&lease, vec![finished(run, "the weather is 'fine'\n\u{fffd}")]).await.unwrap();
    turn(store, &lease, "a NUL\0 character").await;
    store.keep_skills(&"s".into(), SkillSnapshot { digest: "d".into(), text: "{}".into() }).await.unwrap();
    turn(store, &lease, "the weather").await;
    edit(store, &lease, ThreadEdit::Fork).await;
    // Indexed, unindexed, waiting and paused runs.
    store.ping().await.unwrap();
    let other = open(store, "other").await.lease;
    let paused = accept(store, &other, input("push it")).await;
    let asked = pause(store, &other, paused).await.id;
    store.decide(asked, ApprovalState::Approved, Some(Authority::Conversation), "ann", at(1_800)).await.unwrap();
    let waiting = open(store, "waiting").await.lease;
    accept(store, &waiting, queued("later")).await;
    store.finish_runs(&lease, vec![]).await.unwrap();
    store.enqueue(outbound("c1", "hello")).await.unwrap();
    let paid = store.reserve(reservation(run, Purpose::Chat, 20_000, 100)).await.unwrap();
    SpendLedger::settle(store, paid, charge(30)).await.unwrap();
    store.reserve(reservation(run, Purpose::Chat, 20_001, 7)).await.unwrap();
    let handled = ActedOn { key: key("k1"), digest: None, refused: true };
    store.note_acted_on(&handled, at(5)).await.unwrap();
    let claim = KeyClaim {
        key: key("k2"),
        digest: Some("d".into()),
        owner: BootId::new(),
        from: None,
        again_since: None,
        at: at(6),
    };
    store.claim_key(claim).await.unwrap();
    let off = ToolOff {
        since: at(1),
        until: None,
        for_s: 60,
        actor: "rule".into(),
        detail: "it failed".into(),
        failures: 10,
        runs: 3,
    };
    let switch = ToolSwitch { name: "web_search".into(), revision: 1, off: Some(off) };
    store.switch(switch, Vec::new()).await.unwrap();
    let freeze = Freeze {
        id: FreezeId::new(),
        scope: FreezeScope::All,
        detail: Some("why".into()),
        actor: "op".into(),
        source: "http".into(),
        at: at(2_000),
        receipt: None,
        thawed_at: None,
    };
    store.put_freeze(freeze).await.unwrap();
}

async fn people(store: &SqlStore) {
    let stranger = |id: &str| Stranger {
        channel: "telegram".into(),
        id: id.to_owned(),
        name: "Bob".to_owned(),
        conversation: id.to_owned(),
    };
    let code = PendingPairing { person: stranger("1"), code_digest: "digest".into(), expires_at: at(1_000) };
    store.put_pairing(code, at(0)).await.unwrap();
    let admitted = PairedPerson {
        person: stranger("2"),
        admitted_by: "7".to_owned(),
        admitted_through: "http".into(),
        admitted_at: at(5),
    };
    store.admit_person(admitted).await.unwrap();
    let sign_in = SignIn {
        id: "1".to_owned(),
        digest: "digest".to_owned(),
        tokens: "tokens".to_owned(),
        principal: "token".to_owned(),
        agent: "Firefox \u{202e}".to_owned(),
        created_at: at(1),
        used_at: at(1),
        expires_at: at(10_000),
    };
    store.put_sign_in(sign_in).await.unwrap();
}

async fn notes(store: &SqlStore) {
    for (owner, text) in [(person("ann"), "blue"), (group("s"), "green"), (person("gone"), "red")] {
        store.remember(new_note(&owner, "k", text, 1)).await.unwrap();
    }
    store.delete_notes(NoteSelection::AllOf(person("gone"))).await.unwrap();
    let vector = NoteVector { note: 1, at: at(1), vector: vec![2.0, 1.5] };
    store.put_vectors("m", vec![vector]).await.unwrap();
}

async fn work(store: &SqlStore) {
    let caps = JobCaps { at_work: 2, at_work_each: 2, open_each: 9, open: 9 };
    JobStore::create(store, job("bob \"x\" é/\n"), caps).await.unwrap();
    store.reclaim(BootId::new()).await.unwrap();
    put(store, scheduled("tick", 60_000)).await;
    put(store, routine("hook")).await;
    let claimed = claim(store, on_time("tick", 60_000, 120_000)).await;
    RoutineRunStore::settle(store, end(claimed.routine_run_id, RoutineRunStatus::Ok)).await.unwrap();
    claim(store, routine_run("hook", "k")).await;
}
