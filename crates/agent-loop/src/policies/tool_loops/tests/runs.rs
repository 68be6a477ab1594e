//! Longer runs as they happen, healthy and not.

use super::super::*;
use super::notation::{play, read};

fn check(rows: &[(&str, &str, std::ops::RangeInclusive<usize>)]) {
    let mut wrong = Vec::new();
    for (what, script, range) in rows {
        let found = play(&ToolLoopConfig::default(), &read(script));
        let at = found.as_ref().map_or(0, |(at, _)| *at);
        if !range.contains(&at) {
            wrong.push(format!("{what}: at {at}, {:?}", found.map(|(_, finding)| (finding.rule, finding.quote))));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn healthy_runs_are_left_alone() {
    let rows = [
        (
            "refactoring",
            "bash(\"ls -R\") -> many files\n200x read_file(path=src/m{i}.rs) -> code {i} | edit(path=src/m{i}.rs, old_string=foo, new_string=bar) -> edited | bash(\"cargo test\") -> !error: 3 tests failed",
        ),
        (
            "one file, many edits",
            "60x edit_file(path=a.rs, old_string=f{i}, new_string=g{i}) -> The file a.rs has been edited | read_file(path=a.rs) -> {long {i}} | run_tests() -> ok",
        ),
        ("renames", "40x bash(\"mv img{i}.png out/{i}.png\") ->"),
        ("conversions", "40x bash(\"convert img{i}.png img{i}.jpg\") ->"),
        ("deletions", "40x http_delete(url=http://api/items/{u}) -> 204 | think(thought=next) -> ok"),
        ("closing tickets", "30x update_ticket(id={i}, status=closed) -> {\"ok\":true}"),
        ("mails", "30x send_email(to={w}{i}@x.org, subject=Hello, body=Hello there) -> sent"),
        (
            "form",
            "20x fill(selector=#name, value=N{i}) -> ok | fill(selector=#mail, value=M{i}) -> ok | click(selector=#submit) -> ok",
        ),
        ("wizard", "12x click(selector=next) -> Clicked | get_page_text() -> page text {i} of it"),
        (
            "ci",
            "20x bash(\"sleep 30 && gh run view 12 --json status\") -> {\"status\":\"in_progress\"}\nbash(\"gh run view 12\") -> completed",
        ),
        (
            "build",
            "20x get_build(id=7) -> {\"state\":\"RUNNING\",\"started\":\"{t}\"} | wait(seconds=20) -> waited 20 seconds",
        ),
        ("deployment", "10x kubectl(args=get pods) -> web-1 0/1 Pending {i}s | sleep(seconds=5) ->"),
        ("download", "60x check_download(id=a) -> {i} of 60 MB"),
        ("inbox", "20x clock 60 | check_inbox() -> no new messages"),
        ("pages", "50x list_orders(page={i}) -> order {i}1, order {i}2, order {i}3"),
        ("cursor", "50x fetch_next(cursor=c{i}) -> item {i}"),
        ("reader", "30x read_file(path=big.log, offset={i}000, limit=1000) -> log lines {i}"),
        ("stdin", "30x read_output(session=s) -> chunk {i}"),
        ("grep files", "40x bash(\"grep -c TODO src/f{i}.py\") -> 0"),
        ("grep symbols", "40x search_code(pattern=sym_{w}{i}, path=src) -> No matches found."),
        ("url check", "30x head(url=http://x/{i}) -> 200 OK"),
        ("lint", "30x lint(file=src/f{i}.py) -> No issues found."),
        ("syntax", "30x bash(\"python -m py_compile f{i}.py\") ->"),
        ("migrations", "30x run_migration(number={i}) -> ok"),
        ("inserts", "30x sql(query=INSERT INTO t VALUES ({i})) -> 1 row affected"),
        ("weather", "12x get_weather(city={w}) -> sunny"),
        ("prices", "30x get_price(symbol={w}{i}) -> n/a"),
        (
            "research",
            "10x web_search(query={w} company revenue) -> {long {i}} | fetch(url=http://{w}.com) -> {long x{i}}",
        ),
        (
            "plan",
            "30x read_file(path=TODO.md) -> {long} | write_file(path=ch{i}.md, content=chapter {i}) -> written | todo_write(todos=ch {i} done) -> ok",
        ),
        (
            "commits",
            "30x edit(path=a, old_string=x{i}, new_string=y{i}) -> ok | bash(\"git add -A\") -> | bash(\"git commit -m wip\") -> [main {r}] wip | bash(\"git status\") -> clean",
        ),
        (
            "debug",
            "20x set_breakpoint(line={i}) -> ok | continue_execution() -> stopped at line {i} | print_variable(name=x) -> 0",
        ),
        (
            "two files back and forth",
            "20x read(path=a.rs) -> {long a{i}} | edit(path=b.rs, old_string={i}, new_string=n{i}) -> ok | read(path=b.rs) -> {long b{i}}",
        ),
        ("empty files", "12x read_file(path=pkg{i}/__init__.py) ->"),
        (
            "probe",
            "read_file(path=package.json) -> !File not found: package.json\nread_file(path=setup.py) -> !File not found: setup.py\nread_file(path=go.mod) -> !File not found: go.mod\nread_file(path=pom.xml) -> !File not found: pom.xml\nread_file(path=Makefile) -> !File not found: Makefile\nread_file(path=build.sbt) -> !File not found: build.sbt\nread_file(path=Cargo.toml) -> [package]",
        ),
        (
            "retry",
            "4x fetch(url=http://x) -> !429 Too Many Requests | sleep(seconds=10) -> ok\nfetch(url=http://x) -> page",
        ),
        (
            "server start",
            "15x bash(\"sleep 2 && curl -s localhost:8080/health\") -> !connection refused\nbash(\"curl -s localhost:8080/health\") -> ok",
        ),
        (
            "toggle",
            "set_flag(name=debug, value=on) -> ok\nrun() -> a\nset_flag(name=debug, value=off) -> ok\nrun() -> b\nset_flag(name=debug, value=on) -> ok\nset_flag(name=debug, value=off) -> ok",
        ),
        (
            "many jobs",
            "10x get_job(id=1) -> running | get_job(id=2) -> running | get_job(id=3) -> running | get_job(id=4) -> queued | sleep(seconds=9) -> ok",
        ),
        ("thoughts", "30x think(thought=the {w} is {i}) -> "),
        (
            "sequential thinking",
            "20x sequentialthinking(thought=the {w}, thoughtNumber={i}) -> {\"thoughtNumber\":{i}}",
        ),
        ("subagents", "12x spawn_agent(task=review {w}.rs) -> agent started"),
        (
            "fleet",
            "12x ssh_exec(host=web{i}, command=uptime) -> ok | ssh_exec(host=web{i}, command=cat /etc/nginx.conf) -> {long}",
        ),
        ("hashes", "20x sha256(path=f{i}) -> 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a{i}"),
        (
            "users",
            "20x get_user(id={i}) -> {\"id\":{i},\"role\":\"member\",\"team\":\"core\",\"active\":true,\"region\":\"eu-west\",\"plan\":\"standard\",\"language\":\"english\",\"quota\":\"default\"}",
        ),
        ("calls alone", "30x read(path=f{i}) | edit(path=f{i}, old_string=a, new_string=b) | run_tests()"),
        (
            "batch of reads",
            "batch\n4x read(path=a{i}) -> {i}a | read(path=b{i}) -> {i}b | read(path=c{i}) -> {i}c | read(path=d{i}) -> {i}d",
        ),
        ("windows", "12x query_metrics(metric=errors, start=2026-01-02T{i}:00:00Z, end=2026-01-02T{i}:59:59Z) -> []"),
        ("labels", "20x add_label(issue={i}, label=bug) -> added | remove_label(issue={i}, label=triage) -> removed"),
        (
            "review after",
            "25x edit(path=f{i}, old_string=a, new_string=b) -> ok\n18x read(path=f{i}) -> text {i}\n16x read(path=f{i}) -> text {i}",
        ),
        ("game", "60x move(direction=left) -> score {i}"),
        ("slack", "20x add_reaction(channel=c, message_ts=17673222{i}.000{i}, emoji=eyes) -> ok"),
    ];
    check(&rows.map(|(what, script)| (what, script, 0..=0)));
}

#[test]
fn pathological_runs_are_ended_soon() {
    check(&[
        ("read", "30x read_file(path=a.rs) -> {long}", 5..=5),
        ("read, thinking", "30x think(thought=I should look at {w}) -> ok | read_file(path=a.rs) -> {long}", 10..=10),
        ("read, unknown harmless", "30x muse(about=the {w} and {i}) -> ok | read_file(path=a.rs) -> {long}", 9..=13),
        ("tests without edits", "30x bash(\"cargo test\") -> !{long} took {i}.{i}s", 5..=5),
        (
            "tests and looks",
            "30x bash(\"cargo test\") -> !{long} | read(path=a.rs) -> fn x | bash(\"ls\") -> a.rs",
            15..=15,
        ),
        ("failing edit", "30x edit(path=a, old_string=foo, new_string=bar) -> !old_string not found", 5..=5),
        ("failing edits", "30x edit(path=a, old_string=foo {w}, new_string=bar) -> !old_string not found in a", 5..=5),
        (
            "reworded search",
            "30x web_search(query=error {w} code 5 in foo {i}) -> No results found for error {w} code 5 in foo {i}",
            8..=12,
        ),
        ("numbered search", "30x search(query=foo bar, page={i}) -> {\"results\":[],\"page\":{i}}", 8..=8),
        ("same page", "30x search(query=foo bar, page={i}) -> {long}", 5..=5),
        ("guessing addresses", "30x fetch(url=http://x/{w}{i}) -> !404 Not Found", 5..=16),
        ("captcha", "30x fetch(url=http://x/{w}) -> Please verify that you are human. {long}", 5..=5),
        ("poll", "60x get_job_status(id=5) -> {\"status\":\"pending\",\"checked_at\":\"{t}\"}", 24..=24),
        ("poll with sleep", "60x sleep(seconds=10) -> ok | bash(\"docker ps\") -> web Up 5 minutes", 40..=48),
        ("poll that has ended", "60x get_job_status(id=5) -> {\"status\":\"failed\"}", 12..=12),
        (
            "oscillation",
            "30x write_file(path=a, content=x) -> ok | run_tests() -> !1 failed | write_file(path=a, content=y) -> ok | run_tests() -> !2 failed",
            8..=12,
        ),
        (
            "cascade",
            "30x fetch(url=http://x/{w}) -> !connect ECONNREFUSED 10.0.0.1:443 | ping_host(host={w}) -> !connect ECONNREFUSED 10.0.0.1:443",
            5..=6,
        ),
        ("nonces", "30x list_files(path=., request_id={u}, timestamp=17673222{i}) -> a b c (request {u})", 5..=7),
        ("unknown nonces", "30x list_files(path=., x={r}) -> a b c", 5..=5),
        ("nonces, calls alone", "30x list_files(path=., nonce={r}) | clock()", 9..=10),
        ("counter", "30x get_page(url=http://x, n={i}) -> {long}", 5..=5),
        (
            "period six",
            "30x f(a=1) -> 1 | g(a=1) -> 2 | h(a=1) -> 3 | i(a=1) -> 4 | j(a=1) -> 5 | k(a=1) -> 6",
            25..=27,
        ),
        ("spawns", "30x spawn_agent(task=review it) -> !limit reached", 5..=5),
        (
            "commands",
            "bash(\"pytest\") -> {long}\nbash(\"pytest -v\") -> {long}\nbash(\"python -m pytest\") -> {long}\nbash(\"pytest -x\") -> {long}\nbash(\"pytest -q\") -> {long}\n20x bash(\"pytest -vv\") -> {long}",
            5..=7,
        ),
        ("grep again", "30x bash(\"grep -rn 'fn process_order' src {i}\") -> | clock() -> {t}", 15..=16),
        ("time", "30x get_current_time() -> {t}", 5..=5),
        ("notes", "30x add_note(text=still looking {i}) -> ok | read(path=a) -> x", 10..=10),
        ("status quo", "30x git_status() -> clean | git_diff() -> | list_dir(path=.) -> a b", 15..=15),
        (
            "traceback",
            "30x bash(\"python {w}.py\") -> !Traceback (most recent call last): File {w}.py, line 3, in main: import foo; ModuleNotFoundError: No module named foo, see the manual",
            5..=5,
        ),
    ]);
}
