//! The one suite that every store passes. Each function is a test of each store.

mod acted_on;
mod answers;
mod archive;
mod blobs;
mod client_calls;
mod cursors;
mod delivery;
mod ephemeral;
mod freezes;
mod jobs;
mod kept_outputs;
mod leased_delivery;
mod ledgers;
mod marks;
mod moves;
mod node_mail;
mod nodes;
mod notes;
mod notices;
mod orders;
mod pages;
mod pauses;
mod people;
mod pins;
mod principals;
mod reading;
mod routine_runs;
mod routines;
mod runs;
mod second_yes;
mod secrets;
mod sign_ins;
mod skills;
mod switches;
mod threads;
mod titles;
mod together;
mod uploads;
mod work_leases;

/// Makes a test of each store out of each function of the module.
macro_rules! for_every_store {
    ($($test:ident)+) => {
        mod memory {
            $(#[tokio::test] async fn $test() { super::$test(crate::kit::memory()).await; })+
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $test() {
                let (store, _directory) = crate::kit::sqlite();
                super::$test(std::sync::Arc::new(store.clone())).await;
                store.close().await;
            })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $test() {
                let Some((store, _database)) = crate::kit::postgres().await else { return };
                super::$test(std::sync::Arc::new(store.clone())).await;
                store.close().await;
            })+
        }
    };
}
use for_every_store;
