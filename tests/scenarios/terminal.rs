//! The prompt of the daemon as a person sees it: on the rendered screen of a pseudo-terminal.

use std::time::Duration;

use anyhow::Result;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use belay_tests::terminal::Terminal;

const MARKDOWN: &str = "# Result\n\nThere are **two** of `them`:\n\n1. first\n2. second\n\n```rust\nfn main() {}\n```\n\n| a | n |\n|---|--:|\n| x | 1 |\n\nSee [docs](https://example.org/a).\n";

/// The lines, with the figures below an answer as `figures`: their numbers are those of the prompt and of the prices.
fn with_figures(lines: Vec<String>) -> Vec<String> {
    let is_figures = |line: &String| line.starts_with("context ") && line.contains(" · 110 tokens");
    lines.into_iter().map(|line| if is_figures(&line) { "figures".to_owned() } else { line }).collect()
}

#[tokio::test]
async fn a_streamed_answer_appears_as_rendered_markdown_and_the_status_line_vanishes() -> Result<()> {
    let slow = Answer::Pieces(MARKDOWN.into(), 3, Duration::from_millis(20));
    let model = ModelServer::start(vec![slow], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url);
    let mut terminal = Terminal::run(&home, 80, 24).await?;
    terminal.press("show me\r")?;
    terminal.shows("thinking · 0 s").await?;
    let early = terminal.shows("second").await?;
    assert!(!early.iter().any(|line| line.contains("See docs")), "the answer is still being written: {early:#?}");
    terminal.shows("See docs").await?;
    terminal.prompt().await?;
    assert_eq!(
        with_figures(terminal.below("belay> show me")),
        [
            "",
            "Result",
            "",
            "There are two of them:",
            "",
            "1. first",
            "2. second",
            "",
            "  fn main() {}",
            "",
            "a │ n",
            "──┼──",
            "x │ 1",
            "",
            "See docs (https://example.org/a).",
            "figures",
            "belay>"
        ]
    );
    assert!(terminal.output().contains("\x1b]8;;https://example.org/a\x1b\\"), "the link can be opened");
    terminal.press("again\r")?;
    terminal.shows("done").await?;
    terminal.prompt().await?;
    assert_eq!(with_figures(terminal.below("belay> again")), ["", "done", "figures", "belay>"]);
    terminal.press("/quit\r")?;
    assert!(terminal.ended().await?.success());
    Ok(())
}

#[tokio::test]
async fn words_wrap_at_the_width_of_the_window_and_wide_characters_count_twice() -> Result<()> {
    let text = "one two three four five six\n\n漢字漢字漢字漢字漢字漢字";
    let model = ModelServer::start(vec![], Answer::text(text)).await;
    let home = Home::new().openai(&model.base_url);
    let mut terminal = Terminal::run(&home, 20, 30).await?;
    terminal.press("wrap\r")?;
    terminal.shows("five six").await?;
    terminal.prompt().await?;
    let shown = terminal.below("belay> wrap");
    assert!(shown.iter().any(|line| line.starts_with("context ")), "the figures fit as far as they can: {shown:#?}");
    let words: Vec<_> = shown.iter().map(String::as_str).filter(|line| !line.starts_with("context ")).collect();
    assert_eq!(words, ["", "one two three four", "five six", "", "漢字漢字漢字漢字漢字", "漢字", "belay>"]);
    Ok(())
}

#[tokio::test]
async fn a_window_of_one_column_and_one_row_breaks_nothing() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("**hi**\n\n- x")).await;
    let home = Home::new().openai(&model.base_url);
    let args = home.run_args();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut terminal = Terminal::start(&home, &args, 1, 1)?;
    terminal.until("a prompt", |screen| !screen.is_empty()).await?;
    terminal.press("hello\r")?;
    model.seen(1).await;
    terminal.press("/quit\r")?;
    assert!(terminal.ended().await?.success(), "{:?}", terminal.output());
    Ok(())
}

