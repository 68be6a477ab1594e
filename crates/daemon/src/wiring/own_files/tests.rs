#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;

use super::*;

/// A home with a data directory, settings, a token file, and a workspace `work` that holds none of them.
struct Home {
    dir: tempfile::TempDir,
    settings: Settings,
    paths: Paths,
}

fn home() -> Home {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    for place in ["data", "config", "keys", "work/sub", "run"] {
        std::fs::create_dir_all(at(place)).unwrap();
    }
    for file in ["data/belay.db", "data/secret.key", "config/belay.toml", "keys/token", "work/note.txt", "hook.sh"] {
        std::fs::write(at(file), "x").unwrap();
    }
    let mut settings = Settings::default();
    settings.tools.workspace = Some(at("work"));
    settings.gateway.token_file = at("keys/token").to_string_lossy().into_owned();
    let paths = Paths {
        settings: vec![at("config/belay.toml")],
        named: Vec::new(),
        data: at("data"),
        control_socket: at("run/control.sock"),
    };
    Home { settings, paths, dir }
}

impl Home {
    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn problems(&self) -> Vec<String> {
        let env = Environment::from([("PATH", "/usr/bin:/bin")]);
        shared(&self.settings, &env, &self.paths).iter().map(ToString::to_string).collect()
    }

    fn names(&self, parts: &[&str]) {
        let problems = self.problems();
        assert!(!problems.is_empty(), "nothing was refused; wanted {parts:?}");
        for part in parts {
            assert!(problems.iter().any(|problem| problem.contains(part)), "{part}: {problems:#?}");
        }
    }

    fn hook(&mut self, command: &[&str]) {
        let hook = serde_json::json!({ "name": "h", "on": "agent_end", "command": command });
        self.settings.hooks.0 = vec![serde_json::from_value(hook).unwrap()];
    }
}

#[test]
fn a_workspace_of_its_own_is_taken_also_in_the_data_directory() {
    let mut home = home();
    assert_eq!(home.problems(), Vec::<String>::new());
    home.settings.tools.workspace = None; // the default: in the data directory
    assert_eq!(home.problems(), Vec::<String>::new());
    home.settings.tools.workspace = Some(home.at("work/not/there/yet"));
    assert_eq!(home.problems(), Vec::<String>::new());
}

#[test]
fn a_workspace_that_contains_anything_of_ours_is_refused_with_each_path() {
    let mut home = home();
    home.settings.tools.workspace = Some(home.dir.path().to_owned());
    home.paths.named = vec![home.at("project/belay.toml")]; // not there yet: a command could make it
    home.names(&["the data directory", "the database", "the key of the vault", "the control socket"]);
    home.names(&["config/belay.toml", "project/belay.toml", "gateway.token_file", "keys/token"]);
    home.names(&["set tools.workspace to a directory that holds nothing of Belay's"]);
    for (workspace, part) in [
        ("data", "the database"),
        ("data/outputs", "kept outputs"),
        ("run", "the control socket"),
        ("config", "a settings file"),
        ("keys", "gateway.token_file"),
    ] {
        home.settings.tools.workspace = Some(home.at(workspace));
        home.names(&[part]);
    }
}

#[test]
fn links_and_other_names_are_seen_through() {
    let mut home = home();
    // The workspace by a link.
    symlink(home.dir.path(), home.at("work/../by-link")).unwrap();
    home.settings.tools.workspace = Some(home.at("by-link/keys"));
    home.names(&["gateway.token_file"]);
    // A settings file that is reached through a link in the workspace, which a command could turn elsewhere.
    home.settings.tools.workspace = Some(home.at("work"));
    symlink("../../config", home.at("work/sub/config")).unwrap();
    home.paths.named = vec![home.at("work/sub/config/belay.toml")];
    home.names(&["work/sub/config/belay.toml"]);
    home.paths.named.clear();
    assert_eq!(home.problems(), Vec::<String>::new());
    // A link in the workspace to a file of ours is none of it: neither file tools nor commands follow it out.
    symlink(home.at("keys/token"), home.at("work/token")).unwrap();
    assert_eq!(home.problems(), Vec::<String>::new());
    // A hard link is the file itself.
    std::fs::hard_link(home.at("keys/token"), home.at("work/sub/hard")).unwrap();
    home.names(&["gateway.token_file"]);
}

#[test]
fn what_runs_outside_the_sandbox_does_not_lie_in_the_workspace() {
    let mut home = home();
    std::fs::write(home.at("work/hook.py"), "").unwrap();
    let (inside, outside) = (home.at("work/hook.py"), home.at("hook.sh"));
    let (inside, outside) = (inside.to_str().unwrap(), outside.to_str().unwrap());
    for (command, refused) in [
        (vec![outside], false),
        (vec!["sh", outside], false),
        (vec!["sh", "-c", "echo"], false),
        (vec![inside], true),
        (vec!["python3", inside], true),
        (vec!["node", &format!("--require={inside}"), outside], true),
    ] {
        home.hook(&command);
        assert_eq!(!home.problems().is_empty(), refused, "{command:?}: {:?}", home.problems());
    }
    home.settings.hooks.0.clear();
    // A server outside the sandbox starts in the workspace, so that is where its words are looked for.
    for (sandbox, refused) in [(true, false), (false, true)] {
        let server = serde_json::json!({ "command": ["python3", "hook.py"], "sandbox": sandbox });
        home.settings.tools.mcp.insert("m".into(), serde_json::from_value(server).unwrap());
        assert_eq!(!home.problems().is_empty(), refused);
    }
    home.settings.tools.mcp.clear();
    let audit = serde_json::json!({ "name": "a", "audit": { "file": home.at("work/audit.jsonl") } });
    home.settings.hooks.0 = vec![serde_json::from_value(audit).unwrap()];
    home.names(&["the audit file of the hook \"a\""]);
}

#[test]
fn what_is_shown_to_commands_shows_nothing_of_ours() {
    let mut home = home();
    for (shown, refused) in [
        ("hook.sh", false),
        ("", false), // all of it: what is ours lies deeper and stays hidden
        ("data", false),
        ("data/workspace", true),
        ("data/secret.key", true),
        ("data/outputs", true),
        ("config/belay.toml", true),
        ("run/control.sock", true),
        ("keys", false),
    ] {
        home.settings.tools.sandbox.show = vec![home.at(shown)];
        let problems = home.problems();
        assert_eq!(!problems.is_empty(), refused, "{shown}: {problems:?}");
        assert!(problems.iter().all(|problem| problem.starts_with("tools.sandbox.show: ")), "{problems:?}");
    }
}
