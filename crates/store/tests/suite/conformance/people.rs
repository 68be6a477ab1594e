//! Pairing codes, and the people whom pairing has admitted.

use std::sync::Arc;

use belay_protocol::{PairedPerson, PendingPairing, Stranger};

use super::for_every_store;
use crate::kit::*;

for_every_store! {
    a_code_is_pending_until_it_expires_is_dropped_or_admits
    a_code_is_taken_once_while_it_is_valid
    an_admission_lasts_until_it_is_revoked
}

type Store = Arc<dyn Everything>;

fn stranger(id: &str) -> Stranger {
    Stranger { channel: "telegram".into(), id: id.to_owned(), name: "Ann".to_owned(), conversation: id.to_owned() }
}

fn pending(id: &str, digest: &str, expires: i64) -> PendingPairing {
    PendingPairing { person: stranger(id), code_digest: digest.to_owned(), expires_at: at(expires) }
}

fn paired(id: &str, since: i64) -> PairedPerson {
    PairedPerson {
        person: stranger(id),
        admitted_by: "7".to_owned(),
        admitted_through: "http".into(),
        admitted_at: at(since),
    }
}

async fn a_code_is_pending_until_it_expires_is_dropped_or_admits(store: Store) {
    let (first, second, third) = (pending("1", "a", 1_000), pending("2", "b", 2_000), pending("3", "c", 3_000));
    for code in [&third, &first, &second] {
        store.put_pairing(code.clone(), at(0)).await.unwrap();
    }
    assert_eq!(store.pending_pairings(at(999)).await.unwrap(), [first, second.clone(), third.clone()]);
    assert_eq!(store.pending_pairings(at(1_000)).await.unwrap(), [second.clone(), third.clone()]);
    // Another code of the same person takes the place of the first, and expired ones are deleted.
    let again = pending("2", "d", 4_000);
    store.put_pairing(again.clone(), at(1_000)).await.unwrap();
    assert_eq!(store.pending_pairings(at(0)).await.unwrap(), [third, again]);
    store.admit_person(paired("2", 1_500)).await.unwrap();
    store.drop_pairing("telegram".into(), "3".to_owned()).await.unwrap();
    assert_eq!(store.pending_pairings(at(0)).await.unwrap(), []);
}

async fn a_code_is_taken_once_while_it_is_valid(store: Store) {
    let (first, second) = (pending("1", "a", 1_000), pending("2", "b", 2_000));
    for code in [&first, &second] {
        store.put_pairing(code.clone(), at(0)).await.unwrap();
    }
    let take = async |digest: &str| store.take_pairing(digest.to_owned(), at(1_000)).await.unwrap();
    assert_eq!(take("a").await, None, "it has expired");
    assert_eq!(take("1").await, None, "the person is no code");
    assert_eq!(take("b").await, Some(second));
    assert_eq!(take("b").await, None);
    assert_eq!(store.pending_pairings(at(0)).await.unwrap(), [first]);
}

async fn an_admission_lasts_until_it_is_revoked(store: Store) {
    assert_eq!(store.paired().await.unwrap(), []);
    for person in [paired("2", 2_000), paired("1", 1_000), paired("2", 3_000)] {
        store.admit_person(person).await.unwrap();
    }
    assert_eq!(store.paired().await.unwrap(), [paired("1", 1_000), paired("2", 3_000)]);
    assert!(store.remove_person("telegram".into(), "1".to_owned()).await.unwrap());
    assert!(!store.remove_person("telegram".into(), "1".to_owned()).await.unwrap());
    assert!(!store.remove_person("http".into(), "2".to_owned()).await.unwrap());
    assert_eq!(store.paired().await.unwrap(), [paired("2", 3_000)]);
}
