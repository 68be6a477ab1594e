//! The home directory of commands: empty, private, and not the workspace. So a file that a program loads from the home
//! directory is not loaded from the workspace.

use std::path::Path;

use belay_protocol::ToolFailure;
use belay_tools::config::CommandsConfig;
use belay_tools::sandbox::{Policy, SandboxConfig};
use serde_json::json;

use super::support::{BOTH, Fixture, fixture, fixture_with};

/// Appears in the output of a program, or as a file in its directory, if the program has read a planted file.
const MARK: &str = "belay_mark";

/// A program, with the files that it loads from the home directory.
struct Row {
    argv: &'static [&'static str],
    /// Paths below the home directory, with a content that has no other effect than the mark. `{python}` stands for the
    /// directory of the installed version.
    files: &'static [(&'static str, &'static str)],
    /// The sign in the output that the program has read one of the files.
    mark: &'static str,
}

const fn reads(argv: &'static [&'static str], files: &'static [(&'static str, &'static str)]) -> Row {
    Row { argv, files, mark: MARK }
}

/// A program that loads nothing from the home directory.
const fn plain(argv: &'static [&'static str]) -> Row {
    Row { argv, files: &[], mark: MARK }
}

const ROWS: &[Row] = &[
    reads(&["bash", "-ic", "true"], &[(".bashrc", "echo belay_mark\n")]),
    reads(&["bash", "-lc", "true"], &[(".bash_profile", "echo belay_mark\n")]),
    reads(&["sh", "-lc", "true"], &[(".profile", "echo belay_mark\n")]),
    reads(
        &["git", "config", "--list"],
        &[(".gitconfig", "[belay]\n\tmark = belay_mark\n"), (".config/git/config", "[belay]\n\tmark = belay_mark\n")],
    ),
    reads(
        &["python3", "-c", "pass"],
        &[(".local/lib/{python}/site-packages/usercustomize.py", "print('belay_mark')\n")],
    ),
    reads(
        &["pip3", "config", "list"],
        &[
            (".config/pip/pip.conf", "[global]\nbelay = belay_mark\n"),
            (".pip/pip.conf", "[global]\nbelay = belay_mark\n"),
        ],
    ),
    reads(&["perl", "-d", "-e", "1"], &[(".perldb", "print \"belay_mark\\n\"; parse_options('NonStop=1');\n")]),
    reads(
        &["less", "file"],
        &[(".lesskey", "#env\nLESS = --belay_mark\n"), (".config/lesskey", "#env\nLESS = --belay_mark\n")],
    ),
    reads(
        &["curl", "-s", "file:///etc/passwd"],
        &[(".curlrc", "write-out = \"belay_mark\"\n"), (".config/curlrc", "write-out = \"belay_mark\"\n")],
    ),
    reads(&["wget", "-q", "http://127.0.0.1:9/"], &[(".wgetrc", "belay_mark = 1\n")]),
    reads(&["vim", "--not-a-term", "-c", "q"], &[(".vimrc", "call writefile([], 'belay_mark')\n")]),
    reads(&["ex", "--not-a-term", "-c", "q"], &[(".exrc", "call writefile([], 'belay_mark')\n")]),
    reads(&["node", "-e", "require('planted')"], &[(".node_modules/planted.js", "console.log('belay_mark')\n")]),
    reads(&["npm", "config", "get", "init-author-name"], &[(".npmrc", "init-author-name=belay_mark\n")]),
    // ssh and some versions of sqlite3 use the home directory of the user database, which the sandbox hides.
    reads(&["ssh", "-G", "host"], &[(".ssh/config", "Host *\n\tUser belay_mark\n")]),
    reads(&["sqlite3", ":memory:", "select 1"], &[(".sqliterc", ".print belay_mark\n")]),
    reads(
        &["gdb", "-batch", "-ex", "quit"],
        &[(".gdbinit", "echo belay_mark\\n\n"), (".config/gdb/gdbinit", "echo belay_mark\\n\n")],
    ),
    reads(&["psql", "service=belay"], &[(".pg_service.conf", "[belay]\nhost=/belay_mark\n"), (".psqlrc", "")]),
    reads(
        &["tmux", "-S", "socket", "start-server", ";", "show-options", "-g", "status-left"],
        &[
            (".tmux.conf", "set -g status-left belay_mark\n"),
            (".config/tmux/tmux.conf", "set -g status-left belay_mark\n"),
        ],
    ),
    reads(&["jq", "-n", "mark"], &[(".jq", "def mark: \"belay_mark\";\n")]),
    reads(&["file", "file"], &[(".magic", "0 string abc belay_mark\n")]),
    reads(
        &["kubectl", "config", "view"],
        &[(".kube/config", "apiVersion: v1\nkind: Config\ncurrent-context: belay_mark\n")],
    ),
    Row { argv: &["gpg", "--list-keys"], files: &[(".gnupg/gpg.conf", "belay_mark\n")], mark: "gpg.conf" },
    Row { argv: &["top", "-bn1"], files: &[(".toprc", "belay_mark\n")], mark: ".toprc" },
    plain(&["grep", "-c", "abc", "file"]),
    plain(&["sed", "-n", "1p", "file"]),
    plain(&["awk", "{ print }", "file"]),
    plain(&["find", ".", "-type", "d"]),
    plain(&["tar", "-cf", "archive.tar", "file"]),
    plain(&["make", "-n"]),
    plain(&["sort", "file"]),
    plain(&["diff", "file", "file"]),
    plain(&["cat", "file"]),
    plain(&["ls", "-l"]),
];

