//! The one suite that every store passes. Each function is a test of each store.

mod acted_on;
mod answers;
mod archive;
mod delivery;
mod ephemeral;
mod freezes;
mod jobs;
mod ledgers;
mod notes;
mod notices;
mod pages;
mod pauses;
mod people;
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
    };
}
use for_every_store;
