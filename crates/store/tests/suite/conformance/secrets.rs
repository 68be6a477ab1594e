//! Secrets, sealed over each store.

use std::collections::HashMap;

use belay_protocol::{Secret, SecretVault, StoreError};
use belay_store::{SealedVault, VaultKey};

use crate::kit::*;

super::for_every_store! {
    a_secret_is_found_by_its_session_and_name_only
    a_newer_secret_replaces_the_one_of_its_name
    a_forgotten_secret_is_gone
    a_sessions_own_secret_comes_before_the_configured_one
    a_secret_that_was_sealed_with_another_key_stays_and_can_be_given_again
    a_record_that_was_moved_does_not_open
    too_many_or_too_big_secrets_are_refused_with_words
}

fn vault(store: &Shared, key: u8) -> SealedVault {
    SealedVault::new(store.clone(), VaultKey::from_bytes(&[key; 32]).unwrap())
}

fn secret(text: &str) -> Secret {
    Secret::new(text.into())
}

async fn found(vault: &SealedVault, session: &str, name: &str) -> Option<String> {
    vault.find(&session.into(), name).await.unwrap().map(|secret| secret.expose().to_owned())
}

async fn a_secret_is_found_by_its_session_and_name_only(store: Shared) {
    let vault = vault(&store, 1);
    for (session, name, text) in [("s", "mail", "one"), ("s", "web", "two"), ("t", "mail", "three"), ("t", "empty", "")]
    {
        vault.keep(&session.into(), name, &secret(text), at(1)).await.unwrap();
    }
    for (session, name, expected) in [
        ("s", "mail", Some("one")),
        ("s", "web", Some("two")),
        ("t", "mail", Some("three")),
        ("t", "empty", Some("")),
        ("t", "web", None),
        ("u", "mail", None),
        ("s", "Mail", None),
    ] {
        assert_eq!(found(&vault, session, name).await.as_deref(), expected, "{session} {name}");
    }
}

async fn a_newer_secret_replaces_the_one_of_its_name(store: Shared) {
    let vault = vault(&store, 1);
    for text in ["one", "two"] {
        vault.keep(&"s".into(), "mail", &secret(text), at(1)).await.unwrap();
        assert_eq!(found(&vault, "s", "mail").await.as_deref(), Some(text), "at once");
    }
}

async fn a_forgotten_secret_is_gone(store: Shared) {
    let vault = vault(&store, 1);
    for session in ["s", "t"] {
        vault.keep(&session.into(), "mail", &secret("one"), at(1)).await.unwrap();
    }
    assert!(vault.forget(&"s".into(), "mail").await.unwrap());
    assert!(!vault.forget(&"s".into(), "mail").await.unwrap(), "there was none");
    assert_eq!(found(&vault, "s", "mail").await, None);
    assert_eq!(found(&vault, "t", "mail").await.as_deref(), Some("one"));
}

async fn a_sessions_own_secret_comes_before_the_configured_one(store: Shared) {
    let configured = HashMap::from([("mail".to_owned(), secret("everybody's"))]);
    let vault = vault(&store, 1).with_configured(configured);
    assert_eq!(found(&vault, "s", "mail").await.as_deref(), Some("everybody's"));
    assert_eq!(found(&vault, "s", "web").await, None);
    vault.keep(&"s".into(), "mail", &secret("mine"), at(1)).await.unwrap();
    assert_eq!(found(&vault, "s", "mail").await.as_deref(), Some("mine"));
    assert_eq!(found(&vault, "t", "mail").await.as_deref(), Some("everybody's"));
    assert!(vault.forget(&"s".into(), "mail").await.unwrap());
    assert_eq!(found(&vault, "s", "mail").await.as_deref(), Some("everybody's"), "that one stays");
    assert!(!vault.forget(&"s".into(), "mail").await.unwrap());
    assert_eq!(format!("{vault:?}"), "SealedVault { configured: 1, .. }");
}

async fn a_secret_that_was_sealed_with_another_key_stays_and_can_be_given_again(store: Shared) {
    vault(&store, 1).keep(&"s".into(), "mail", &secret("hunter2"), at(1)).await.unwrap();
    let configured = HashMap::from([("mail".to_owned(), secret("everybody's"))]);
    let other = vault(&store, 2).with_configured(configured);
    assert_eq!(found(&other, "s", "mail").await, None, "not the configured one either: another was wanted");
    assert_eq!(found(&vault(&store, 1), "s", "mail").await.as_deref(), Some("hunter2"), "the right key reads it again");
    other.keep(&"s".into(), "mail", &secret("anew"), at(2)).await.unwrap();
    assert_eq!(found(&other, "s", "mail").await.as_deref(), Some("anew"), "giving it again helps");
}

async fn a_record_that_was_moved_does_not_open(store: Shared) {
    let vault = vault(&store, 1);
    vault.keep(&"s".into(), "mail", &secret("hunter2"), at(1)).await.unwrap();
    let record = store.sealed(&"s".into(), "mail").await.unwrap().unwrap();
    for (session, name) in [("t", "mail"), ("s", "web")] {
        store.put_sealed(&session.into(), name, record.clone(), at(2)).await.unwrap();
        assert_eq!(found(&vault, session, name).await, None, "{session} {name}");
    }
    assert_eq!(found(&vault, "s", "mail").await.as_deref(), Some("hunter2"));
}

async fn too_many_or_too_big_secrets_are_refused_with_words(store: Shared) {
    let vault = vault(&store, 1);
    for (name, text, ok) in [
        ("k".repeat(256), "x".repeat(16 * 1024), true),
        ("k".repeat(257), "x".to_owned(), false),
        ("k".to_owned(), "x".repeat(16 * 1024 + 1), false),
    ] {
        let outcome = vault.keep(&"s".into(), &name, &secret(&text), at(1)).await;
        assert_eq!(outcome.is_ok(), ok, "{outcome:?}");
        if let Err(error) = outcome {
            assert!(matches!(error, StoreError::TooMuch(_)), "{error:?}");
        }
    }
    for n in 0..100 {
        vault.keep(&"t".into(), &n.to_string(), &secret("x"), at(1)).await.unwrap();
    }
    let outcome = vault.keep(&"t".into(), "one more", &secret("x"), at(1)).await;
    assert!(matches!(&outcome, Err(StoreError::TooMuch(words)) if words.contains("100")), "{outcome:?}");
    vault.keep(&"t".into(), "7", &secret("y"), at(2)).await.unwrap(); // replacing is no more
    vault.forget(&"t".into(), "7").await.unwrap();
    vault.keep(&"t".into(), "one more", &secret("x"), at(3)).await.unwrap();
}