/// Runs a program in the directory `sub` of the workspace. Returns whether it has read a planted file.
async fn has_read(fixture: &Fixture, argv: &[&str], mark: &str) -> (bool, String) {
    let file = fixture.inside("sub").join(MARK);
    drop(std::fs::remove_file(&file)); // of the program before
    let answer = fixture.run(json!({ "argv": argv, "directory": "sub", "timeout_s": 60 })).await;
    let text = match answer {
        Ok(reply) => reply.text,
        Err(ToolFailure::Failed(text) | ToolFailure::Ended(text)) => text,
        Err(other) => panic!("{argv:?}: {other:?}"),
    };
    (file.exists() || text.contains(mark), text)
}

/// The command line that runs a program with the workspace as its home directory.
fn in_workspace<'a>(home: &'a str, argv: &[&'a str]) -> Vec<&'a str> {
    let unset = ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "GIT_CONFIG_GLOBAL"];
    std::iter::once("env")
        .chain(unset.into_iter().flat_map(|name| ["-u", name]))
        .chain([home])
        .chain(argv.iter().copied())
        .collect()
}

#[tokio::test]
async fn no_program_loads_files_of_its_user_from_the_workspace() {
    for policy in BOTH {
        let fixture = fixture(policy);
        let version = fixture.argv(&["python3", "-c", "import sys; print('python%d.%d' % sys.version_info[:2])"]).await;
        let version = version.lines().last().unwrap().to_owned();
        fixture.write("sub/file", "abc\n", 0o644);
        for (path, content) in ROWS.iter().flat_map(|row| row.files) {
            let path = path.replace("{python}", &version);
            std::fs::create_dir_all(fixture.inside(&path).parent().unwrap()).unwrap();
            fixture.write(&path, content, 0o600);
        }
        let root = if policy == Policy::Off { fixture.inside("") } else { "/workspace".into() };
        let home = format!("HOME={}", root.display());
        let (mut read, mut shown) = (Vec::new(), Vec::new());
        for Row { argv, files, mark } in ROWS {
            let config = CommandsConfig::default();
            if !config.path.iter().any(|directory| directory.join(argv[0]).exists()) {
                eprintln!("{} is not installed, and is left out", argv[0]);
                continue;
            }
            let (has_read_file, text) = has_read(&fixture, argv, mark).await;
            if has_read_file {
                read.push(format!("{argv:?}: {text}"));
            }
            if !files.is_empty() {
                let (control, text) = has_read(&fixture, &in_workspace(&home, argv), mark).await;
                if control {
                    shown.push(argv[0]);
                } else {
                    eprintln!("{policy:?}: {argv:?} does not read {files:?} in its home directory: {text}");
                }
            }
        }
        assert!(read.is_empty(), "{policy:?}: {}", read.join("\n"));
        // The others depend on versions.
        for name in ["bash", "sh", "git", "python3"] {
            assert!(
                shown.contains(&name),
                "{policy:?}: the control of {name} did not read its file; these did: {shown:?}"
            );
        }
    }
}

#[tokio::test]
async fn the_home_directory_of_a_command_is_empty_and_private_and_does_not_stay() {
    for policy in [Policy::Off, Policy::Readonly, Policy::WorkspaceWrite, Policy::Full] {
        let fixture = fixture(policy);
        let script =
            "cd; ls -A; stat -c %a .; echo text > left; mkdir -p \"$XDG_CACHE_HOME\"; pwd; env | grep ^XDG_ | sort";
        for _ in 0..2 {
            let text = fixture.argv(&["sh", "-c", script]).await;
            let lines: Vec<_> = text.lines().skip(1).collect();
            let [mode, home, variables @ ..] = &lines[..] else { panic!("{policy:?}: {text}") };
            assert_eq!(*mode, "700", "{policy:?}: {text}");
            let below = ["CACHE_HOME=~/.cache", "CONFIG_HOME=~/.config", "DATA_HOME=~/.local/share", "RUNTIME_DIR=~"];
            let expected: Vec<_> = below.into_iter().chain(["STATE_HOME=~/.local/state"]).collect();
            let found: Vec<_> = variables.iter().map(|line| line.replace("XDG_", "").replace(home, "~")).collect();
            assert_eq!(found, expected, "{policy:?}");
            assert!(!Path::new(home).exists(), "{policy:?}: {home} was left");
            assert!(!fixture.inside("").starts_with(home) && !home.starts_with("/workspace"), "{policy:?}: {home}");
        }
    }
}

#[tokio::test]
async fn a_cache_that_the_settings_name_stays() {
    let environment = [("XDG_CACHE_HOME".to_owned(), "/workspace/.cache".to_owned())].into();
    let config = CommandsConfig { environment, ..CommandsConfig::default() };
    let fixture = fixture_with(SandboxConfig::default(), config);
    fixture.argv(&["sh", "-c", "mkdir \"$XDG_CACHE_HOME\" && echo kept > \"$XDG_CACHE_HOME/file\""]).await;
    assert_eq!(fixture.argv(&["sh", "-c", "cat \"$XDG_CACHE_HOME/file\""]).await, "[exit code 0]\nkept\n");
    assert!(fixture.inside(".cache/file").exists());
}
