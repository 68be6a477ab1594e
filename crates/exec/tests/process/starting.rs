//! How programs are started, what they get, and when they are not.

use std::path::Path;

use belay_exec::{Exit, Launch, StartError, Stdin};
use belay_protocol::{Generation, RunId, RunProcesses};
use tokio::io::AsyncWriteExt;

use crate::support::{launch, output, processes, sh, start, until};

#[tokio::test]
async fn a_program_ends_with_its_code_or_its_signal() {
    let processes = processes();
    for (script, exit) in [
        ("exit 0", Exit::Code(0)),
        ("exit 7", Exit::Code(7)),
        ("kill -9 $$", Exit::Signal(9)),
        ("kill -15 $$", Exit::Signal(15)),
    ] {
        let mut running = start(&processes, sh(script)).await;
        assert_eq!(running.wait().await, exit, "{script}");
        assert_eq!(running.wait().await, exit, "{script}, asked again");
        running.end().await;
        assert_eq!(running.wait().await, exit, "{script}, asked after the end");
    }
}

#[tokio::test]
async fn a_program_reads_what_it_is_given() {
    let processes = processes();
    let large = "x".repeat(1024 * 1024);
    for (stdin, expected) in
        [(Stdin::Null, "0"), (Stdin::Bytes(b"abc".to_vec()), "3"), (Stdin::Bytes(large.into_bytes()), "1048576")]
    {
        let mut running = start(&processes, Launch { stdin, ..sh("wc -c") }).await;
        assert_eq!(output(&mut running).await.0.trim(), expected);
        assert_eq!(running.wait().await, Exit::Code(0));
    }
    let mut running = start(&processes, Launch { stdin: Stdin::Piped, ..launch("cat", &[]) }).await;
    let mut stdin = running.take_stdin().unwrap();
    stdin.write_all(b"through a pipe").await.unwrap();
    drop(stdin);
    assert_eq!(output(&mut running).await.0, "through a pipe");
}

#[tokio::test]
async fn nothing_of_the_environment_is_inherited_but_what_is_given_and_the_mark() {
    let processes = processes();
    let mut running = start(&processes, launch("env", &[])).await;
    let (out, _) = output(&mut running).await;
    let names: Vec<_> = out.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    assert_eq!(names, ["BELAY_RUN", "PATH"]);
}

#[tokio::test]
async fn output_that_nobody_takes_blocks_nothing() {
    let processes = processes();
    let mut running = start(&processes, sh("head -c 4000000 /dev/zero; head -c 4000000 /dev/zero >&2; exit 3")).await;
    assert_eq!(running.wait().await, Exit::Code(3));
}

#[tokio::test]
async fn what_cannot_be_started_says_what_is_missing() {
    let processes = processes();
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "no program").unwrap();
    let in_no_directory = Launch { directory: dir.path().join("none"), ..launch("true", &[]) };
    for (launch, words) in [
        (launch("no-such-program", &[]), "there is no program no-such-program"),
        (launch(plain.to_str().unwrap(), &[]), "may not be executed"),
        (in_no_directory, "does not exist or is not a directory"),
    ] {
        let refused = processes.start(launch, RunId::new(), &Generation::default(), "a test").await.unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
    }
    assert_eq!(processes.counts(), belay_exec::Counts::default());
}

#[tokio::test]
async fn nothing_is_started_for_a_run_that_was_stopped() {
    let processes = processes();
    let (run, generation) = (RunId::new(), Generation::default());
    let before = generation.renewed();
    let mut running = processes.start(sh("sleep 100"), run, &before, "a sleeper").await.unwrap();
    assert_eq!(processes.alive(run).iter().map(|one| one.pid).collect::<Vec<_>>(), [Some(running.pid())]);
    processes.end(run).await;
    assert!(processes.alive(run).is_empty());
    assert_eq!(running.wait().await, Exit::Ended);
    assert!(!before.is_current(), "the stop ends the generation");
    let refused = processes.start(sh("sleep 100"), run, &before, "late").await.unwrap_err();
    assert!(matches!(refused, StartError::Stopped), "{refused}");
    let mut again = processes.start(sh("exit 0"), run, &generation.renewed(), "the next life").await.unwrap();
    assert_eq!(again.wait().await, Exit::Code(0));
}

#[tokio::test]
async fn after_a_shutdown_nothing_is_alive_and_nothing_starts() {
    let processes = processes();
    let mut kept = Vec::new();
    for _ in 0..4 {
        kept.push(start(&processes, sh("sleep 100")).await);
    }
    processes.shutdown().await;
    assert!(kept.iter().all(|running| !Path::new(&format!("/proc/{}", running.pid())).exists()));
    let refused = processes.start(sh("true"), RunId::new(), &Generation::default(), "late").await.unwrap_err();
    assert!(matches!(refused, StartError::ShuttingDown), "{refused}");
}

#[tokio::test]
async fn what_is_dropped_is_ended() {
    let processes = processes();
    let running = start(&processes, sh("sleep 100 & wait")).await;
    let pid = running.pid();
    drop(running);
    until("the end", || processes.counts().alive == 0).await;
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}
