//! How many runs have ended, and why.

use belay_protocol::{EndCount, EndQuery, StopReason, UnixMillis};

use super::connection::Connection;
use super::reads::from_id;
use super::rows;
use super::tx::{Done, rows as all};
use crate::limits::id_before;
use crate::value::params;

/// The time before the period in which a counted run may have been accepted. Seven days: runs that wait for a person
/// may take days.
const LONGEST_RUN_MS: i64 = 7 * 86_400_000;

pub(super) fn ends(conn: &Connection, query: &EndQuery) -> Done<Vec<EndCount>> {
    let (since, until) = (query.since.0, query.until.0);
    let oldest = id_before(UnixMillis(since.saturating_sub(LONGEST_RUN_MS)));
    all(conn, &ends_sql(query.by_channel, query.by_model), params![query.by.millis(), since, until, oldest], |row| {
        Ok(EndCount {
            at: rows::date(row, "at")?,
            reason: rows::reason(row)?,
            channel: row.get("channel")?,
            model: row.get("model")?,
            count: rows::count(row, "count")?,
        })
    })
}

/// Reads one range of an index for each reason, and the few runs that are not indexed yet. The index has neither
/// channels nor models.
pub(super) fn ends_sql(by_channel: bool, by_model: bool) -> String {
    let channel = if by_channel { "channel" } else { "CAST(NULL AS TEXT)" };
    let model = if by_model { "COALESCE(model, '')" } else { "CAST(NULL AS TEXT)" };
    let reasons: Vec<_> = StopReason::ALL.iter().map(|reason| format!("'{}'", reason.word())).collect();
    let from = from_id!();
    format!(
        "SELECT ended_at / ?1 * ?1 AS at, reason, channel, model, COUNT(*) AS count FROM (
             SELECT ended_at, reason, {channel} AS channel, {model} AS model FROM runs INDEXED BY runs_by_reason
             WHERE indexed = 1 AND reason IN ({}) AND ended_at >= ?2 AND ended_at < ?3
               AND seq >= (SELECT MIN(seq + 0) {from}4)
             UNION ALL
             SELECT ended_at, reason, {channel} AS channel, {model} AS model FROM runs INDEXED BY runs_unindexed
             WHERE indexed = 0 AND ended_at >= ?2 AND ended_at < ?3)
         GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4",
        reasons.join(", ")
    )
}
