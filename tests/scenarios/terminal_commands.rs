//! Commands on a terminal, and the same commands in a pipe.

use std::io::Write;
use std::process::Stdio;

use anyhow::{Context, Result};
use belay_tests::daemon::{Home, PATIENCE};
use belay_tests::terminal::Terminal;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::timeout;

const REHEARSAL: &str = "llm.provider=rehearsal";

#[tokio::test]
async fn lists_fit_the_terminal_and_a_pipe_gets_everything() -> Result<()> {
    let home = Home::new().env("TZ", "XXX-5:45");
    let daemon = home.start().await?;
    let session = "a-conversation-with-quite-a-long-name-for-a-narrow-terminal";
    let run = daemon.ask(session, "calculate 6*7").await?;
    let whole = home.run(&["runs"], "").await?;
    assert!(whole.stdout.contains(session) && whole.stdout.contains("CALLS"), "{whole:?}");
    for columns in [80, 120] {
        let mut logs = Terminal::start(&home, &["logs"], columns, 24)?;
        logs.ended().await?;
        let is_entry = |line: &String| line.get(2..3) == Some("-") && line.get(8..9) == Some(":");
        assert!(logs.screen().iter().all(is_entry) && logs.screen().len() > 3, "no line wraps: {:#?}", logs.screen());
        for (args, rows, starts) in
            [(&["runs"][..], 2, "RUN"), (&["runs", "--follow"], 2, "RUN"), (&["top", "--once"], 1, "0 running")]
        {
            let mut terminal = Terminal::start(&home, args, columns, 24)?;
            if args.contains(&"--follow") {
                terminal.shows("completed").await?;
                terminal.press("\x03")?;
            }
            terminal.ended().await?;
            let screen = terminal.screen();
            let shown = screen.iter().filter(|line| !line.is_empty() && *line != "^C").count();
            assert_eq!(shown, rows, "{args:?} at {columns}: {screen:#?}");
            assert!(screen[0].starts_with(starts), "{screen:#?}");
        }
    }
    for args in [&["logs"][..], &["runs", "--follow"]] {
        let mut terminal = Terminal::start(&home, args, 200, 24)?;
        let is_whole = |screen: &[String]| screen.iter().any(|line| line.contains(session));
        terminal.until("the whole session on a wide terminal", is_whole).await?;
        terminal.press("\x03")?;
        terminal.ended().await?;
    }
    let id = run["run_id"].as_str().unwrap_or_default();
    let mut terminal = Terminal::start(&home, &["runs", "show", id], 80, 24)?;
    terminal.ended().await?;
    assert!(
        terminal.screen().iter().any(|line| line.starts_with("ended") && line.ends_with(" +05:45")),
        "{:#?}",
        terminal.screen()
    );
    let piped = home.run(&["runs", "show", id], "").await?;
    assert!(piped.stdout.contains("Z\n") && !piped.stdout.contains("+05:45"), "{piped:?}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_long_title_of_a_job_moves_no_column_and_a_pipe_gets_the_whole_key() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    daemon.ask("garden", "calculate 6*7").await?;
    let title = "word ".repeat(24);
    let made = home.run(&["jobs", "create", "--title", title.trim(), "calculate 6*7"], "").await?;
    let watched = home.run(&["jobs", "watch", made.stdout.trim()], "").await?;
    assert!(watched.status.success(), "{made:?} {watched:?}");
    let key = format!("job:{}", made.stdout.trim());
    for columns in [80, 200] {
        let mut terminal = Terminal::start(&home, &["runs"], columns, 24)?;
        terminal.ended().await?;
        let screen = terminal.screen();
        assert_eq!(screen.len(), 3, "no line wraps: {screen:#?}");
        let at = |line: &String, text: &str| line.split(text).next().map(|before| before.chars().count());
        let cost = at(&screen[0], "COST");
        assert!(screen[1..].iter().all(|line| at(line, "$") == cost), "{columns}: {screen:#?}");
        assert!(screen[1].contains("word word") && screen[1].contains('…'), "{columns}: {screen:#?}");
        let id = format!("(job {})", &key[4..17]);
        assert_eq!(screen[1].contains(&id), columns == 200, "{columns}: {screen:#?}");
    }
    let mut full = Terminal::start(&home, &["runs", "--full"], 120, 24)?;
    full.ended().await?;
    assert!(full.screen().iter().any(|line| line.contains(&key)), "{:#?}", full.screen());
    let piped = home.run(&["runs"], "").await?;
    assert!(piped.stdout.contains(&key) && !piped.stdout.contains("word"), "{piped:?}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_piped_question_needs_no_argument_and_a_terminal_gets_a_usage_error() -> Result<()> {
    let home = Home::new();
    let asked = home.run(&["ask", "--set", REHEARSAL], "calculate 17*23\n").await?;
    assert!(asked.status.success() && asked.stdout.contains("391"), "{asked:?}");
    let empty = home.run(&["ask", "--set", REHEARSAL], "").await?;
    assert_eq!(empty.status.code(), Some(65), "{empty:?}");
    let mut terminal = Terminal::start(&home, &["ask"], 80, 24)?;
    terminal.shows("the message is missing: belay ask TEXT").await?;
    assert_eq!(terminal.ended().await?.code(), Some(2));
    Ok(())
}

#[tokio::test]
async fn a_terminal_and_a_silent_pipe_are_told_what_is_waited_for() -> Result<()> {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["ask", "--set", REHEARSAL, "-"], 120, 24)?;
    terminal.shows("Ctrl-D on a line of its own ends it").await?;
    terminal.press("calculate 17*23\n\x04")?;
    assert!(terminal.ended().await?.success(), "{:#?}", terminal.screen());
    assert!(terminal.screen().concat().contains("391"), "{:#?}", terminal.screen());

    // Nobody reads the notes where standard error is a file.
    let notes = home.path().join("notes");
    let belay = belay_tests::daemon::binary();
    let shell = Home::new().program(std::path::Path::new("/bin/sh"));
    let command = format!("{} ask --set {REHEARSAL} - 2> {}", belay.display(), notes.display());
    let mut terminal = Terminal::start(&shell, &["-c", &command], 120, 24)?;
    terminal.press("calculate 17*23\n\x04")?;
    assert!(terminal.ended().await?.success(), "{:#?}", terminal.screen());
    assert!(!std::fs::read_to_string(&notes)?.contains("Ctrl-D"));

    // The test holds both ends of the pipe, so that it stays open and silent.
    let pipe = home.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status()?.success());
    for (question, remark) in [("", "the message is read from it"), ("'calculate 17*23'", "add `< /dev/null`")] {
        let mut held = std::fs::File::options().read(true).write(true).open(&pipe)?;
        let command = format!("{} ask --set {REHEARSAL} {question} < {}", belay.display(), pipe.display());
        let mut terminal = Terminal::start(&shell, &["-c", &command], 120, 24)?;
        terminal.shows(remark).await?;
        held.write_all(b"calculate 17*23\n")?;
        drop(held);
        assert!(terminal.ended().await?.success(), "{:#?}", terminal.screen());
        assert!(terminal.screen().concat().contains("391"), "{:#?}", terminal.screen());
    }
    Ok(())
}

