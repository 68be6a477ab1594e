//! What of a secret is on disk.

use std::path::Path;
use std::sync::Arc;

use belay_protocol::{Secret, SecretVault, StoreHealth};
use belay_store::{SealedVault, SqlStore, StoreOptions, VaultKey};

use crate::kit::*;

const CANARY: &str = "correct-horse-battery-staple";

fn vault(store: &SqlStore, directory: &Path) -> SealedVault {
    SealedVault::new(Arc::new(store.clone()), VaultKey::from_file(&directory.join("secret.key")).unwrap())
}

/// The files in which these bytes are.
fn holding(directory: &Path, bytes: &[u8]) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let holding = entries.filter(|entry| {
        let content = std::fs::read(entry.path()).unwrap();
        content.windows(bytes.len()).any(|window| window == bytes)
    });
    let mut names: Vec<String> = holding.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn no_file_holds_a_secret_in_the_clear_and_the_database_does_not_hold_the_key() {
    let (store, directory) = sqlite();
    let vault = vault(&store, directory.path());
    vault.keep(&"s".into(), "greenhouse", &Secret::new(CANARY.into()), at(1)).await.unwrap();
    let key = std::fs::read(directory.path().join("secret.key")).unwrap();
    let look = || (holding(directory.path(), CANARY.as_bytes()), holding(directory.path(), &key));

    // The name is in the clear: it shows that the search would find what is there.
    assert_eq!(holding(directory.path(), b"greenhouse"), ["belay.db-wal"]);
    assert_eq!(look(), (vec![], vec!["secret.key".to_owned()]), "while it is in the log");
    store.close().await;
    assert_eq!(holding(directory.path(), b"greenhouse"), ["belay.db"]);
    assert_eq!(look(), (vec![], vec!["secret.key".to_owned()]), "and in the database");
}

#[tokio::test]
async fn a_secret_is_found_after_a_restart_with_the_key_file_and_not_without() {
    let (store, directory) = sqlite();
    vault(&store, directory.path()).keep(&"s".into(), "mail", &Secret::new(CANARY.into()), at(1)).await.unwrap();
    store.close().await;
    let store = SqlStore::open(&directory.path().join("belay.db"), StoreOptions::default()).unwrap();
    let found = vault(&store, directory.path()).find(&"s".into(), "mail").await.unwrap();
    assert_eq!(found.map(|secret| secret.expose().to_owned()).as_deref(), Some(CANARY));

    std::fs::remove_file(directory.path().join("secret.key")).unwrap();
    assert_eq!(vault(&store, directory.path()).find(&"s".into(), "mail").await.unwrap(), None);
    store.ping().await.unwrap(); // the rest of the store goes on
}
