//! The suite that every store of pins passes: a file and a row. Each function is a test.

use std::sync::Arc;

use belay_protocol::PinStore;
use tokio::task::JoinSet;

/// # Panics
/// The store does not pass.
pub async fn pins_are_replaced_only_if_they_are_unchanged(store: Arc<dyn PinStore>) {
    let replace = async |before, after| store.replace_pins(before, after).await.expect("written");
    assert_eq!(store.pins().await.expect("readable"), None);
    assert!(!replace(Some(""), "a").await, "there are none yet");
    assert!(replace(None, "a").await);
    assert!(!replace(None, "b").await && !replace(Some("A"), "b").await && !replace(Some("a "), "b").await);
    assert_eq!(store.pins().await.expect("readable").as_deref(), Some("a"));
    let long = format!("'\"\\\n\u{1f600}{}", "x".repeat(3_000_000));
    assert!(replace(Some("a"), &long).await && !replace(Some("a"), "c").await);
    assert!(store.pins().await.expect("readable").is_some_and(|pins| pins == long));
    assert!(replace(Some(&long), "").await);
    assert_eq!(store.pins().await.expect("readable").as_deref(), Some(""));
}

/// # Panics
/// The store does not pass.
pub async fn changes_of_many_at_once_are_all_kept(stores: Vec<Arc<dyn PinStore>>) {
    let mut tasks = JoinSet::new();
    for n in 0..8 {
        let store = stores[n % stores.len()].clone();
        tasks.spawn(async move {
            loop {
                let before = store.pins().await.expect("readable");
                let after = format!("{}{n},", before.as_deref().unwrap_or_default());
                match store.replace_pins(before.as_deref(), &after).await {
                    Ok(true) => break,
                    Ok(false) => {}
                    // On a busy machine the others may hold a file for longer than a writer waits.
                    Err(error) => assert!(error.to_string().contains("try again"), "{error}"),
                }
            }
        });
    }
    tasks.join_all().await;
    let pins = stores[0].pins().await.expect("readable").unwrap_or_default();
    let mut all: Vec<&str> = pins.split_terminator(',').collect();
    all.sort_unstable();
    assert_eq!(all, ["0", "1", "2", "3", "4", "5", "6", "7"]);
}