#[tokio::test]
async fn without_colours_no_style_and_no_link_is_written() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text(MARKDOWN)).await;
    let home = Home::new().openai(&model.base_url).env("NO_COLOR", "1");
    let mut terminal = Terminal::run(&home, 80, 24).await?;
    terminal.press("show me\r")?;
    terminal.shows("See docs").await?;
    terminal.prompt().await?;
    let output = terminal.output();
    assert!(!output.contains("\x1b]8"), "{output:?}");
    let sequences = output.split("\x1b[").skip(1);
    let styles = sequences
        .filter_map(|rest| rest.split_once('m').map(|(code, _)| code))
        .filter(|code| code.chars().all(|c| c.is_ascii_digit() || c == ';') && !matches!(*code, "" | "0"));
    assert_eq!(styles.collect::<Vec<_>>(), Vec::<&str>::new(), "{output:?}");
    assert_eq!(terminal.below("belay> show me")[1..4], ["# Result", "", "There are two of `them`:"]);
    Ok(())
}

#[tokio::test]
async fn ctrl_c_stops_the_run_and_two_of_them_end_the_daemon() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::Stall).await;
    let home = Home::new().openai(&model.base_url);
    let mut terminal = Terminal::run(&home, 80, 24).await?;
    terminal.press("work\r")?;
    terminal.shows("thinking").await?;
    terminal.press("\x03")?;
    terminal.prompt().await?;
    tokio::time::sleep(Duration::from_secs(2)).await; // a second one within two seconds would leave
    terminal.press("work again\r")?;
    terminal.shows("thinking").await?;
    terminal.press("\x03")?;
    terminal.prompt().await?;
    // Two at once: the one before may be longer ago than two seconds.
    terminal.press("\x03\x03")?;
    assert!(terminal.ended().await?.success());
    Ok(())
}

#[tokio::test]
async fn a_person_types_while_the_answer_comes_and_both_are_kept() -> Result<()> {
    let slow = Answer::Pieces("one\n\ntwo\n\nthree\n\nfour".into(), 1, Duration::from_millis(60));
    let model = ModelServer::start(vec![slow], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url);
    let mut terminal = Terminal::run(&home, 80, 24).await?;
    terminal.press("count\r")?;
    terminal.shows("one").await?;
    terminal.press("and then")?;
    terminal.shows("belay> and then").await?;
    let all = ["belay> count", "one", "two", "three", "four", "figures", "belay> and then"];
    // Empty lines are not compared: the prompt takes one back if it appeared before the run began, as on a slow machine.
    let is_whole = |screen: &[String]| {
        let lines = with_figures(screen.iter().filter(|line| !line.is_empty()).cloned().collect());
        lines.ends_with(&all.map(String::from))
    };
    terminal.until("the whole answer", is_whole).await?;
    Ok(())
}

#[tokio::test]
async fn a_text_of_several_lines_is_one_message() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url);
    let mut terminal = Terminal::run(&home, 80, 24).await?;
    terminal.press("look:\\\r```\rfn a() {}\r```\r")?;
    terminal.shows("done").await?;
    terminal.prompt().await?;
    terminal.press("one\x1b\rtwo\r")?;
    model.seen(2).await;
    let said = |request: &serde_json::Value| {
        let messages = request["messages"].as_array().cloned().unwrap_or_default();
        messages.last().map(|message| message["content"].to_string()).unwrap_or_default()
    };
    let requests = model.requests();
    assert!(said(&requests[0]).contains(r"look:\n```\nfn a() {}\n```"), "{}", said(&requests[0]));
    assert!(said(&requests[1]).contains(r"one\ntwo"), "{}", said(&requests[1]));
    Ok(())
}

/// The arguments of `belay ask` in this home.
fn ask<'a>(run: &'a [String], text: &'a str) -> Vec<&'a str> {
    std::iter::once("ask").chain(run[1..].iter().map(String::as_str)).chain([text]).collect()
}

#[tokio::test]
async fn ask_streams_to_a_terminal_and_its_status_line_leaves_nothing_behind() -> Result<()> {
    let slow = Answer::Pieces("# Two\n\n- **one**\n- two\n".into(), 2, Duration::from_millis(20));
    let call = Answer::call("calculate", serde_json::json!({"expression": "17*23"}));
    let model = ModelServer::start(vec![call, slow], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url);
    let mut terminal = Terminal::start(&home, &ask(&home.run_args(), "count"), 60, 24)?;
    terminal.shows("thinking · 0 s").await?;
    terminal.shows("• one").await?;
    assert!(terminal.ended().await?.success());
    let screen = terminal.screen();
    let at = screen.iter().position(|line| line == "Two").expect("the title");
    assert_eq!(screen[at..], ["Two", "", "• one", "• two"]);
    assert!(screen[..at].iter().all(|line| !line.contains("thinking")), "{screen:#?}");
    Ok(())
}

