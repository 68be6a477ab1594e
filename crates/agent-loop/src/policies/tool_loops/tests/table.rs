//! A positive and a near-miss row for every principle.

use super::super::*;
use super::notation::{play, read};

/// Each row: a script, and the expected finding without the measure of gain: the number of the call and the kind of
/// loop; `"-"` for none. With that measure, the same loops are found, and none later.
fn check(rows: &[(&str, &str)]) {
    let mut wrong = Vec::new();
    for (script, expected) in rows {
        let (events, without) = (read(script), Some(Part::Gain));
        let found = play(&ToolLoopConfig { without, ..ToolLoopConfig::default() }, &events);
        let sooner = play(&ToolLoopConfig::default(), &events);
        if sooner.is_some() != found.is_some()
            || sooner.zip(found.clone()).is_some_and(|((at, _), (then, _))| at > then)
        {
            wrong.push(format!("{script}: with gain"));
        }
        let shown = found.map_or("-".to_owned(), |(at, finding)| format!("{at} {}", short(&finding.rule)));
        if shown != *expected {
            wrong.push(format!("{script}: found {shown}, expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn short(kind: &str) -> &str {
    match kind {
        CONSECUTIVE_IDENTICAL_TOOL_CALLS => "cycle",
        REPEATED_CALLS_WITHOUT_PROGRESS => "repeated",
        SAME_RESULT_FOR_VARIED_ARGUMENTS => "varied",
        POLLING_WITHOUT_PROGRESS => "polling",
        other => other,
    }
}

#[test]
fn exact_cycles_fire_at_the_call_that_completes_the_fifth_repetition() {
    check(&[
        ("9x read(path=a) -> x", "5 cycle"),
        ("4x read(path=a) -> x", "-"),
        ("9x read(path=a)", "5 cycle"),
        ("9x read(path=a) -> !x", "5 cycle"),
        ("9x read(path=a) | grep(pattern=b) ->  y", "10 cycle"),
        ("9x f(a=1) | g(a=1)", "10 cycle"),
        ("9x f(a=1) | g(a=1) | h(a=1)", "15 cycle"),
        ("9x f(a=1) | g(a=1) | h(a=1) | i(a=1)", "20 cycle"),
        ("9x f(a=1) | g(a=1) | h(a=1) | i(a=1) | j(a=1)", "25 cycle"),
        ("9x f(a=1) | g(a=1) | h(a=1) | i(a=1) | j(a=1) | k(a=1)", "-"),
        // With another call before.
        ("f(a=1) -> z\n9x read(path=a) -> x", "6 cycle"),
        // Known results are compared.
        ("9x read(path=a) -> line {i}", "-"),
        ("50x next() -> record {i}", "-"),
        ("9x f(a=1) -> x | g(a=1) -> {i}", "-"),
        // Volatile parts are no news.
        ("9x read(path=a, nonce={r}) -> ok at {t}", "5 cycle"),
        ("9x read(path=a, request_id={u}) -> request {u} took {i} ms", "5 cycle"),
        ("9x bash(\"make  build # {t}\") -> !error in a.c, pid {i}", "5 cycle"),
        ("9x run_tests(attempt={i}) -> !2 failed in {i}.3s", "5 cycle"),
        // All in one batch.
        ("batch\n1x f(a=1) -> x | f(a=1) -> x | f(a=1) -> x | f(a=1) -> x | f(a=1) -> x", "5 cycle"),
        ("batch\n1x f(a=1) -> x | f(a=2) -> y | f(a=3) -> z | f(a=4) -> u | f(a=5) -> v", "-"),
    ]);
}

#[test]
fn harmless_calls_between_hide_no_cycle() {
    check(&[
        ("9x think(thought={w} {w}) -> ok | read(path=a) -> x", "10 cycle"),
        ("9x clock() -> {t} | f(a=1) | think(thought={w})", "14 cycle"),
        ("9x read(path=a) -> x | note(text=still {w} at it) -> noted | grep(pattern=b) -> y", "15 cycle"),
        ("9x clock() -> {t}", "5 cycle"),
        ("12x think(thought=step {i} of it about {w}) -> ok", "-"),
        ("40x remember(note=fact {i} about {w}) -> ok", "-"),
        ("9x remember(note=fact {i} about {w}) -> ok | f(a=1) -> x | muse(about={w} and {w}) -> ok", "14 repeated"),
    ]);
}

#[test]
fn a_call_that_recurs_with_the_same_result_and_no_news_between_is_a_loop() {
    check(&[
        // In changing order, so that there is no cycle.
        (
            "f(a=1) -> x | g(a=1) -> y | h(a=1) -> z
             f(a=1) -> x | h(a=1) -> z | g(a=1) -> y
             g(a=1) -> y | f(a=1) -> x | h(a=1) -> z
             f(a=1) -> x | h(a=1) -> z | g(a=1) -> y
             h(a=1) -> z | g(a=1) -> y | f(a=1) -> x",
            "13 repeated",
        ),
        // Calls of an unknown tool between them bring no news.
        ("9x f(a=1) -> x | muse(about={w}) -> hm", "11 repeated"),
        // News between: tests after each edit, the plan before each file.
        ("60x edit(path=a{i}, old_string=x, new_string=y) -> edited | run_tests() -> !3 failed", "-"),
        ("60x read(path=plan.md) -> {long} | read(path=src/{i}.rs) -> code {i}", "-"),
        ("60x edit(path=a, old_string=x{i}, new_string=y{i}) -> ok | bash(\"cargo test\") -> !{long}", "-"),
        // Edits that fail are no news after the first.
        ("60x edit(path=a, old_string=x, new_string=y) -> !no match | run_tests() -> !3 failed", "10 cycle"),
        // Results that only alternate among known ones.
        ("20x get(key=a) -> on | get(key=a) -> off | get(key=a) -> dim", "10 repeated"),
    ]);
}

#[test]
fn several_different_calls_are_a_poll_only_if_one_of_them_waits_or_each_asks() {
    check(&[
        ("9x list_agents() -> [a] | check_credits() -> 412 | system_synopsis() -> ok", "15 cycle"),
        ("9x list_agents() | check_credits() | system_synopsis()", "15 cycle"),
        ("9x clock 12 | navigate(url=http://x/a) -> Already there | clock 12 | screenshot() -> grey", "10 cycle"),
        ("9x clock 3 | get_job(id=1) -> running | clock 3 | read_log(job=1) -> step 3", "-"),
        ("9x check_job(id=1) -> queued | list_agents() -> [a]", "10 repeated"),
        (
            "9x clock 5 | bash(\"kubectl get pods\") -> crash loop | clock 5 | bash(\"kubectl logs x\") -> fatal",
            "10 cycle",
        ),
        ("9x clock 30 | bash(\"kubectl get pods\") -> 1 of 3 | clock 5 | bash(\"kubectl logs x\") -> at it", "-"),
        ("9x bash(\"kubectl get pods\") -> 1 of 3 | bash(\"kubectl logs x\") -> at it", "-"),
        // A run that waits between the calls asks whether the value has changed.
        ("9x get_price(of=x) -> 12 | sleep(seconds=30) -> ok", "-"),
        ("9x clock 40 | get_price(of=x) -> 12", "-"),
        ("9x clock 3 | get_price(of=x) -> 12", "5 cycle"),
        // The interval between the calls counts, with any other calls between them.
        ("20x clock 6 | forecast(of=x) -> rain | clock 6 | think(thought={w}) -> ok", "9 cycle"),
        // The content of a file is not a state, and waiting does not make a second question to a person a poll.
        ("9x bash(\"grep summary run.log\") -> 88: waiting for the table", "5 cycle"),
        ("9x clock 14 | ask_user(question=British or American?) -> null", "5 cycle"),
        // The name of a poll, called as fast as possible.
        ("20x clock 2 | service_status(name=x) -> failed", "12 polling"),
        ("20x clock 20 | service_status(name=x) -> deploying", "-"),
        // An empty command, sent to a terminal, asks for new output.
        ("9x terminal(command=) -> no new output", "-"),
        ("9x terminal(command=make) -> no new output", "5 cycle"),
    ]);
}

#[test]
fn notes_that_are_written_again_word_by_word_are_no_work() {
    check(&[
        (
            "4x write_plan(content=all of it) -> updated
             read(path=a) -> x
             4x write_plan(content=all of it) -> updated
             read(path=a) -> x
             4x write_plan(content=all of it) -> updated",
            "11 repeated",
        ),
        ("20x write_plan(content=the plan {i}) -> updated", "-"),
        ("9x edit(path=a{i}, content=x) -> ok | write_plan(content=all of it) -> updated", "-"),
        ("9x todo(items=a and b) -> {\"items\":\"a and b\", \"revision\":{i}}", "5 cycle"),
    ]);
}

#[test]
fn what_is_given_out_anew_is_no_news() {
    check(&[
        ("9x send_message(text=hi) -> {\"messageId\":\"48{i}\"}", "5 cycle"),
        ("9x next_message() -> {\"messageId\":\"48{i}\"}", "-"),
        ("9x fetch(url=http://x/a?_=17786000{i}5) -> {long}", "5 cycle"),
        ("9x fetch(url=http://x/a?b=1&_=177860{i}00039) -> nothing new", "5 cycle"),
        ("9x fetch(url=http://x/a?part={i}) -> nothing new", "-"),
        ("9x scrape(url=http://x/a) -> {\"creditsLeft\": 9{i}}", "5 cycle"),
        ("9x scrape(url=http://x/a) -> {\"left\": 9{i}}", "-"),
        ("9x bash(\"date +%S\") -> {i}", "5 cycle"),
        ("30x bash(\"sleep 5; pgrep make\") -> 47{i}", "24 polling"),
        ("30x bash(\"sleep 5; wc -l out\") -> 47{i}", "-"),
    ]);
}

#[test]
fn what_is_looked_for_in_other_words_is_the_same() {
    check(&[
        // Globs differ in wording; their target is a folder.
        ("20x find_files(pattern=*{w}*.py, directory=src) -> No files found", "8 varied"),
        ("20x find_files(pattern=*.py, directory={w}) -> No files found", "-"),
        ("20x find_files(pattern={w}.py, directory=src) -> No files found", "-"),
        // Programs.
        ("20x python(code=x = read('a.csv') print(x.{w}())) -> Empty table", "12 varied"),
        ("20x python(code=x = read('{w}.csv') print(x.head())) -> Empty table", "-"),
        ("20x python(code=print(head({i}))) -> Empty table", "8 varied"),
        ("20x python(code=print(f({i}))) -> Empty table", "-"),
        // One target, different questions, one sentence as the answer.
        (
            "20x vision(image=a.jpg, prompt=tell me {w} {w} {i}) -> A round grey device on a white wall can be seen there.",
            "8 varied",
        ),
        ("20x vision(image={w}.jpg, prompt=tell me) -> A round grey device on a white wall can be seen there.", "-"),
        // Text without spaces between the words.
        (
            "4x search(query=用户喜欢的电影{w}, threshold=0.5) -> 没有找到
             4x search(query=我喜欢什么电影{w}, threshold=0.5) -> 没有找到",
            "8 varied",
        ),
        (
            "search(query=天气) -> 没有找到
             search(query=电影) -> 没有找到
             search(query=银行) -> 没有找到
             search(query=学校) -> 没有找到
             search(query=汽车) -> 没有找到
             search(query=猫狗) -> 没有找到
             search(query=足球) -> 没有找到
             search(query=音乐) -> 没有找到
             search(query=医生) -> 没有找到",
            "-",
        ),
        // A constant number does not identify an item, a changing one may.
        ("20x search(query=mend foo bar {w}, threshold=5) -> none", "12 varied"),
        ("20x search(query=mend foo bar, item={i}) -> none", "-"),
        ("20x search(query=mend foo bar, page_hint={i}) -> none", "8 varied"),
    ]);
}

#[test]
fn many_calls_without_news_are_a_loop() {
    check(&[
        (
            "1x f(a=1) -> x | f(a=2) -> y | f(a=3) -> z | f(a=4) -> u | f(a=5) -> v | f(a=6) -> w | f(a=7) -> t
             1x f(a=7) -> t | f(a=3) -> z | f(a=4) -> u | f(a=1) -> x | f(a=6) -> w | f(a=2) -> y | f(a=5) -> v
             1x f(a=5) -> v | f(a=2) -> y | f(a=4) -> u | f(a=7) -> t | f(a=6) -> w | f(a=3) -> z | f(a=1) -> x
             1x f(a=7) -> t | f(a=1) -> x | f(a=2) -> y | f(a=4) -> u | f(a=3) -> z | f(a=6) -> w | f(a=5) -> v",
            "27 repeated",
        ),
        ("90x think(thought=the {w} is {i}) ->", "80 repeated"),
        ("60x think(thought=the {w} is {i}) ->", "-"),
        (
            "7x bash(\"echo standby\") -> standby | think(thought={w} {i}) -> | bash(\"true\") -> | bash(\"echo ok\") -> ok
             4x bash(\"true\") -> | bash(\"echo ok\") -> ok | think(thought={w} {i}) -> | bash(\"echo standby\") -> standby
             4x bash(\"true\") -> | bash(\"echo standby\") -> standby | bash(\"echo ok\") -> ok",
            "45 repeated",
        ),
        // After compaction, reading the files again is news.
        (
            "18x read(path=a{i}) -> text {i}
             18x read(path=a{i}) -> text {i}
             compacted
             18x read(path=a{i}) -> text {i}",
            "-",
        ),
    ]);
}

#[test]
fn different_calls_with_the_same_result_are_a_loop_unless_they_are_a_batch() {
    check(&[
        ("20x fetch(url=http://x/a?page={i}) -> {long}", "5 varied"),
        ("20x search(query=how to mend {w} in foo) -> {long}", "5 varied"),
        ("20x fetch(url=http://x/{w}) -> Access denied. {long}", "5 varied"),
        ("20x fetch(url=http://x/{w}) -> {long {i}}", "-"),
        // Short results: only if the calls are similar.
        ("20x search(query=mend foo bar {w} {i}) -> No results found.", "12 varied"),
        (
            "search(query=nginx timeout) -> No results for 'nginx timeout'
             search(query=nginx proxy timeout) -> No results for 'nginx proxy timeout'
             search(query=increase nginx timeout) -> No results for 'increase nginx timeout'
             search(query=nginx gateway timeout setting) -> No results for 'nginx gateway timeout setting'
             search(query=nginx timeout config) -> No results for 'nginx timeout config'
             search(query=configure nginx proxy timeouts) -> No results for 'configure nginx proxy timeouts'
             search(query=nginx timeouts) -> No results for 'nginx timeouts'
             search(query=set nginx proxy timeout) -> No results for 'set nginx proxy timeout'",
            "8 varied",
        ),
        ("20x list(folder=inbox, page={i}) -> []", "8 varied"),
        ("40x list(folder=inbox, page={i}) -> mail {i}", "-"),
        ("40x grep(pattern=foo, path=src/{w}{i}.rs) -> no matches", "-"),
        ("40x bash(\"grep -n foo src/{w}{i}.rs\") -> !", "-"),
        ("40x bash(\"grep -n foo src/{w}{i}.rs\") -> !(exit code 1)", "-"),
        ("40x grep(pattern={w}{i}, path=src) -> No matches found", "-"),
        ("40x get_order(id={i}) -> none", "-"),
        ("12x events(start=2026-{i}-01, end=2026-{i}-28) -> []", "-"),
        // Positive results: each call is work.
        ("40x write(path=a{i}, content=x) -> ok", "-"),
        ("40x lint(path=a{i}) -> All checks passed. {long}", "-"),
        ("40x lint(path=a{i}) -> no issues", "-"),
        ("40x close_issue(id={u}) -> closed", "-"),
        ("40x bash(\"kubectl delete pod web-{r}\") -> deleted", "-"),
        ("40x bash(\"python migrate.py --batch {i}\") -> done", "-"),
        ("40x send_message(to={w}{i}, text=hello) -> sent", "-"),
        // The same file on many hosts is work. The same page for any address, or for any click, is a loop.
        ("20x read_remote(host=h{i}, path=/etc/x) -> {long}", "-"),
        ("40x read_remote(host=h{i}, path=/etc/x) -> {long}", "21 repeated"),
        ("20x fetch(url=http://x/{w}) -> {long}", "5 varied"),
        ("20x click(x={i}, y={i}) -> {long}", "5 varied"),
        ("20x click(x={i}, y={i}) -> ok", "-"),
        ("40x is_prime(n={i}) -> no", "-"),
        // Databases.
        ("40x query(sql=select count(*) from {w} where x > 0) -> 0", "-"),
        ("20x query(sql=select * from users where name = 'x{i}') -> []", "-"),
        ("20x query(sql=select id from orders where col_{w} is null) -> []", "-"),
        ("20x query(sql=select {w} from orders order by {w}) -> (0 rows)", "8 varied"),
        ("40x sql__execute(statement=UPDATE t SET a = {i} WHERE id = 4{i}) -> UPDATE 1", "-"),
        (
            "4x query(sql=select * from users where name = ann limit {i}) -> []
             4x query(sql=SELECT * FROM users WHERE name LIKE ann OFFSET {i}) -> []
             4x query(sql=select * from users where lower(name) = ann limit {i}) -> []",
            "8 varied",
        ),
        // Answers and images.
        ("20x ask_user(question=May I delete file {w}?) -> yes", "-"),
        ("20x generate_image(prompt=a cat in the style of {w}) -> http://x/{r}.png", "-"),
    ]);
}

#[test]
fn the_same_error_for_different_calls_is_a_loop() {
    check(&[
        ("20x fetch(url=http://x/{w}) -> !connection refused", "5 varied"),
        ("20x query(sql=select {w} from t) -> !syntax error at line 1, request id {r}", "5 varied"),
        ("9x f(a={i}) -> !out of memory | think(thought={w}) -> ok", "9 varied"),
        ("9x f(a={i}) -> !line 7{i} is wrong", "-"),
        // Searching for the location of a file.
        ("8x read(path={w}/x.toml) -> !File not found: {w}/x.toml", "-"),
        ("30x read(path={w}{i}/x.toml) -> !File not found: {w}{i}/x.toml", "16 varied"),
        // Progress in between.
        ("20x fetch(url=http://x/{w}) -> !connection refused | read(path={i}) -> {i}", "-"),
    ]);
}

#[test]
fn polling_is_counted_slowly_and_anew_with_each_change() {
    check(&[
        ("20x get_status(id=1) -> in progress", "-"),
        ("40x get_status(id=1) -> in progress", "24 polling"),
        ("40x get_status(id=1) -> in progress, {t}", "24 polling"),
        ("90x get_status(id=1) -> {i}% done", "-"),
        ("20x get_status(id=1) -> queued\n20x get_status(id=1) -> running", "-"),
        ("20x get_status(id=1) -> running | sleep(seconds=5) -> ok", "-"),
        ("40x get_status(id=1) -> running | sleep(seconds=5) -> ok", "47 polling"),
        ("40x get_status(id=1) -> completed", "12 polling"),
        ("20x bash(\"sleep 5 && cat out\") -> !no such file", "-"),
        ("40x bash(\"sleep 5 && cat out\") -> !no such file", "24 polling"),
        ("20x bash(\"gh run view 17\") -> queued", "-"),
        ("20x process(action=poll, sessionId=a) -> no new output", "-"),
        // Recognised by the result, the clock, or pauses alone.
        ("20x fetch_thing(id=1) -> pending", "-"),
        ("40x fetch_thing(id=1) -> pending", "24 polling"),
        ("20x temperature() -> 21 | clock 30", "-"),
        ("40x temperature() -> 21 | clock 30", "24 polling"),
        ("40x temperature() -> 21 | clock 3", "5 cycle"),
        ("20x temperature() -> 21 | sleep(seconds=5) -> ok", "-"),
        ("40x read(path=a) -> x | sleep(seconds=5) -> ok", "23 polling"),
        // Without results.
        ("20x get_status(id=1)", "-"),
        ("40x get_status(id=1)", "24 polling"),
        // Calls that are not polling.
        ("9x set_status(id=1, status=open) -> ok", "5 cycle"),
        ("9x git_status() -> clean", "5 cycle"),
        ("9x check_syntax(path=a) -> !x", "5 cycle"),
        ("9x get_status(id=1) -> down | restart(id=1) -> ok", "10 cycle"),
        // Several polls at once.
        ("20x get_job(id=1) -> running | get_job(id=2) -> running | get_job(id=3) -> running", "-"),
    ]);
}

#[test]
fn writing_and_taking_back_is_a_loop() {
    check(&[
        ("9x write(path=a, content=x) -> ok | write(path=a, content=y) -> ok", "10 cycle"),
        ("2x write(path=a, content=x) -> ok | write(path=a, content=y) -> ok", "-"),
        (
            "9x edit(path=a, old_string=x, new_string=y) -> ok | run_tests() -> !1 failed | edit(path=a, old_string=y, new_string=x) -> ok | run_tests() -> !2 failed",
            "18 repeated",
        ),
        ("9x add_label(issue=1, label=a) -> ok | remove_label(issue=1, label=a) -> ok", "10 cycle"),
        ("9x memory(action=add, content=x) -> ok | memory(action=remove, content=x) -> ok", "10 cycle"),
        ("20x add_label(issue={i}, label=a) -> ok | remove_label(issue={i}, label=b) -> ok", "-"),
        // Around real work.
        (
            "20x set_flag(name=debug, value=on) -> ok | edit(path=a, old_string=x{i}, new_string=y) -> ok | set_flag(name=debug, value=off) -> ok",
            "-",
        ),
        // Commands and UI actions are repeated without being a loop.
        ("20x bash(\"git add -A\") -> | bash(\"git commit -m step{i}\") -> step {i}", "-"),
        ("20x save(path=a) -> ok | edit(path=a, old_string=x{i}, new_string=y{i}) -> ok", "-"),
        // A failed write changes nothing.
        ("4x write(path=a, content=x) -> !full | write(path=a, content=y) -> !full", "5 varied"),
    ]);
}

#[test]
fn results_belong_to_the_oldest_open_call_of_their_name() {
    check(&[
        // The result of `f` belongs to the first of the two calls of `f`.
        ("batch\n9x f(a=1) -> {i} | g(a=1) -> x | f(a=2) -> y{i}", "-"),
        ("batch\n9x f(a=1) -> x | g(a=1) -> y", "10 cycle"),
        ("batch\n9x read(path=a) -> x | read(path=b) -> {i}", "-"),
    ]);
}

#[test]
fn listed_tools_are_what_the_configuration_says() {
    let config = ToolLoopConfig {
        polling_tools: vec!["Orakel".into()],
        harmless_tools: vec!["würfel".into()],
        ..ToolLoopConfig::default()
    };
    let at = |script| play(&config, &read(script)).map(|(at, _)| at);
    assert_eq!(at("40x orakel() -> x"), Some(24));
    assert_eq!(at("9x f(a=1) -> x | würfel() -> {i}"), Some(9));
}

#[test]
fn a_finding_tells_what_was_repeated() {
    let config = ToolLoopConfig { without: Some(Part::Gain), ..ToolLoopConfig::default() };
    let found = play(&config, &read("9x read_file(path=a) -> x | grep(pattern=b) -> y"));
    let (_, finding) = found.expect("a loop");
    assert_eq!((finding.count, finding.threshold, finding.reason), (5, 5, StopReason::ToolLoop));
    assert_eq!(finding.fingerprints.len(), 2);
    assert!(finding.fingerprints.iter().all(|digest| digest.len() == 16));
    assert_eq!(finding.quote.as_deref(), Some(r#"grep {"pattern":"b"}"#));
    assert_eq!(finding.facts["period"], 2);
    assert_eq!(finding.facts["tools"], serde_json::json!(["read_file", "grep"]));
}

#[test]
fn after_a_recovery_the_next_identical_call_is_the_first() {
    let config = ToolLoopConfig::default();
    let mut loops = ToolLoops::default();
    let events = read("5x read(path=a) -> x");
    for round in 0..3 {
        for (at, event) in events.iter().enumerate() {
            loops.observe(&config, &event.seen());
            assert_eq!(loops.found().is_some(), at >= 8, "round {round}, event {at}");
        }
        loops.clear();
        assert_eq!(loops, ToolLoops::default());
    }
    for event in &events {
        loops.observe(&config, &event.seen());
    }
    loops.observe(&config, &Observation::Reset);
    assert_eq!(loops, ToolLoops::default());
}

#[test]
fn a_call_that_was_not_run_counts_for_nothing() {
    let config = ToolLoopConfig::default();
    let mut loops = ToolLoops::default();
    let arguments = Arguments::parse(r#"{"path":"a"}"#);
    for _ in 0..50 {
        loops.observe(&config, &Observation::ToolCall { name: "read", arguments: &arguments, spec: None });
        let outcome = CallOutcome::NotExecuted;
        loops.observe(&config, &Observation::ToolResult { name: "read", outcome, text: "not executed" });
    }
    assert_eq!(loops.found(), None);
}

#[test]
fn through_the_engine_the_first_loop_is_a_strike_and_the_second_ends_the_run() {
    use super::super::super::{Action, StopRules, StopState};
    let (rules, mut state) = (StopRules::progress(), StopState::default());
    let mut verdicts = Vec::new();
    for (at, event) in read("5x read(path=a) -> x\n9x list(path=b) -> y").iter().enumerate() {
        if let Some(verdict) = state.observe(&rules, event.seen()) {
            verdicts.push((at, verdict.action, verdict.strike));
            state.recover();
        }
    }
    // Each call is two events, so the fifth repetition of a call is its ninth event.
    assert_eq!(verdicts, [(8, Action::Recover, 1), (18, Action::Stop, 2)]);
}
