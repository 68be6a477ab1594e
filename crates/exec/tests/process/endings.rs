//! How trees end, whatever their processes do.

use std::time::{Duration, Instant};

use belay_exec::{CgroupUse, Exit, Launch, Processes, ProcessesConfig, StartError, Stdin};
use belay_protocol::{Generation, RunId, RunProcesses};
use tokio::task::JoinSet;

use crate::support::{PATIENCE, exists, launch, numbers, output, processes, sh, start, until, with_pids};

/// A misbehaviour: its name, a script, and how many numbers it writes to `$PIDS` before it is what it is.
struct Kind {
    name: &'static str,
    script: &'static str,
    writes: usize,
}

/// `self` is the number of the shell that runs a line, also in the background, where `$$` is not.
const KINDS: &[Kind] = &[
    Kind { name: "sleeper", script: "echo $$ >>$PIDS; sleep 1000", writes: 1 },
    Kind { name: "child", script: "sleep 1000 & echo $$ >>$PIDS; echo $! >>$PIDS; wait", writes: 2 },
    Kind { name: "double fork", script: "(sleep 1000 & echo $! >>$PIDS); echo $$ >>$PIDS; sleep 1000", writes: 2 },
    Kind {
        name: "own session, orphaned",
        script: "setsid -f sh -c 'echo $$ >>$PIDS; exec sleep 1000'; echo $$ >>$PIDS; sleep 1000",
        writes: 2,
    },
    Kind {
        name: "the first process is gone",
        script: "setsid -f sh -c 'echo $$ >>$PIDS; exec sleep 1000'; (sleep 1000 & echo $! >>$PIDS)",
        writes: 2,
    },
    Kind {
        name: "own groups of a shell with jobs",
        script: "set -m; sleep 1000 & echo $! >>$PIDS; sleep 1000 & echo $! >>$PIDS; exit",
        writes: 2,
    },
    Kind {
        name: "ignores TERM",
        script: "trap '' TERM; sleep 1000 & echo $$ >>$PIDS; echo $! >>$PIDS; while :; do wait; done",
        writes: 2,
    },
    Kind {
        name: "orphan that ignores TERM",
        script: "setsid -f sh -c \"trap '' TERM; echo \\$\\$ >>$PIDS; while :; do sleep 1000; done\"",
        writes: 1,
    },
    Kind { name: "stopped", script: "sleep 1000 & echo $$ >>$PIDS; echo $! >>$PIDS; kill -STOP $! $$", writes: 2 },
    Kind {
        name: "storm",
        script: "for i in $(seq 150); do (setsid sleep 1000 & echo $! >>$PIDS); done; sleep 1000",
        writes: 150,
    },
    Kind {
        name: "storm that goes on",
        script: "trap '' TERM; i=0; while [ $i -lt 2000 ]; do i=$((i+1)); (sleep 0.2 &); [ $i = 20 ] && echo $$ >>$PIDS; done",
        writes: 1,
    },
    Kind {
        name: "holds the pipes",
        script: "setsid -f sh -c 'echo $$ >>$PIDS; exec sleep 1000' <&0; exit 0",
        writes: 1,
    },
    Kind {
        name: "clears its environment",
        script: "echo $$ >>$PIDS; env -i PIDS=$PIDS sh -c 'echo $$ >>$PIDS; exec sleep 1000'",
        writes: 2,
    },
];

fn kept(cgroup: CgroupUse) -> Processes {
    Processes::new(ProcessesConfig { cgroup, ..ProcessesConfig::default() }).unwrap()
}

fn patient(term_grace: Duration) -> Processes {
    Processes::new(ProcessesConfig { term_grace, ..ProcessesConfig::default() }).unwrap()
}

