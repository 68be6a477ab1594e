//! Databases that the store cannot use: each refusal says the next step, and no password.

use belay_protocol::{LaneStore, StoreHealth};
use belay_testkit::postgres::{Durability, PostgresOptions};

use super::*;
use crate::kit::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_refusal_says_the_next_step() {
    let Some(server) = shared() else { return };
    let database = TestDatabase::new(server).unwrap();
    let name = database.name();
    let roles = format!(
        "create role {name}_poor login password 'hunter2'; create role {name}_few login password 'hunter2' connection limit 1;
         grant create on database {name} to {name}_few; revoke create on database {name} from public"
    );
    database.sql(&roles).unwrap();
    let good = address(server, name, server.port());
    let own = good.split_once("://").unwrap().1.split_once('@').unwrap().0.to_owned();
    for (address, word) in [
        (good.replace(&own, "belay:hunter2"), "check the user and the password"),
        (good.replace(&own, &format!("{name}_poor:hunter2")), "grant CREATE on the database"),
        (good.replace(&own, &format!("{name}_few:hunter2")), "store.connections"),
        (good.replace(&format!("/{name}?"), "/missing?"), "CREATE DATABASE"),
    ] {
        let error = connect(&address, LONG).await.unwrap_err().to_string();
        assert!(error.contains(word), "{word}: {error}");
        assert!(!error.contains("hunter2") && !error.contains(own.split_once(':').unwrap().1), "{error}");
    }
    database
        .sql(&format!(
            "drop owned by {name}_few; drop owned by {name}_poor; drop role {name}_few; drop role {name}_poor"
        ))
        .unwrap();
}

/// Needs a file system of a limited size, which root can mount.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_costs_errors_and_recovers() {
    let Some(programs) = Programs::for_test().unwrap() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mount =
        |arguments: &[&str]| std::process::Command::new(arguments[0]).args(&arguments[1..]).arg(folder.path()).output();
    if !mount(&["mount", "-t", "tmpfs", "-o", "size=150m,mode=777", "tmpfs"])
        .is_ok_and(|output| output.status.success())
    {
        eprintln!("skipped: a file system of a limited size cannot be mounted here");
        return;
    }
    let options = PostgresOptions {
        durability: Durability::NoFsync,
        settings: [("min_wal_size", "32MB"), ("max_wal_size", "32MB"), ("wal_keep_size", "0")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        within: Some(folder.path().to_owned()),
        ..PostgresOptions::default()
    };
    let server = PostgresServer::start(&programs, &options);
    if let Ok(server) = &server {
        server.create_database("d").unwrap();
        let store = connect(&address(server, "d", server.port()), LONG).await.unwrap();
        let lease = open(&store, "s").await.lease;
        let fill = folder.path().join("fill");
        let free = std::process::Command::new("fallocate").args(["-l", "300m"]).arg(&fill).output().unwrap();
        assert!(!free.status.success(), "it fills the rest");
        std::fs::write(&fill, vec![0; 1]).unwrap();
        let mut large = vec![0_u8; 300 << 20];
        large.fill(1);
        drop(std::fs::write(&fill, large)); // until there is no space
        // The pages that are there already may take some of it.
        let mut accepted = 0;
        let words = loop {
            match store.accept(&lease, queued(&text(accepted))).await {
                Ok(_) => accepted += 1,
                Err(error) => break error.to_string(),
            }
        };
        assert!(
            words.contains("free space") || words.contains("was lost") || words.contains("check that it runs"),
            "{words}"
        );
        std::fs::remove_file(&fill).unwrap();
        while is_unavailable(&store.ping().await) {}
        accept(&store, &lease, queued("after")).await;
        assert_eq!(server.sql("d", "select count(*) from belay.runs").unwrap(), (accepted + 1).to_string());
        store.close().await;
    }
    let started = server.map(drop);
    mount(&["umount"]).unwrap();
    started.unwrap();
}

/// A text of 100 KB that cannot be compressed well.
fn text(seed: u32) -> String {
    let mut state = u64::from(seed) + 1;
    let letters = (0..100_000).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b' ' + u8::try_from((state >> 33) % 94).unwrap())
    });
    letters.collect()
}
