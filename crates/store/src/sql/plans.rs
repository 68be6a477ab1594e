//! Tests: queries of every tick use an index, however many rows there are.

use belay_protocol::{RoutineId, RoutineRunFilter, UnixMillis};
use rusqlite::params_from_iter;

use super::connection::Connection;
use super::{ends, jobs, nodes, notes, routine_runs, routines};
use crate::sqlite as open;

/// The query plan of SQLite: <https://www.sqlite.org/eqp.html>.
fn plan(conn: &rusqlite::Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("valid");
    let values = vec![rusqlite::types::Value::Null; statement.parameter_count()];
    let steps = statement.query_map(params_from_iter(values), |row| row.get("detail")).expect("a plan");
    steps.collect::<Result<_, _>>().expect("steps")
}

#[test]
fn what_is_asked_at_every_tick_goes_by_an_index() {
    let folder = tempfile::tempdir().expect("a folder");
    let (conn, _lock) =
        open::open_writer(&folder.path().join("belay.db"), true, crate::unfinished::Unfinished::Refuse).expect("opens");
    for (sql, table, index) in [
        (routines::due_sql().as_str(), "routines", "INDEX routines_due (due_at<?)"),
        (routines::NEXT_DUE, "routines", "INDEX routines_due (due_at>?)"),
        (
            routine_runs::known_sql().as_str(),
            "routine_runs",
            "INDEX sqlite_autoindex_routine_runs_2 (routine_id=? AND key=?)",
        ),
        (routine_runs::RUNNING, "routine_runs", "COVERING INDEX routine_runs_running"),
        (routine_runs::RUNNING_OF, "routine_runs", "COVERING INDEX routine_runs_running (routine_id=?"),
        (
            routine_runs::SAME_CONTENT,
            "routine_runs",
            "COVERING INDEX routine_runs_by_content (routine_id=? AND content=? AND claimed_at<?)",
        ),
        (routine_runs::owned_sql().as_str(), "routine_runs", "INDEX routine_runs_running"),
        (routine_runs::takeable_sql().as_str(), "t", "INDEX routine_runs_running"),
        (routine_runs::takeable_sql().as_str(), "n", "PRIMARY KEY (boot=?)"),
        (jobs::owned_sql().as_str(), "jobs", "INDEX jobs_at_work"),
        (jobs::takeable_sql().as_str(), "t", "INDEX jobs_at_work"),
        (jobs::takeable_sql().as_str(), "n", "PRIMARY KEY (boot=?)"),
        (notes::prompt_sql().as_str(), "notes", "INDEX notes_of_owner (kind=? AND channel=? AND owner=?)"),
        (notes::SAID, "m USING", "INDEX messages_by_index_row (index_row=?)"),
        (notes::SAID, "r USING", "INDEX sqlite_autoindex_runs_1 (id=?)"),
        (
            ends::ends_sql(false, false).as_str(),
            "runs USING COVERING INDEX runs_",
            "INDEX runs_by_reason (reason=? AND seq>?)",
        ),
        (nodes::RELEASE_LANES, "sessions", "INDEX sessions_of_owner (owner=?)"),
        (jobs::OPEN, "jobs", "COVERING INDEX jobs_open"),
        (jobs::OPEN_OF, "jobs", "COVERING INDEX jobs_open (creator=?"),
        (jobs::AT_WORK, "jobs", "COVERING INDEX jobs_at_work"),
        (jobs::NUMBERS, "jobs", "COVERING INDEX jobs_by_state (state=?"),
        (jobs::OLDEST_PENDING, "jobs", "INDEX jobs_by_state (state=?"),
        // The pending jobs by creator; and the creators with a free slot.
        (jobs::next_sql().as_str(), "p", "COVERING INDEX jobs_pending"),
        (jobs::next_sql().as_str(), "w", "COVERING INDEX jobs_at_work (creator=?"),
        (jobs::next_unheld_sql().as_str(), "p", "COVERING INDEX jobs_pending"),
        (jobs::next_unheld_sql().as_str(), "r", "INDEX sqlite_autoindex_routine_runs_1 (id=?)"),
    ] {
        let steps = plan(&conn, sql);
        let of_table: Vec<_> = steps
            .iter()
            .filter(|step| ["SEARCH", "SCAN"].iter().any(|verb| step.starts_with(&format!("{verb} {table}"))))
            .collect();
        assert!(!of_table.is_empty() && of_table.iter().all(|step| step.contains(index)), "{sql}: {steps:?}");
    }
}

#[test]
fn a_list_of_the_routine_runs_of_some_routines_reads_no_others_and_sorts_no_rows() {
    let ids = vec![RoutineId::new(), RoutineId::new()];
    let own = RoutineRunFilter { routine_ids: Some(ids), since: Some(UnixMillis(1)), ..RoutineRunFilter::default() };
    let named = RoutineRunFilter { routine: Some("a".into()), ..own.clone() };
    let of_routines = "SEARCH o USING COVERING INDEX sqlite_autoindex_routine_runs_2 (routine_id=?)";
    for (filter, step) in [(own, of_routines), (named, "INDEX routine_runs_by_name (routine=?)")] {
        let conn = open::open_in_memory().expect("a database");
        let (sql, _) = routine_runs::list_sql(&Connection::Sqlite(conn.into()), &filter).expect("a statement");
        let conn = open::open_in_memory().expect("a database");
        let steps = plan(&conn, &sql);
        let whole = |found: &String| found.starts_with("SCAN") || found.contains("TEMP B-TREE");
        assert!(steps.iter().any(|found| found.contains(step)) && !steps.iter().any(whole), "{sql}: {steps:?}");
    }
}