/// Starts each kind, waits until it is what it is, and stops its run; all kinds at once.
async fn every_kind_ends(cgroup: CgroupUse) {
    let processes = kept(cgroup);
    let dir = tempfile::tempdir().unwrap();
    let mut neighbour = start(&processes, sh("sleep 1000")).await;
    let ends = KINDS.iter().enumerate().map(|(index, kind)| {
        let (processes, file) = (&processes, dir.path().join(index.to_string()));
        async move {
            let run = RunId::new();
            let launch = with_pids(sh(kind.script), &file);
            let mut running = processes.start(launch, run, &Generation::default(), kind.name).await.unwrap();
            until(kind.name, || numbers(&file).len() >= kind.writes).await;
            processes.end(run).await;
            let left: Vec<u32> = numbers(&file).into_iter().chain([running.pid()]).filter(|pid| exists(*pid)).collect();
            assert!(left.is_empty(), "{}: {left:?}", kind.name);
            assert!(processes.alive(run).is_empty(), "{}", kind.name);
            // Nobody holds them any more.
            output(&mut running).await;
        }
    });
    tokio::time::timeout(PATIENCE * 2, futures_util::future::join_all(ends)).await.unwrap();
    let counts = processes.counts();
    assert_eq!((counts.started, counts.alive), (KINDS.len() as u64 + 1, 1));
    assert!(exists(neighbour.pid()), "another run is none of their business");
    neighbour.end().await;
    assert_eq!(neighbour.wait().await, Exit::Ended);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_tree_ends_without_a_control_group() {
    every_kind_ends(CgroupUse::Off).await;
}

/// Where no group can be made, this is the test above once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_tree_ends_with_a_control_group_where_there_is_one() {
    every_kind_ends(CgroupUse::Auto).await;
}

#[tokio::test]
async fn a_program_that_ends_of_term_has_time_to_do_so_and_is_not_killed() {
    let processes = patient(Duration::from_secs(20));
    let dir = tempfile::tempdir().unwrap();
    let (pids, last) = (dir.path().join("pids"), dir.path().join("last"));
    let script = format!(
        "trap 'sleep 0.2; echo done >{}; exit 0' TERM; echo $$ >>$PIDS; while :; do sleep 0.05; done",
        last.display()
    );
    let mut running = start(&processes, with_pids(sh(&script), &pids)).await;
    until("the trap", || !numbers(&pids).is_empty()).await;
    running.end().await;
    assert_eq!(std::fs::read_to_string(last).unwrap(), "done\n");
    assert_eq!(running.wait().await, Exit::Ended, "it exits with 0, but because of us");
    assert_eq!(processes.counts().killed, 0);
}

#[tokio::test]
async fn a_program_that_ignores_term_is_killed_after_the_grace() {
    let grace = Duration::from_millis(300);
    let processes = patient(grace);
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let mut running =
        start(&processes, with_pids(sh("trap '' TERM; echo $$ >>$PIDS; while :; do sleep 1; done"), &pids)).await;
    until("the trap", || !numbers(&pids).is_empty()).await;
    let begin = Instant::now();
    running.end().await;
    assert!(begin.elapsed() >= grace, "not before its time: {:?}", begin.elapsed());
    assert_eq!(processes.counts().killed, 1);
}

#[tokio::test]
async fn orphans_that_end_by_themselves_leave_no_zombies() {
    let processes = processes();
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let script = "for i in 1 2 3; do setsid -f sh -c 'echo $$ >>$PIDS'; (sh -c 'echo $$ >>$PIDS' &); done; sleep 1000";
    let mut running = start(&processes, with_pids(sh(script), &pids)).await;
    until("the orphans", || numbers(&pids).len() == 6).await;
    until("their reaping", || !numbers(&pids).into_iter().any(exists)).await;
    running.end().await;
}

