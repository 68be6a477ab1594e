//! Bounds of schedules.

use std::time::Duration;

/// First year a line may name, and the first that `*` stands for.
pub const FIRST_YEAR: u16 = 1970;

/// Last year a line may name, and the last that `*` stands for; it bounds every search.
///
/// Quartz: CronExpression, the year field takes 1970–2099.
pub const LAST_YEAR: u16 = 2099;

/// Longest text of a schedule, in bytes.
///
/// 256: there is room for a list of eight in each field of a cron line.
pub const MAX_TEXT_BYTES: usize = 256;

/// Shortest interval of `every`; the same as the shortest of a cron line with seconds.
///
/// How often is too often is not a question of dates: whoever starts work by a schedule may set a greater minimum.
pub const MIN_INTERVAL: Duration = Duration::from_secs(1);
