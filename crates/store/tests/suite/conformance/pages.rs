//! Pages of lists: each row once, also while rows come and go.

use belay_protocol::{RunFilter, RunId, RunStatus, SearchQuery, StoreError};

use crate::kit::*;

super::for_every_store! {
    runs_are_listed_in_pages
    runs_are_listed_in_pages_while_others_are_accepted_and_deleted
}

/// A page of three runs.
async fn runs(store: &Shared, filter: &RunFilter, before: Option<RunId>) -> Result<Vec<RunId>, StoreError> {
    let runs = store.runs(RunFilter { before, limit: 3, ..filter.clone() }).await?;
    Ok(runs.into_iter().map(|run| run.run_id).collect())
}

async fn runs_are_listed_in_pages(store: Shared) {
    let (lease, other) = (open(&*store, "s").await.lease, open(&*store, "t").await.lease);
    let mut newest_first = Vec::new();
    for n in 0..7 {
        let run = match n {
            0..5 => turn(&*store, &lease, "hello").await,
            _ => accept(&*store, &lease, queued("hello")).await,
        };
        newest_first.insert(0, run);
        turn(&*store, &other, "in between").await;
    }
    let [of_session, completed, since] = [
        RunFilter::default(),
        RunFilter { status: Some(RunStatus::Completed), ..RunFilter::default() },
        RunFilter { since: Some(at(0)), ..RunFilter::default() },
    ]
    .map(|filter| RunFilter { session: Some("s".into()), ..filter });
    let queued = RunFilter { status: Some(RunStatus::Queued), ..RunFilter::default() };
    for indexed in [false, true] {
        for (filter, expected) in [
            (&of_session, &newest_first[..]),
            (&completed, &newest_first[2..]),
            (&since, &newest_first),
            (&queued, &newest_first[..2]),
        ] {
            let mut pages: Vec<Vec<RunId>> = Vec::new();
            while pages.last().is_none_or(|page| page.len() == 3) {
                let cursor = pages.last().and_then(|page| page.last().copied());
                pages.push(runs(&store, filter, cursor).await.unwrap());
            }
            assert_eq!(pages.concat(), expected, "{filter:?}, indexed: {indexed}");
            assert_eq!(pages.len(), expected.len() / 3 + 1);
        }
        store.search(SearchQuery { words: "hello".into(), session: None, limit: 1 }).await.unwrap();
    }
}

async fn runs_are_listed_in_pages_while_others_are_accepted_and_deleted(store: Shared) {
    let mut made = Vec::new();
    for session in ["0", "1", "2", "3", "4", "5", "6"] {
        made.push(turn(&*store, &open(&*store, session).await.lease, "hello").await);
    }
    let delete = async |session: &str| {
        let lease = open(&*store, session).await.lease;
        store.delete_session(&lease, at(9_000)).await.unwrap();
    };
    let all = RunFilter::default();
    assert_eq!(runs(&store, &all, None).await.unwrap(), [made[6], made[5], made[4]]);
    turn(&*store, &open(&*store, "new").await.lease, "hello").await;
    delete("6").await; // it was in the page before
    delete("2").await;
    assert_eq!(runs(&store, &all, Some(made[4])).await.unwrap(), [made[3], made[1], made[0]]);
    assert_eq!(runs(&store, &all, Some(made[0])).await.unwrap(), []);
    delete("4").await;
    let refused = runs(&store, &all, Some(made[4])).await;
    let names_it = |what: &str| what.contains(&made[4].to_string());
    assert!(matches!(&refused, Err(StoreError::InvalidCursor(what)) if names_it(what)), "{refused:?}");
}
