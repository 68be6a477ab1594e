//! Bounds of schedules.

use std::time::Duration;

/// First year that a line may contain, and the first that `*` includes.
pub const FIRST_YEAR: u16 = 1970;

/// Last year that a line may contain, and the last that `*` includes. It bounds every search.
///
/// Quartz: CronExpression, the year field takes 1970–2099.
pub const LAST_YEAR: u16 = 2099;

/// Longest text of a schedule, in bytes.
///
/// 256: enough for a list of eight in each field of a cron line.
pub const MAX_TEXT_BYTES: usize = 256;

/// Shortest interval of `every`, which is also the shortest of a cron line with seconds.
///
/// This crate does not decide how often is too often. The caller may require a greater minimum.
pub const MIN_INTERVAL: Duration = Duration::from_secs(1);
