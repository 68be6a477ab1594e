//! Expressions and searches in both engines: the translated ones have the results of SQLite.

use rusqlite::types::Value as Lite;

use super::super::testing::Server;
use super::super::{params, schema, words};
use crate::value::{Param, ValueRef, params};

/// The first row of a query with text parameters, as text.
fn in_sqlite(sql: &str, texts: &[&str]) -> Vec<String> {
    let conn = rusqlite::Connection::open_in_memory().unwrap();
    let mut statement = conn.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let columns = statement.column_count();
    let row = statement.query_row(rusqlite::params_from_iter(texts), |row| {
        Ok((0..columns).map(|at| format!("{:?}", row.get::<_, Lite>(at).unwrap())).collect())
    });
    row.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

#[test]
fn expressions_have_the_results_of_sqlite() {
    let Some(server) = Server::shared() else { return };
    let (mut conn, name) = server.fresh();
    schema::open(&mut conn, &name, schema::Opening::ALONE).unwrap();
    let hostile = "q\"b\\s/n\nt\tb\u{8}f\u{c}r\re\u{1b}d\u{7f}é😀\u{2028}'";
    let json = r#"{"a":"x\"\\\n\u00e9","n":7,"t":true,"z":null,"o":{"p":"deep"},"l":[1,"b"]}"#;
    for (sql, texts) in [
        ("SELECT json_array(?1, ?2)", vec![hostile, ""]),
        ("SELECT a ->> 'a', a ->> '$.z', a ->> 'missing', a ->> '$.o.p', a ->> 'l' FROM (SELECT ?1 AS a)", vec![json]),
        ("SELECT CAST(a ->> 'n' AS INTEGER) FROM (SELECT ?1 AS a)", vec![json]),
        ("SELECT COALESCE(CAST(a ->> 't' AS TEXT), '') IN ('1', 'true') FROM (SELECT ?1 AS a)", vec![json]),
        ("SELECT COUNT(*), MAX(h.value), MIN(h.value) FROM json_each(?1) h", vec![r#"["b","a\"",["c",1]]"#]),
        ("SELECT h.value ->> 0, h.value ->> 1 FROM json_each(?1) h", vec![r#"[["c","d"]]"#]),
        ("SELECT json_insert('[]', '$[#]', json(?1)), json_insert(?2, '$[#]', json(?1))", vec![r#"{"a":1}"#, "[1,2]"]),
        ("SELECT unhex(?1, '-'), unhex(?2, '-')", vec!["01aF-ff-00", "0g"]),
        ("SELECT date(20000 * 86400, 'unixepoch'), date(-1 * 86400, 'unixepoch')", vec![]),
        ("SELECT ?1 IS ?2, ?1 IS NOT ?2, ?1 IS NULL, (?1 IS ?1)", vec!["a", "b"]),
        ("SELECT max(1, 2), min(3, 2), MAX(n), MIN(n), TOTAL(n) > 2 FROM (SELECT 1 AS n UNION SELECT 5 AS n)", vec![]),
        ("SELECT CAST(TOTAL(n) AS INTEGER), COALESCE(SUM(n), 0) FROM (SELECT 1 AS n) WHERE n > 1", vec![]),
        ("SELECT -7 / 2, 7 / 2, length(?1), octet_length(?1)", vec!["né"]),
        ("SELECT 1 WHERE 'a' IN () OR ?1 = 'x'", vec!["x"]),
    ] {
        let values: Vec<Param<'_>> = texts.iter().map(|text| Param::Text((*text).into())).collect();
        let rows = conn.query(sql, &[], &values).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let found: Vec<String> = (0..rows[0].len())
            .map(|at| match params::value(&rows[0], at).unwrap() {
                ValueRef::Null => "Null".into(),
                ValueRef::Int(int) => format!("Integer({int})"),
                ValueRef::Real(real) => format!("Real({real:?})"),
                ValueRef::Text(text) => format!("Text({text:?})"),
                ValueRef::Blob(bytes) => format!("Blob({bytes:?})"),
            })
            .collect();
        assert_eq!(found, in_sqlite(sql, &texts), "{sql}");
    }
    // A NUL character in JSON, which PostgreSQL cannot read otherwise.
    let rows = conn.query("SELECT a ->> 'b' FROM (SELECT ?1 AS a)", &[], &params![r#"{"a":"\u0000","b":"c\u0000"}"#]);
    assert_eq!(params::value(&rows.unwrap()[0], 0), Ok(ValueRef::Text("c\u{fffd}")));
}

#[test]
fn a_search_finds_what_it_finds_in_sqlite() {
    let Some(server) = Server::shared() else { return };
    let (mut conn, name) = server.fresh();
    schema::open(&mut conn, &name, schema::Opening::ALONE).unwrap();
    let lite = rusqlite::Connection::open_in_memory().unwrap();
    lite.execute_batch(include_str!("../../sqlite/migrations/0001_schema.sql")).unwrap();
    let insert = "INSERT INTO message_index (rowid, text) VALUES (?1, ?2)";
    for (number, text) in [
        "The Café in Orléans opens at 9:30, see https://example.org/menu?lang=fr",
        "cafe latte; it's version v1.2.3-rc4 of user_name@host.example",
        "Ωμέγα, Ёлка, naïveté and NAIVE",
        "日本語のテキスト と 각",
        "' \\ & | ! ( ) : * <-> \0 quotes \"in\" text",
    ]
    .into_iter()
    .enumerate()
    {
        let number = i64::try_from(number).unwrap();
        lite.execute(insert, rusqlite::params![number, text]).unwrap();
        conn.execute(insert, &[], &params![number, words::vector(text)]).unwrap();
    }
    let select = "SELECT rowid FROM message_index WHERE message_index MATCH ?1 ORDER BY message_index.rank, rowid";
    for terms in [
        vec!["cafe"],
        vec!["CAFÉ", "opens"],
        vec!["caf"],
        vec!["latte", "opens"],
        vec!["v1"],
        vec!["rc4"],
        vec!["user", "host"],
        vec!["ωμέγα"],
        vec!["ёлка"],
        vec!["naiv"],
        vec!["日本"],
        vec!["각"],
        vec!["in"],
        vec!["quotes", "text"],
        vec!["absent"],
    ] {
        let terms: Vec<String> = terms.into_iter().map(str::to_lowercase).collect();
        let quoted: Vec<String> = terms.iter().map(|term| format!("\"{term}\"*")).collect();
        for (by, query) in [(" ", words::all_of(&terms)), (" OR ", words::any_of(&terms))] {
            let mut statement = lite.prepare(select).unwrap();
            let expected = statement.query_map([quoted.join(by)], |row| row.get::<_, i64>(0)).unwrap();
            let mut expected: Vec<i64> = expected.collect::<Result<_, _>>().unwrap();
            let rows = conn.query(select, &[], &params![query]).unwrap();
            let read = |row| match params::value(row, 0) {
                Ok(ValueRef::Int(number)) => number,
                other => panic!("{other:?}"),
            };
            let mut found: Vec<i64> = rows.iter().map(read).collect();
            // The order of equally good results differs.
            expected.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, expected, "{terms:?}{by:?}");
        }
    }
}
