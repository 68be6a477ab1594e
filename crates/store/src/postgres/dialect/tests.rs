use super::*;

fn check(sql: &str, expected: &str) {
    assert_eq!(translate(sql, &[]).as_deref(), Ok(expected), "{sql}");
}

#[test]
fn parameters_are_numbered() {
    check("SELECT ?1, ?2, ?1", "SELECT $1, $2, $1");
    check("SELECT ?, ?", "SELECT $1, $2");
    check("SELECT ?3, ?, ?1, ?", "SELECT $3, $4, $1, $5");
    check("SELECT '?1 :a', \"?2\" -- ?3\n/* :b */ FROM t", "SELECT '?1 :a', \"?2\" -- ?3\n/* :b */ FROM t");
    check("SELECT 'it''s ?', ?", "SELECT 'it''s ?', $1");
    let named = translate("INSERT INTO t VALUES (:b, :a, :b)", &[":a", ":b"]);
    assert_eq!(named.as_deref(), Ok("INSERT INTO t VALUES ($2, $1, $2)"));
    assert!(translate("SELECT :c", &[":a", ":b"]).is_err_and(|error| error.contains(":c")));
}

#[test]
fn hints_about_indexes_are_omitted_and_the_column_indexed_stays() {
    check("SELECT a FROM runs INDEXED BY runs_by_reason WHERE indexed = 1", "SELECT a FROM runs    WHERE indexed = 1");
    check("UPDATE outbox INDEXED BY outbox_open SET a = 1", "UPDATE outbox    SET a = 1");
    check("SELECT a FROM events NOT INDEXED WHERE NOT indexed", "SELECT a FROM events   WHERE NOT indexed");
    check("SELECT event FROM indexed i", "SELECT event FROM indexed i");
}

#[test]
fn the_answers_to_conflicts_are_translated() {
    check("INSERT OR FAIL INTO t (a) VALUES (?1)", "INSERT   INTO t (a) VALUES ($1)");
    check("UPDATE OR FAIL t SET a = b OR c", "UPDATE   t SET a = b OR c");
    check("UPDATE OR ABORT t SET a = 1", "UPDATE   t SET a = 1");
    check("INSERT OR IGNORE INTO t (a) VALUES (1)", "INSERT   INTO t (a) VALUES (1) ON CONFLICT DO NOTHING");
    check(
        "INSERT OR IGNORE INTO t (a) VALUES (1) RETURNING a",
        "INSERT   INTO t (a) VALUES (1) ON CONFLICT DO NOTHING RETURNING a",
    );
    for refused in ["INSERT OR REPLACE INTO t (a) VALUES (1)", "UPDATE OR IGNORE t SET a = 1", "PRAGMA user_version"] {
        assert!(translate(refused, &[]).is_err(), "{refused}");
    }
}

#[test]
fn fields_of_json_are_read_from_text() {
    check("SELECT body ->> 'a'", "SELECT belay_json(body) ->> 'a'");
    check("SELECT n.work->>'$.kind', ?1", "SELECT belay_json(n.work)->>'kind', $1");
    check("WHERE h.value ->> 1 = c.creator ->> 1", "WHERE belay_json(h.value) ->> 1 = belay_json(c.creator) ->> 1");
    check("COALESCE(a ->> 'b', 'c')", "COALESCE(belay_json(a) ->> 'b', 'c')");
    check("WHERE a ->> '$.place.session' = ?", "WHERE belay_json(a) #>> '{place,session}' = $1");
    for refused in ["SELECT (a) ->> 'b'", "SELECT a ->> '$.b[1]'", "SELECT a ->> '$[0]'", "SELECT a ->> ?1"] {
        assert!(translate(refused, &[]).is_err(), "{refused}");
    }
}

#[test]
fn comparisons_of_missing_values_are_translated() {
    check("a IS ?1", "a IS NOT DISTINCT FROM $1");
    check("a IS NOT ?1", "a IS DISTINCT FROM $1");
    check("s.thread IS t.id AS active", "s.thread IS NOT DISTINCT FROM t.id AS active");
    for same in ["a IS NULL", "a IS NOT NULL", "a IS TRUE", "a IS NOT FALSE", "a IS DISTINCT FROM b"] {
        check(same, same);
    }
}

#[test]
fn empty_lists_and_hints_in_conditions_are_translated() {
    check("WHERE a IN () AND b", "WHERE a IN (NULL) AND b");
    check("WHERE a = ? AND +b IN (?)", "WHERE a = $1 AND b IN ($2)");
    check("SELECT a +b, +c", "SELECT a +b, +c");
    assert!(translate("WHERE a NOT IN ()", &[]).is_err());
}

#[test]
fn functions_are_translated() {
    check("max(a, COALESCE(b, c))", "greatest(a, COALESCE(b, c))");
    check("MIN(?1, (SELECT b FROM c))", "least($1, (SELECT b FROM c))");
    check("MAX(a), MIN((SELECT MIN(b, c) FROM d))", "MAX(a), MIN((SELECT least(b, c) FROM d))");
    check("creator = json_array(?1, ?2)", "creator = belay_json_array($1, $2)");
    check("FROM json_each(?2) h", "FROM belay_json_each($2) h");
    check("json_insert(a, '$[#]', json(?1))", "belay_json_insert(a, '$[#]', belay_json_text($1))");
    check("unhex(a ->> 'b', '-')", "belay_unhex(belay_json(a) ->> 'b', '-')");
    check("CAST(TOTAL(a + b) AS INTEGER) AS c", "CAST(COALESCE(SUM(a + b), 0) AS BIGINT) AS c");
    check("CAST(a AS REAL)", "CAST(a AS DOUBLE PRECISION)");
    check("SELECT json, date, total FROM t", "SELECT json, date, total FROM t");
    assert!(translate("SELECT last_insert_rowid()", &[]).is_err());
}

#[test]
fn subqueries_get_a_name() {
    check("SELECT * FROM (SELECT 1) WHERE a", "SELECT * FROM (SELECT 1) AS subquery1 WHERE a");
    check("SELECT a FROM (SELECT 1)", "SELECT a FROM (SELECT 1) AS subquery1");
    check(
        "(SELECT MAX(a) FROM (SELECT a FROM (SELECT 2) x LIMIT ?1))",
        "(SELECT MAX(a) FROM (SELECT a FROM (SELECT 2) x LIMIT $1) AS subquery1)",
    );
    check(
        "SELECT a FROM (SELECT 1) AS b JOIN (SELECT 2) c ON d",
        "SELECT a FROM (SELECT 1) AS b JOIN (SELECT 2) c ON d",
    );
    check("a IN (SELECT b FROM c)", "a IN (SELECT b FROM c)");
}

#[test]
fn searches_use_the_words_of_the_index() {
    check(
        "INSERT INTO message_index (text) VALUES (?1)",
        "INSERT INTO message_index (words) VALUES (CAST($1 AS tsvector))",
    );
    check(
        "SELECT a FROM message_index WHERE message_index MATCH ?1 ORDER BY message_index.rank",
        "SELECT a FROM message_index WHERE message_index.words @@ CAST($1 AS tsquery) \
         ORDER BY -ts_rank(message_index.words, CAST($1 AS tsquery))",
    );
    check(
        "INSERT INTO message_index (rowid, text) VALUES (?1, ?2)",
        "INSERT INTO message_index (rowid, words) VALUES ($1, CAST($2 AS tsvector))",
    );
    let same = "DELETE FROM message_index WHERE rowid IN (SELECT 1)";
    check(same, same);
}