#[tokio::test]
async fn a_wait_for_a_frozen_routine_names_the_freeze_and_ends_after_the_thaw() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    for name in ["quiet", "sum"] {
        let file = home.path().join(format!("{name}.toml"));
        let action = "mode = \"full_job\"\ntask = \"calculate 6*7\"";
        std::fs::write(&file, format!("name = \"{name}\"\n[trigger]\nkind = \"manual\"\n[action]\n{action}\n"))?;
        let created = home.run(&["routines", "create", "--file", file.to_str().unwrap_or_default()], "").await?;
        assert!(created.status.success(), "{created:?}");
    }
    assert!(home.run(&["freeze", "--reason", "a look"], "").await?.status.success());
    let fire =
        |args: &[&str]| home.command(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    // It has begun before the other, whose note comes after the same time.
    let quiet = fire(&["routines", "fire", "quiet", "--wait", "--json"])?;
    let mut waits = fire(&["routines", "fire", "sum", "--wait"])?;
    let mut told = BufReader::new(waits.stderr.take().context("stderr")?).lines();
    let told = timeout(PATIENCE, told.next_line()).await.context("nothing is told")??.unwrap_or_default();
    assert!(told.starts_with("belay: the run of sum waits for a thaw: everything is frozen since "), "{told}");
    assert!(told.contains("(a look); an operator ends it by `belay thaw`, or `/thaw` in a chat;"), "{told}");
    assert!(home.run(&["thaw"], "").await?.status.success());
    let ended = timeout(PATIENCE, waits.wait_with_output()).await.context("it does not end")??;
    assert!(ended.status.success() && String::from_utf8_lossy(&ended.stdout).contains("42"), "{ended:?}");
    let ended = timeout(PATIENCE, quiet.wait_with_output()).await.context("it does not end")??;
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_fired_routine_is_waited_for_and_its_ending_is_the_exit_code() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    for (name, action, code, answer) in [
        ("sum", "mode = \"lightweight\"\nprompt = \"calculate 6*7\"\nuse_tools = true", 0, "42"),
        ("fault", "mode = \"lightweight\"\nprompt = \"rehearse error auth\"", 1, ""),
        ("work", "mode = \"full_job\"\ntask = \"calculate 6*7\"", 0, "42"),
    ] {
        let file = home.path().join(format!("{name}.toml"));
        std::fs::write(&file, format!("name = \"{name}\"\n[trigger]\nkind = \"manual\"\n[action]\n{action}\n"))?;
        let file = file.to_str().unwrap_or_default();
        let created = home.run(&["routines", "create", "--file", file], "").await?;
        assert!(created.status.success(), "{created:?}");
        let fired = home.run(&["routines", "fire", name, "--wait"], "").await?;
        assert_eq!(fired.status.code(), Some(code), "{name}: {fired:?}");
        assert!(fired.stdout.contains(answer), "{name}: {fired:?}");
        assert_eq!(fired.stdout.is_empty(), code != 0, "{name}: {fired:?}");
        assert_eq!(fired.stderr.is_empty(), code == 0, "{name}: {fired:?}");
    }
    let fired = home.run(&["routines", "fire", "work", "--wait", "--json"], "").await?;
    let job: serde_json::Value = serde_json::from_str(&fired.stdout)?;
    assert!(job["result"].as_str().is_some_and(|result| result.contains("42")), "one value, that of the end: {job}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_terminal_opens_the_manual_page_and_a_pipe_gets_its_source() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let viewer = folder.path().join("man");
    let with_path = |path: &str| Home::new().env("PATH", path);
    let usual = format!("{}:/usr/bin:/bin", folder.path().display());
    let say = |script: &str| -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(&viewer, format!("#!/bin/sh\n{script}\n"))?;
        Ok(std::fs::set_permissions(&viewer, std::fs::Permissions::from_mode(0o755))?)
    };
    say("[ \"$*\" = '-l -' ] && grep -c '^.TH belay 1' && echo a page")?;
    let mut terminal = Terminal::start(&with_path(&usual), &["man"], 80, 24)?;
    assert!(terminal.ended().await?.success());
    assert_eq!(terminal.screen(), ["1", "a page"]);
    say("exit 1")?;
    let mut terminal = Terminal::start(&with_path(&usual), &["man"], 80, 200)?;
    assert!(terminal.ended().await?.success());
    let help = terminal.screen();
    assert!(help.iter().any(|line| line.starts_with("Usage: belay")), "without a viewer, the help: {help:#?}");
    let piped = with_path(&usual).run(&["man"], "").await?;
    assert!(piped.stdout.contains(".TH belay 1"), "{piped:?}");
    Ok(())
}

#[tokio::test]
async fn other_words_for_the_version_and_mistyped_commands_are_answered() -> Result<()> {
    let home = Home::new();
    let version = home.run(&["--version"], "").await?;
    for words in [&["version"][..], &["-v"]] {
        let output = home.run(words, "").await?;
        assert_eq!((output.status.code(), &output.stdout), (Some(0), &version.stdout), "{output:?}");
    }
    let mistyped = home.run(&["statsu"], "").await?;
    assert_eq!(mistyped.status.code(), Some(2));
    assert!(
        mistyped.stderr.contains("tip: some similar subcommands exist") && mistyped.stderr.contains("'status'"),
        "{mistyped:?}"
    );
    Ok(())
}