#[tokio::test]
async fn ask_in_a_pipe_prints_the_answer_as_it_is_and_takes_a_piped_text() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text(MARKDOWN)).await;
    let home = Home::new().openai(&model.base_url);
    let output = home.run(&ask(&home.run_args(), "review this"), "+added\n").await?;
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), (MARKDOWN, ""));
    let messages = model.requests()[0]["messages"].as_array().cloned().unwrap_or_default();
    let asked = messages.last().map(|message| message["content"].to_string()).unwrap_or_default();
    assert!(asked.contains(r"review this\n\nThe input that was piped in:\n```\n+added\n```"), "{asked}");
    Ok(())
}

#[tokio::test]
async fn chat_shows_the_same_prompt_survives_a_restart_of_the_daemon_and_repeats_nothing() -> Result<()> {
    let slow = Answer::Pieces("**one**\n\ntwo\n".into(), 2, Duration::from_millis(20));
    let model = ModelServer::start(vec![slow], Answer::text("after the restart")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let mut terminal = Terminal::start(&home, &["chat", "--session", "me"], 80, 24)?;
    terminal.prompt().await?;
    terminal.press("count\r")?;
    terminal.shows("thinking").await?;
    let is_whole =
        |screen: &[String]| with_figures(screen.to_vec()).ends_with(&["two", "figures", "belay>"].map(String::from));
    terminal.until("the whole answer", is_whole).await?;
    assert_eq!(with_figures(terminal.below("belay> count")), ["", "one", "", "two", "figures", "belay>"]);
    daemon.kill().await?;
    terminal.shows("trying again").await?;
    let daemon = home.start().await?;
    terminal.shows("connected again").await?;
    terminal.prompt().await?;
    terminal.press("go on\r")?;
    terminal.shows("after the restart").await?;
    terminal.prompt().await?;
    assert_eq!(with_figures(terminal.below("belay> go on")), ["", "after the restart", "figures", "belay>"]);
    let answers = terminal.screen().iter().filter(|line| *line == "one" || *line == "two").count();
    assert_eq!(answers, 2, "nothing is shown twice: {:#?}", terminal.screen());
    terminal.press("/quit\r")?;
    assert!(terminal.ended().await?.success());
    assert_eq!(daemon.ask("me", "still there?").await?["status"], "completed", "the daemon goes on");
    Ok(())
}

#[tokio::test]
async fn ctrl_c_in_a_chat_stops_the_run_and_the_chat_goes_on() -> Result<()> {
    let model = ModelServer::start(vec![Answer::Stall], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url);
    let _daemon = home.start().await?;
    let mut terminal = Terminal::start(&home, &["chat"], 80, 24)?;
    terminal.prompt().await?;
    terminal.press("work\r")?;
    terminal.shows("thinking").await?;
    model.seen(1).await;
    terminal.press("\x03")?;
    model.dropped(1).await;
    terminal.prompt().await?;
    terminal.press("again\r")?;
    terminal.shows("done").await?;
    terminal.press("\x04")?;
    assert!(terminal.ended().await?.success());
    Ok(())
}

#[tokio::test]
async fn a_chat_without_a_daemon_says_how_to_start_one() -> Result<()> {
    let output = Home::new().run(&["chat"], "").await?;
    assert_eq!(output.status.code(), Some(69));
    assert!(output.stderr.contains("no daemon is running here") && output.stderr.contains("belay run"), "{output:?}");
    Ok(())
}

#[tokio::test]
async fn the_history_is_kept_for_this_person_alone_unless_it_is_disabled() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    for (kept, home) in [(true, Home::new()), (false, Home::new().set("channels.stdin.history", false))] {
        let mut terminal = Terminal::run(&home, 80, 24).await?;
        terminal.press("hello\r")?;
        terminal.prompt().await?;
        terminal.press("/quit\r")?;
        assert!(terminal.ended().await?.success());
        let file = home.path().join("data/belay/history");
        assert_eq!(file.exists(), kept);
        if kept {
            assert_eq!(std::fs::metadata(&file)?.permissions().mode() & 0o777, 0o600);
            assert_eq!(std::fs::read_to_string(&file)?, "hello\n/quit\n");
        }
    }
    Ok(())
}

