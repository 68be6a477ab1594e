//! The newest number of the log, which a tip without hints does not follow.

use belay_protocol::{EventKind, EventLog, NewEvent, Seq, StoreHealth};

use super::two::two;
use crate::kit::at;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_number_is_read_from_the_database() {
    let Some(two) = two().await else { return };
    let notice = NewEvent { at: at(1), session: None, run_id: None, kind: EventKind::Notice { text: "here".into() } };
    two.other.append(vec![notice.clone(), notice]).await.unwrap();
    two.other.ping().await.unwrap(); // commits
    let newest = *two.other.tip().borrow();
    assert!(newest > Seq(0));
    assert_eq!((two.one.newest().await.unwrap(), *two.one.tip().borrow()), (newest, Seq(0)));
    two.close().await;
}
