//! Metrics of this process, by the names that Prometheus's own clients use:
//! <https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use procfs::process::{LimitValue, Process};
use procfs::{ProcResult, boot_time_secs, page_size, ticks_per_second};

/// Processor time in whole seconds, without child processes.
const CPU: &str = "process_cpu_seconds_total";
/// Bytes of memory that are in RAM.
const RESIDENT: &str = "process_resident_memory_bytes";
/// Bytes of address space.
const VIRTUAL: &str = "process_virtual_memory_bytes";
/// Open file descriptors.
const OPEN_FILES: &str = "process_open_fds";
/// The limit of open file descriptors; infinite if there is none.
const MAX_FILES: &str = "process_max_fds";
/// Threads.
const THREADS: &str = "process_threads";
/// The start of the process, in seconds since 1970.
const STARTED: &str = "process_start_time_seconds";

/// Describes the metrics of the process.
pub(super) fn describe() {
    describe_counter!(CPU, Unit::Seconds, "Processor time of the daemon, without child processes");
    describe_gauge!(RESIDENT, Unit::Bytes, "Memory of the daemon that is in RAM");
    describe_gauge!(VIRTUAL, Unit::Bytes, "Address space of the daemon");
    describe_gauge!(OPEN_FILES, "Open file descriptors of the daemon");
    describe_gauge!(MAX_FILES, "Limit of open file descriptors");
    describe_gauge!(THREADS, "Threads of the daemon");
    describe_gauge!(STARTED, Unit::Seconds, "Start of the daemon, in seconds since 1970");
}

/// Reads the state of the process from `/proc`. Without it, the metrics keep their last values.
pub(super) fn collect() {
    if let Err(error) = read() {
        tracing::debug!(%error, "the state of the process cannot be read");
    }
}

fn read() -> ProcResult<()> {
    let process = Process::myself()?;
    let stat = process.stat()?;
    let ticks = ticks_per_second().max(1);
    counter!(CPU).absolute((stat.utime + stat.stime) / ticks);
    gauge!(RESIDENT).set((stat.rss * page_size()) as f64);
    gauge!(VIRTUAL).set(stat.vsize as f64);
    gauge!(THREADS).set(stat.num_threads as f64);
    gauge!(OPEN_FILES).set(process.fd_count()? as f64);
    gauge!(MAX_FILES).set(match process.limits()?.max_open_files.soft_limit {
        LimitValue::Value(files) => files as f64,
        LimitValue::Unlimited => f64::INFINITY,
    });
    gauge!(STARTED).set(boot_time_secs()? as f64 + stat.starttime as f64 / ticks as f64);
    Ok(())
}
