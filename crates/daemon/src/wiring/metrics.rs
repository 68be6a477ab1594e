//! The recorder of metrics, and its upkeep.

use std::sync::Arc;

use belay_gateway::Metrics;
use belay_parts::COMMIT_DURATION;
use belay_program::disk::DISK_FREE;
use belay_program::exit::Failure;
use belay_protocol::Clock;
use belay_run::metrics::{
    LATENESS_BUCKETS, ROUTINE_LATENESS, RUN_BUCKETS, RUN_DURATION, STEP_BUCKETS, STEP_HISTOGRAMS, STOP_BUCKETS,
    STOP_TIME,
};
use belay_store::{FileSizes, StoreStats};
use belay_telemetry::Instruments;
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge};
use tokio_util::sync::CancellationToken;

use super::prometheus::Prometheus;

/// SQL statements of the store, by executor: of committed transactions, of the indexing behind replies, or of reads.
const STORE_STATEMENTS: &str = "belay_store_statements_total";
/// Committed transactions of the store.
const STORE_COMMITS: &str = "belay_store_commits_total";
/// Transactions of the store that PostgreSQL has ended because of a deadlock.
const STORE_DEADLOCKS: &str = "belay_store_deadlocks_total";
/// Upper bounds of the buckets of [`COMMIT_DURATION`], in seconds: from a fast disk to one that hangs.
const COMMIT_BUCKETS: [f64; 8] = [0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 5.0];
/// Bytes of the files of the store: the database, and its write-ahead log.
const STORE_SIZE: &str = "belay_store_size_bytes";
/// Always 1, with the version as a label.
const BUILD_INFO: &str = "belay_build_info";

/// The recorder of this process.
#[derive(Clone)]
pub(super) struct Recorder(Prometheus);

impl Recorder {
    /// Installs the recorder of this process and describes every metric. `instruments`: a second recorder, of which an
    /// exporter pushes the values.
    ///
    /// # Errors
    /// The process has a recorder already.
    pub(super) fn install(instruments: Option<Instruments>) -> Result<Self, Failure> {
        let exporter = Prometheus::install(bounds(), instruments)?;
        belay_run::metrics::describe();
        belay_parts::describe_services();
        super::process::describe();
        describe_counter!(
            STORE_STATEMENTS,
            "SQL statements of committed transactions, of the indexing behind replies, and of reads"
        );
        describe_counter!(STORE_COMMITS, "Committed transactions of the store");
        describe_counter!(
            STORE_DEADLOCKS,
            "Transactions that PostgreSQL has ended because nodes waited for each other's locks"
        );
        describe_histogram!(COMMIT_DURATION, Unit::Seconds, "Time of commits of the store, until they are on the disk");
        describe_gauge!(STORE_SIZE, Unit::Bytes, "Size of the database and of its write-ahead log");
        describe_gauge!(DISK_FREE, Unit::Bytes, "Free space on the disk of the data");
        describe_gauge!(BUILD_INFO, "The version that runs; always 1");
        gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1);
        Ok(Self(exporter))
    }

    /// The metrics for `GET /metrics` and `GET /api/v1/latency`. The figures are read at each request. `None`: a build
    /// without that exporter.
    pub(super) fn renderer(&self, figures: Figures, clock: Arc<dyn Clock>) -> Option<Metrics> {
        self.0.renderer(figures, clock)
    }

    /// Keeps the memory of histograms bounded until `stop`.
    pub(super) async fn upkeep(self, stop: CancellationToken) {
        self.0.upkeep(stop).await;
    }
}

/// Reads the figures of the store and of the process. Their metrics have the values of the last reading.
pub(super) type Figures = Arc<dyn Fn() + Send + Sync>;

/// The figures of the process and of this store.
pub(super) fn figures(store: impl Fn() -> (StoreStats, FileSizes) + Send + Sync + 'static) -> Figures {
    Arc::new(move || {
        let (StoreStats { commits, deadlocks, statements, indexing, read_statements, .. }, files) = store();
        counter!(STORE_COMMITS).absolute(commits);
        counter!(STORE_DEADLOCKS).absolute(deadlocks);
        counter!(STORE_STATEMENTS, "executor" => "writer").absolute(statements);
        counter!(STORE_STATEMENTS, "executor" => "indexer").absolute(indexing);
        counter!(STORE_STATEMENTS, "executor" => "reader").absolute(read_statements);
        gauge!(STORE_SIZE, "file" => "database").set(files.database as f64);
        gauge!(STORE_SIZE, "file" => "wal").set(files.wal as f64);
        super::process::collect();
    })
}

/// The upper bounds of the buckets of each histogram.
pub(super) fn bounds() -> impl Iterator<Item = (&'static str, &'static [f64])> {
    let special: [(&str, &[f64]); 4] = [
        (RUN_DURATION, &RUN_BUCKETS),
        (ROUTINE_LATENESS, &LATENESS_BUCKETS),
        (STOP_TIME, &STOP_BUCKETS),
        (COMMIT_DURATION, &COMMIT_BUCKETS),
    ];
    STEP_HISTOGRAMS.into_iter().map(|name| (name, &STEP_BUCKETS[..])).chain(special)
}