#[tokio::test]
async fn children_that_were_started_elsewhere_are_left_alone() {
    let processes = processes();
    let mut elsewhere = JoinSet::new();
    for _ in 0..8 {
        elsewhere.spawn(async {
            let mut command = tokio::process::Command::new("sh");
            command.args(["-c", "sleep 0.3; exit 7"]).status().await.unwrap().code()
        });
    }
    for _ in 0..8 {
        start(&processes, sh("sleep 1000 & wait")).await.end().await;
    }
    while let Some(code) = elsewhere.join_next().await {
        assert_eq!(code.unwrap(), Some(7));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_races_with_a_stop_is_refused_or_ended() {
    let processes = std::sync::Arc::new(processes());
    let dir = tempfile::tempdir().unwrap();
    for round in 0..25 {
        let (run, generation) = (RunId::new(), Generation::default());
        let pids = dir.path().join(round.to_string());
        let mut starts = JoinSet::new();
        for _ in 0..8 {
            let (processes, generation) = (processes.clone(), generation.clone());
            let launch = with_pids(sh("echo $$ >>$PIDS; sleep 1000"), &pids);
            starts.spawn(async move { processes.start(launch, run, &generation, "racer").await });
        }
        // Somewhere among them.
        tokio::time::sleep(Duration::from_micros(200 * round)).await;
        generation.end();
        processes.end(run).await;
        while let Some(started) = starts.join_next().await {
            match started.unwrap() {
                Ok(mut running) => assert_eq!(running.wait().await, Exit::Ended),
                Err(refused) => assert!(matches!(refused, StartError::Stopped), "{refused}"),
            }
        }
        until("the end of those that were refused while they started", || processes.counts().alive == 0).await;
        assert!(!numbers(&pids).into_iter().any(exists));
    }
}

#[tokio::test]
async fn several_trees_of_a_run_end_together_and_asking_twice_is_asking_once() {
    let processes = processes();
    let (run, generation) = (RunId::new(), Generation::default());
    let mut trees = Vec::new();
    for _ in 0..4 {
        trees.push(processes.start(launch("cat", &[]), run, &generation, "a server").await.unwrap());
        let piped = Launch { stdin: Stdin::Piped, ..launch("cat", &[]) };
        trees.push(processes.start(piped, run, &generation, "a server that waits").await.unwrap());
    }
    tokio::join!(processes.end(run), processes.end(run));
    assert!(trees.iter().all(|tree| !exists(tree.pid())));
    processes.end(run).await;
    assert_eq!(processes.counts().ended, 8);
}

#[tokio::test]
async fn a_namespace_ends_with_its_init_and_its_program_hears_term_first() {
    // As root, or as a user who may make user namespaces.
    let unshare = |script: &str| Launch {
        isolated: true,
        ..launch("unshare", &["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "sh", "-c", script])
    };
    let dir = tempfile::tempdir().unwrap();
    let (ready, heard) = (dir.path().join("ready"), dir.path().join("heard"));
    let hears = format!(
        "sh -c 'trap \"echo yes >{}; exit 0\" TERM; echo >{}; while :; do sleep 0.05; done' & wait",
        heard.display(),
        ready.display()
    );
    let processes = patient(Duration::from_secs(20));
    let mut running = start(&processes, unshare(&hears)).await;
    until("the namespace", || ready.exists()).await;
    running.end().await;
    assert_eq!(std::fs::read_to_string(&heard).unwrap(), "yes\n");

    assert_eq!(processes.counts().killed, 0, "the namespace ended with its program");

    let processes = patient(Duration::from_millis(300));
    let deaf = dir.path().join("deaf");
    let script = format!(
        "(setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &); echo >{}; exec sleep 1000",
        deaf.display()
    );
    let mut running = start(&processes, unshare(&script)).await;
    until("the second namespace", || deaf.exists()).await;
    running.end().await;
    assert!(!exists(running.pid()));
    assert_eq!(processes.counts().killed, 1);
}

#[tokio::test]
async fn whoever_drops_the_keeper_of_processes_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let processes = processes();
    let script = "setsid -f sh -c 'echo $$ >>$PIDS; exec sleep 1000'; echo $$ >>$PIDS; sleep 1000";
    let _running = start(&processes, with_pids(sh(script), &pids)).await;
    until("the tree", || numbers(&pids).len() == 2).await;
    drop(processes);
    assert!(!numbers(&pids).into_iter().any(exists));
}

#[tokio::test]
async fn a_program_is_started_through_the_launcher_unless_it_is_isolated() {
    // One that tells how it is called, instead of a file of our own that another thread's child may hold open.
    let launcher = "/bin/echo".into();
    // Without control groups, which are entered by a stage before this one.
    let config = ProcessesConfig { launcher: Some(launcher), cgroup: CgroupUse::Off, ..ProcessesConfig::default() };
    let processes = Processes::new(config).unwrap();
    let through = format!("launch --bare --parent {} -- echo hello\n", std::process::id());
    for (isolated, program, expected) in
        [(false, "echo", through.as_str()), (false, "/bin/echo", "hello\n"), (true, "echo", "hello\n")]
    {
        let mut running = start(&processes, Launch { isolated, ..launch(program, &["hello"]) }).await;
        assert_eq!(output(&mut running).await.0, expected);
        assert_eq!(running.wait().await, Exit::Code(0));
    }
    let missing = launch("no-such-program", &[]);
    let refused = processes.start(missing, RunId::new(), &Generation::default(), "a test").await.unwrap_err();
    assert!(matches!(refused, StartError::NotFound { .. }), "{refused}");
}