#[tokio::test]
async fn tab_completes_commands_models_sessions_and_ids() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url);
    let mut terminal = Terminal::run(&home, 80, 24).await?;
    for (typed, completed) in [("/stat\t", "belay> /status"), ("/model scr\t", "belay> /model scripted")] {
        terminal.press(typed)?;
        terminal.until(completed, |screen| screen.last().is_some_and(|line| line == completed)).await?;
        terminal.press("\x15")?; // Ctrl-U
        terminal.prompt().await?;
    }
    terminal.press("/re\t")?;
    let menu = terminal.shows("/reasoning").await?;
    assert!(menu.iter().any(|line| line.contains("/reset") && line.contains("/redo")), "{menu:#?}");
    terminal.press("\x03")?;
    terminal.prompt().await?;
    terminal.press("/quit\r")?;
    assert!(terminal.ended().await?.success());

    let daemon = home.start().await?;
    daemon.ask("garden", "hello").await?;
    let (status, job) = daemon
        .request("POST", "/api/v1/jobs", Some(serde_json::json!({"session": "garden", "task": "dig", "title": "dig"})))
        .await?;
    assert_eq!(status, 202, "{job}");
    let job = job["job_id"].as_str().unwrap_or_default().to_owned();
    let mut chat = Terminal::start(&home, &["chat"], 80, 24)?;
    chat.shows("/quit leaves").await?;
    chat.prompt().await?;
    for (typed, completed) in
        [("/stop gar\t", "belay> /stop garden".to_owned()), ("/job \t", format!("belay> /job {job}"))]
    {
        chat.press(typed)?;
        chat.until(&completed, |screen| screen.last().is_some_and(|line| *line == completed)).await?;
        chat.press("\x15")?; // Ctrl-U
        chat.prompt().await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_help_is_short_in_columns_and_all_of_it_fits_one_screen() -> Result<()> {
    let home = Home::new();
    let mut terminal = Terminal::run(&home, 80, 24).await?;
    terminal.press("/help\r")?;
    terminal.shows("lists all commands.").await?;
    terminal.prompt().await?;
    let short = terminal.below("belay> /help");
    let commands: Vec<_> = short.iter().filter(|line| line.starts_with("  /")).collect();
    assert_eq!(commands.len(), 8, "{short:#?}");
    assert!(commands.iter().all(|line| line.get(11..13) == Some("  ") && line.get(13..14) != Some(" ")), "{short:#?}");
    terminal.press("/help all\r")?;
    terminal.shows("Belay:").await?;
    let screen = terminal.prompt().await?;
    for group in ["belay> /help all", "Work:", "Questions:", "Conversation:", "Background:", "Settings:", "Belay:"] {
        assert!(screen.iter().any(|line| line.starts_with(group)), "{group}: {screen:#?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_question_about_a_file_shows_the_change_and_is_answered_at_the_prompt_and_in_a_chat() -> Result<()> {
    let edit = |old: &str, new: &str| {
        let arguments = serde_json::json!({"path": "notes.txt", "old": old, "new": new});
        Answer::call("edit_file", arguments)
    };
    let script = vec![edit("one\ntwo", "three"), Answer::text("changed"), edit("three", "four"), Answer::text("again")];
    let model = ModelServer::start(script, Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url);
    let file = home.workspace().join("notes.txt");
    std::fs::write(&file, "one\ntwo\n")?;
    let mut terminal = Terminal::run(&home, 80, 40).await?;
    terminal.press("edit it\r")?;
    terminal.shows("+ three").await?;
    let asked = terminal.prompt().await?;
    for line in ["│   - one", "│   - two", "│   + three"] {
        assert!(asked.iter().any(|shown| shown == line), "{line}: {asked:#?}");
    }
    terminal.press("yes\r")?;
    terminal.shows("changed").await?;
    assert_eq!(std::fs::read_to_string(&file)?, "three\n");
    terminal.prompt().await?;

    let mut chat = Terminal::start(&home, &["chat"], 80, 40)?;
    chat.shows("/quit leaves").await?;
    chat.prompt().await?;
    chat.press("edit it once more\r")?;
    chat.shows("+ four").await?;
    chat.prompt().await?;
    chat.press("yes\r")?;
    chat.shows("again").await?;
    assert_eq!(std::fs::read_to_string(&file)?, "four\n");
    Ok(())
}

#[tokio::test]
async fn one_line_stays_of_a_plan_at_the_prompt_and_in_a_chat() -> Result<()> {
    let (home, other) = (Home::new(), Home::new());
    let _daemon = home.start().await?;
    let chat = Terminal::start(&home, &["chat", "--session", "me"], 80, 40)?;
    for mut terminal in [Terminal::run(&other, 80, 40).await?, chat] {
        terminal.prompt().await?;
        terminal.press("/plan tidy the house\r")?;
        terminal.shows("3 steps completed, 0 blocked.").await?;
        let screen = terminal.prompt().await?;
        let rows: Vec<_> = screen.iter().filter(|line| line.contains("plan tidy the house")).collect();
        assert_eq!(rows, ["belay> /plan tidy the house", "✓ plan tidy the house · 3 of 3 steps"], "{screen:#?}");
        assert!(!screen.iter().any(|line| line.ends_with("Do the work")), "{screen:#?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_steps_of_a_plan_have_a_row_each_while_it_works() -> Result<()> {
    let steps = serde_json::json!({"command": "create", "title": "The work", "steps": ["look", "work"]});
    let planned = || Answer::call("planning", steps.clone());
    let model = ModelServer::start(vec![planned(), Answer::Stall, planned()], Answer::Stall).await;
    let (home, other) = (Home::new().openai(&model.base_url), Home::new().openai(&model.base_url));
    let _daemon = home.start().await?;
    let chat = Terminal::start(&home, &["chat", "--session", "me"], 80, 24)?;
    for mut terminal in [Terminal::run(&other, 80, 24).await?, chat] {
        terminal.prompt().await?;
        terminal.press("/plan tidy the house\r")?;
        let rows = ["plan The work · 0 of 2 steps", "  ▸ look", "  ○ work"].map(String::from);
        terminal.until("the rows of the plan", |screen| screen.windows(3).any(|lines| lines == rows)).await?;
        terminal.press("\x03")?;
        let screen = terminal.prompt().await?;
        assert!(screen.contains(&"▸ plan The work · 0 of 2 steps".to_owned()), "{screen:#?}");
        assert!(!screen.contains(&rows[1]), "{screen:#?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_window_that_becomes_narrower_while_the_answer_comes_wraps_what_follows() -> Result<()> {
    let text = "one two three\n\nfour five six seven\n\neight nine ten eleven twelve\n";
    let slow = Answer::Pieces(text.into(), 2, Duration::from_millis(40));
    let model = ModelServer::start(vec![slow], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url);
    let mut terminal = Terminal::run(&home, 80, 24).await?;
    terminal.press("count\r")?;
    terminal.shows("four five").await?;
    terminal.resize(12, 24)?;
    terminal.shows("twelve").await?;
    let screen = terminal.prompt().await?;
    let figures = screen.iter().rposition(|line| line.starts_with("context")).unwrap_or_default();
    assert_eq!(screen[figures + 1..], ["belay>"], "{screen:#?}");
    assert!(screen[..figures].ends_with(&["eight nine", "ten eleven", "twelve"].map(String::from)), "{screen:#?}");
    assert!(screen.iter().all(|line| !line.contains("thinking")), "{screen:#?}");
    Ok(())
}

#[tokio::test]
async fn a_dumb_terminal_gets_plain_lines() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("# Title\n\n**one** [two](https://a.b)")).await;
    let home = Home::new().openai(&model.base_url).env("TERM", "dumb");
    let args = home.run_args();
    let mut terminal = Terminal::start(&home, &args.iter().map(String::as_str).collect::<Vec<_>>(), 80, 24)?;
    terminal.shows("ready on").await?;
    terminal.press("hello\n")?;
    terminal.shows("one two (https://a.b)").await?;
    assert!(!terminal.output().contains('\x1b'), "{:?}", terminal.output());
    terminal.press("/quit\n")?;
    assert!(terminal.ended().await?.success());
    Ok(())
}

/// A text of a hundred lines, as a terminal sends it: each line ends with Enter.
fn hundred_lines() -> String {
    (1..=100).map(|n| format!("line {n}\r")).collect()
}

#[tokio::test]
async fn a_paste_is_one_message_at_an_empty_prompt_and_while_a_run_is_shown() -> Result<()> {
    let model = ModelServer::start(vec![Answer::text("done"), Answer::Stall], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url);
    let mut terminal = Terminal::run(&home, 80, 24).await?;
    let paste = format!("\x1b[200~{}\x1b[201~", hundred_lines());
    terminal.press(&paste)?;
    terminal.shows("line 100").await?;
    terminal.press("\r")?;
    terminal.shows("done").await?;
    terminal.prompt().await?;
    let whole: String = (1..=100).map(|n| format!("line {n}\\n")).collect();
    assert_eq!(model.requests().len(), 1, "one message");
    assert!(model.requests()[0].to_string().contains(whole.trim_end_matches("\\n")), "{}", model.requests()[0]);
    terminal.press("work\r")?;
    terminal.shows("thinking").await?;
    terminal.press("\x1b[200~one\rtwo\rthree\x1b[201~")?;
    let lines = terminal.shows("three").await?;
    assert!(lines.iter().any(|line| line == "belay> one"), "{lines:#?}");
    terminal.press("\x03\x03")?;
    Ok(())
}

#[tokio::test]
async fn after_a_hundred_lines_without_marks_a_stop_acts_and_refused_lines_are_named() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::Stall).await;
    let home = Home::new().openai(&model.base_url).set("queue.mode", "followup");
    let mut terminal = Terminal::run(&home, 80, 60).await?;
    terminal.press(&hundred_lines())?;
    terminal.shows("lines wait already; /stop ends the work: line 100").await?;
    model.seen(1).await;
    terminal.press("/stop\r")?;
    model.dropped(1).await;
    terminal.shows("lines that waited were not sent").await?;
    terminal.prompt().await?;
    terminal.press("/ping\r")?;
    terminal.shows("pong").await?;
    terminal.press("/quit\r")?;
    assert!(terminal.ended().await?.success());
    Ok(())
}

#[tokio::test]
async fn a_sent_message_shows_its_answer_as_it_is_written_with_a_row_for_each_tool_call() -> Result<()> {
    let slow = Answer::Pieces("# Two\n\n- **one**\n- two\n".into(), 2, Duration::from_millis(20));
    let call = Answer::call("calculate", serde_json::json!({"expression": "17*23"}));
    let ask = Answer::call("run_command", serde_json::json!({"argv": ["echo", "here"]}));
    let model = ModelServer::start(vec![call, slow, ask], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url);
    let _daemon = home.start().await?;
    let mut terminal = Terminal::start(&home, &["send", "--wait", "count"], 60, 24)?;
    terminal.shows("• one").await?;
    assert!(terminal.ended().await?.success());
    let screen = terminal.screen();
    assert!(screen[0].starts_with("✓ calculate expression: 17*23 · "), "{screen:#?}");
    assert_eq!(screen[1..], ["", "Two", "", "• one", "• two"]);

    let mut terminal = Terminal::start(&home, &["send", "--wait", "run it"], 80, 40)?;
    assert_eq!(terminal.ended().await?.code(), Some(75), "{:#?}", terminal.screen());
    let screen = terminal.screen();
    for line in ["│ May I do this? run_command", "│   echo here"] {
        assert!(screen.iter().any(|shown| shown == line), "{line}: {screen:#?}");
    }
    let text = screen.concat();
    let end = text.split("`belay approvals approve ").nth(1).and_then(|rest| rest.get(..4)).unwrap_or_default();
    let answered = home.run(&["approvals", "approve", end], "").await?;
    assert!(answered.status.success() && answered.stdout.contains("Approved."), "{end}: {answered:?}");
    Ok(())
}
