//! The sign-ins of browsers.

use std::sync::Arc;

use belay_protocol::{LINKS_MAX, SIGN_INS_MAX, SignIn};

use super::for_every_store;
use crate::kit::*;

for_every_store! {
    a_sign_in_is_found_by_its_digest_until_it_is_ended
    a_new_sign_in_deletes_what_is_expired_and_the_least_used_above_the_maximum
    a_link_is_used_once_until_it_expires_or_is_withdrawn
    the_oldest_link_gives_way_to_a_new_one
}

type Store = Arc<dyn Everything>;

fn sign_in(n: i64) -> SignIn {
    SignIn {
        id: format!("{n:05}"),
        digest: format!("digest {n}"),
        tokens: "tokens".to_owned(),
        principal: "token".to_owned(),
        agent: "Firefox \u{202e}".to_owned(),
        created_at: at(n),
        used_at: at(n),
        expires_at: at(n + 10_000),
    }
}

async fn a_sign_in_is_found_by_its_digest_until_it_is_ended(store: Store) {
    for n in [1, 2, 3] {
        store.put_sign_in(sign_in(n)).await.unwrap();
    }
    assert_eq!(store.sign_in("digest 2".to_owned()).await.unwrap(), Some(sign_in(2)));
    assert_eq!(store.sign_in("00002".to_owned()).await.unwrap(), None);
    store.use_sign_in("00002".to_owned(), at(70), at(20_000)).await.unwrap();
    // A use is relaxed; the next committed write comes after it.
    store.end_sign_ins(Vec::new()).await.unwrap();
    let used = SignIn { used_at: at(70), expires_at: at(20_000), ..sign_in(2) };
    assert_eq!(store.sign_ins().await.unwrap(), [sign_in(3), used.clone(), sign_in(1)]);
    let ids = ["00001", "00003", "unknown"].map(str::to_owned).to_vec();
    assert_eq!(store.end_sign_ins(ids).await.unwrap(), 2);
    assert_eq!(store.sign_in("digest 1".to_owned()).await.unwrap(), None);
    assert_eq!(store.sign_ins().await.unwrap(), [used]);
}

async fn a_new_sign_in_deletes_what_is_expired_and_the_least_used_above_the_maximum(store: Store) {
    let max = i64::try_from(SIGN_INS_MAX).unwrap();
    let other = SignIn { principal: "operator-token".to_owned(), ..sign_in(0) };
    store.put_sign_in(other.clone()).await.unwrap();
    for n in 1..=max {
        store.put_sign_in(sign_in(n)).await.unwrap();
    }
    store.use_sign_in("00001".to_owned(), at(5_000), at(15_000)).await.unwrap();
    store.put_sign_in(sign_in(max + 1)).await.unwrap();
    let mut kept = store.sign_ins().await.unwrap();
    assert_eq!(kept.pop(), Some(other), "those of another principal count apart");
    assert_eq!(kept.len(), SIGN_INS_MAX);
    assert!(kept.iter().any(|kept| kept.id == "00001") && kept.iter().all(|kept| kept.id != "00002"));
    store.put_sign_in(sign_in(13_000)).await.unwrap();
    let kept: Vec<_> = store.sign_ins().await.unwrap().into_iter().map(|kept| kept.id).collect();
    assert_eq!(kept, ["13000", "00001"]);
}

async fn a_link_is_used_once_until_it_expires_or_is_withdrawn(store: Store) {
    let take = async |digest: &str, now| store.take_link(digest.to_owned(), at(now)).await.unwrap();
    for digest in ["a", "b", "c"] {
        store.put_link(digest.to_owned(), at(1_000), at(2_000)).await.unwrap();
    }
    assert!(!take("", 1_000).await && !take("d", 1_000).await);
    assert!(take("a", 1_999).await && !take("a", 1_999).await);
    assert!(!take("b", 2_000).await, "it has expired");
    store.drop_links().await.unwrap();
    assert!(!take("c", 1_000).await);
}

async fn the_oldest_link_gives_way_to_a_new_one(store: Store) {
    let max = i64::try_from(LINKS_MAX).unwrap();
    for n in 0..=max {
        store.put_link(n.to_string(), at(n), at(n + 1_000)).await.unwrap();
    }
    assert!(!store.take_link("0".to_owned(), at(100)).await.unwrap());
    for n in 1..=max {
        assert!(store.take_link(n.to_string(), at(100)).await.unwrap(), "{n}");
    }
}
