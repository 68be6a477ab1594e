//! The suite that every store of kept outputs passes: files and rows. Each function is a test.

use std::sync::Arc;

use belay_protocol::{OutputName, OutputPart, OutputStore, RunId, StoreError, UnixMillis};
use tokio::task::JoinSet;

/// The limit of all outputs together in bytes, for each store of the suite.
pub const MAX_TOTAL_BYTES: u64 = 2_000_000;

/// Keeps an output that is written in pieces.
///
/// # Errors
/// Those of the store.
pub async fn keep(store: &dyn OutputStore, run: RunId, call: &str, pieces: &[&[u8]]) -> Result<OutputName, StoreError> {
    let mut writer = store.begin(run, &call.into()).await?;
    for piece in pieces {
        writer.write(piece).await?;
    }
    writer.finish().await
}

/// Whether an output is there.
///
/// # Panics
/// The store fails.
pub async fn is_kept(store: &dyn OutputStore, name: &OutputName) -> bool {
    store.part(name, 0, 1).await.expect("readable").is_some()
}

/// # Panics
/// The store does not pass.
pub async fn an_output_of_any_length_is_read_in_parts(store: Arc<dyn OutputStore>) {
    let all: Vec<u8> = (0..600_000_u32).map(|n| (n % 251) as u8).collect();
    for (length, piece) in [(0, 1), (1, 1), (262_143, 9_999), (262_144, 100_000), (262_145, 262_145), (600_000, 70_001)]
    {
        let bytes = &all[..length];
        let run = RunId::new();
        let pieces: Vec<_> = bytes.chunks(piece).collect();
        let name = keep(&*store, run, "call", &pieces).await.expect("kept");
        assert_eq!((name.run(), name.number()), (run, 1));
        let size = length as u64;
        for (from, most) in [(0, 1), (0, u64::MAX), (262_100, 100), (262_144, 1), (size / 2, 61_440), (599_999, 9)] {
            let begin = usize::try_from(from).expect("small").min(length);
            let end = usize::try_from(size.min(from.saturating_add(most))).expect("small").max(begin);
            let expected = OutputPart { bytes: bytes[begin..end].to_vec(), size };
            let part = store.part(&name, from, most).await.expect("readable").expect("it is there");
            assert!(part == expected, "{length} {from} {most}: {} of {}", part.bytes.len(), part.size);
        }
        for (from, most) in [(size, 1), (size + 1, 1), (u64::MAX, u64::MAX), (0, 0)] {
            let nothing = OutputPart { bytes: Vec::new(), size };
            assert_eq!(store.part(&name, from, most).await.expect("readable"), Some(nothing), "{length} {from} {most}");
        }
    }
}

/// # Panics
/// The store does not pass.
pub async fn each_output_has_a_name_of_its_own(store: Arc<dyn OutputStore>) {
    let run = RunId::new();
    let mut tasks = JoinSet::new();
    for n in 0..20_u8 {
        let store = store.clone();
        tasks.spawn(async move { (keep(&*store, run, "same", &[&[n]]).await.expect("kept"), n) });
    }
    let mut kept = tasks.join_all().await;
    kept.sort();
    kept.dedup_by(|(one, _), (other, _)| one == other);
    assert_eq!(kept.len(), 20);
    for (name, n) in &kept {
        let part = store.part(name, 0, 9).await.expect("readable").expect("it is there");
        assert_eq!(part, OutputPart { bytes: vec![*n], size: 1 });
    }
    let number = kept[0].0.number();
    for other in [OutputName::new(run, number, &"other".into()), OutputName::new(RunId::new(), number, &"same".into())]
    {
        assert!(!is_kept(&*store, &other).await, "{other}");
    }
}

/// # Panics
/// The store does not pass.
pub async fn an_output_is_read_after_its_end_alone(store: Arc<dyn OutputStore>) {
    let run = RunId::new();
    let mut writer = store.begin(run, &"call".into()).await.expect("begun");
    writer.write(&[7; 300_000]).await.expect("written");
    drop(writer);
    assert!(!is_kept(&*store, &OutputName::new(run, 1, &"call".into())).await);
    let name = keep(&*store, run, "call", &[b"text"]).await.expect("kept");
    assert!(is_kept(&*store, &name).await);
}

/// # Panics
/// The store does not pass.
pub async fn the_oldest_are_removed_beyond_the_limit(store: Arc<dyn OutputStore>) {
    let long = vec![1; 700_000];
    let (first_run, later_run) = (RunId::new(), RunId::new());
    let later = keep(&*store, later_run, "a", &[&long]).await.expect("kept");
    let first = keep(&*store, first_run, "a", &[&long]).await.expect("kept");
    let second = keep(&*store, first_run, "b", &[&long]).await.expect("kept");
    // Older by its run, though it was kept later.
    let kept = [is_kept(&*store, &first).await, is_kept(&*store, &second).await, is_kept(&*store, &later).await];
    assert_eq!(kept, [false, true, true]);
    // One alone exceeds the limit, and is kept.
    let longest = keep(&*store, later_run, "c", &[&vec![2; 2_100_000]]).await.expect("kept");
    let kept = [is_kept(&*store, &second).await, is_kept(&*store, &later).await, is_kept(&*store, &longest).await];
    assert_eq!(kept, [false, false, true]);
    let small = keep(&*store, RunId::new(), "d", &[b"x"]).await.expect("kept");
    assert_eq!([is_kept(&*store, &longest).await, is_kept(&*store, &small).await], [false, true]);
}

/// # Panics
/// The store does not pass.
pub async fn old_outputs_are_removed_by_the_date_of_their_run(store: Arc<dyn OutputStore>) {
    // Ids of runs begin with their date in milliseconds.
    let of = |ms: u64| -> RunId {
        format!("{:08x}-{:04x}-7000-8000-000000000001", ms >> 16, ms & 0xffff).parse().expect("an id")
    };
    let mut names = Vec::new();
    for n in 0..120 {
        names.push(keep(&*store, of(1_000_000 + n), "a", &[b"text"]).await.expect("kept"));
    }
    let new = keep(&*store, of(2_000_000), "a", &[b"text"]).await.expect("kept");
    let mut writing = store.begin(of(1_000_000), &"b".into()).await.expect("begun");
    writing.write(&[7; 300_000]).await.expect("written");
    assert_eq!(store.forget_before(UnixMillis(1_000_000)).await.expect("removed"), 0);
    assert_eq!(store.forget_before(UnixMillis(2_000_000)).await.expect("removed"), 120);
    for name in &names {
        assert!(!is_kept(&*store, name).await, "{name}");
    }
    let written = writing.finish().await.expect("an output that is being written is not removed");
    assert!(is_kept(&*store, &new).await && is_kept(&*store, &written).await);
}
