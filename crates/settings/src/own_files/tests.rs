#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;

use super::*;

/// A home with a data directory, settings, a token file, and a workspace `work` that contains none of them.
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
        let home = self.dir.path().to_str().unwrap();
        let env = Environment::from([("PATH", "/usr/bin:/bin"), ("HOME", home)]);
        own_files_problems(&self.settings, &env, &self.paths).iter().map(ToString::to_string).collect()
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
fn a_separate_workspace_is_accepted_also_in_the_data_directory() {
    let mut home = home();
    assert_eq!(home.problems(), Vec::<String>::new());
    home.settings.tools.workspace = None; // the default: in the data directory
    assert_eq!(home.problems(), Vec::<String>::new());
    home.settings.tools.workspace = Some(home.at("work/not/there/yet"));
    assert_eq!(home.problems(), Vec::<String>::new());
}

#[test]
fn a_workspace_that_contains_own_files_is_refused_with_each_path() {
    let mut home = home();
    home.settings.tools.workspace = Some(home.dir.path().to_owned());
    home.paths.named = vec![home.at("project/belay.toml")]; // does not exist yet: a command could make it
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
fn the_password_file_of_the_database_is_an_own_file() {
    let mut home = home();
    let file = home.at("work/note.txt");
    assert_eq!(home.problems(), Vec::<String>::new());
    home.settings.store.url = Some(format!("postgres://belay@db.example/belay?passfile={}", file.display()));
    home.names(&["passfile of store.url", "work/note.txt"]);
}

#[test]
fn links_and_other_names_are_resolved() {
    let mut home = home();
    // The workspace by a link.
    symlink(home.dir.path(), home.at("work/../by-link")).unwrap();
    home.settings.tools.workspace = Some(home.at("by-link/keys"));
    home.names(&["gateway.token_file"]);
    // A settings file that is reached through a link in the workspace: a command could change the link.
    home.settings.tools.workspace = Some(home.at("work"));
    symlink("../../config", home.at("work/sub/config")).unwrap();
    home.paths.named = vec![home.at("work/sub/config/belay.toml")];
    home.names(&["work/sub/config/belay.toml"]);
    home.paths.named.clear();
    assert_eq!(home.problems(), Vec::<String>::new());
    // A link in the workspace to one of Belay's files is allowed: neither file tools nor commands follow it out.
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
    // A server outside the sandbox starts in the workspace, so its words are resolved there.
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
fn a_hook_may_not_name_a_path_in_the_workspace_even_a_missing_one() {
    let mut home = home();
    let work = home.at("work");
    let work = work.to_str().unwrap();
    symlink(work, home.at("by-link")).unwrap();
    let by_link = home.at("by-link/x.sh");
    for command in [
        &["sh", &format!("{work}/missing.sh")][..],
        &[&format!("{work}/missing")],
        &["run-parts", &format!("{work}/sub")],
        &["run-parts", work],
        &["make", "-C", work],
        &["make", &format!("-C{work}")],
        &["make", &format!("--directory={work}/not/yet")],
        &["java", "-cp", &format!("/usr/share/a.jar:{work}/b.jar")],
        &["gcc", &format!("@{work}/options")],
        &["node", &format!("--import=file://{work}/x.mjs")],
        &["sh", "-c", &format!(". {work}/x.sh")],
        &["sh", "-c", &format!("cat>{work}/out;true")],
        &["sh", "-c", ". ~/by-link/x.sh"],
        &["sh", "-c", "exec \"$HOME\"/by-link/x"],
        &["sh", by_link.to_str().unwrap()],
    ] {
        home.hook(command);
        assert_eq!(home.problems().len(), 1, "{command:?}: {:?}", home.problems());
        home.names(&["something that is named by the hook \"h\", which runs outside the sandbox"]);
    }
    for command in [
        &["jq", "."][..],
        &["sh", "-c", "jq . >> ~/log"],
        &["sh", "-c", &format!("cat {work}-other/file /mnt{work}/file")],
        &["curl", "https://example.org/work/sub"],
        &["logger", "-t", "work"],
    ] {
        home.hook(command);
        assert_eq!(home.problems(), Vec::<String>::new(), "{command:?}");
    }
    home.hook(&["python3", "-m", "report"]);
    for (name, refused) in [("PYTHONPATH", true), ("PATH", true), ("REPORTS", false)] {
        home.settings.hooks.0[0].env = [(name.to_owned(), format!("/usr/lib:{work}/lib"))].into();
        assert_eq!(!home.problems().is_empty(), refused, "{name}");
    }
}

#[test]
fn the_text_of_a_command_may_quote_a_workspace_whose_name_has_spaces() {
    let mut home = home();
    let work = home.at("my work");
    home.settings.tools.workspace = Some(work.clone());
    for quoted in [format!("'{}'/x.sh", work.display()), work.to_str().unwrap().replace(' ', "\\ ")] {
        home.hook(&["sh", "-c", &format!(". {quoted}")]);
        assert_eq!(home.problems().len(), 1, "{quoted}: {:?}", home.problems());
    }
}

#[test]
fn hooks_do_not_start_in_the_workspace() {
    let mut home = home();
    home.settings.tools.workspace = Some(std::env::current_dir().unwrap());
    assert_eq!(home.problems(), Vec::<String>::new());
    home.hook(&["true"]);
    home.names(&["the directory that Belay was started in", "start Belay in another directory"]);
}

#[test]
fn programs_are_not_looked_for_in_the_workspace() {
    let home = home();
    for (directory, refused) in [("work/bin", true), ("work", true), ("bin", false)] {
        let path = format!("{}:/usr/bin", home.at(directory).display());
        let found = own_files_problems(&home.settings, &Environment::from([("PATH", path.as_str())]), &home.paths);
        assert_eq!(found.len(), usize::from(refused), "{directory}: {found:?}");
        assert!(found.iter().all(|problem| problem.to_string().contains("a directory of PATH")), "{found:?}");
    }
}

#[test]
fn a_server_outside_the_sandbox_names_nothing_in_the_workspace_though_it_starts_there() {
    let mut home = home();
    let work = home.at("work");
    let work = work.to_str().unwrap();
    for (command, refused) in [
        (&["python3", "server.py"][..], true), // does not exist yet
        (&["python3", "./server"], true),
        (&["python3", "sub"], true),
        (&["python3", "sub/../server.py"], true),
        (&["./server"], true),
        (&["bin/server"], true),
        (&["sh", "-c", "exec python3 server.py"], true),
        (&["node", &format!("{work}/dist/index")], true),
        (&["npx", "-y", "@modelcontextprotocol/server-github"], false),
        (&["docker", "run", "-i", "--rm", "mcp/github"], false),
        (&["npx", "mcp-remote", "https://example.org/mcp", "--header", "Accept: application/json"], false),
        (&["server", "--root", "/srv/elsewhere"], false),
    ] {
        let server = serde_json::json!({ "command": command, "sandbox": false });
        home.settings.tools.mcp.insert("m".into(), serde_json::from_value(server).unwrap());
        assert_eq!(!home.problems().is_empty(), refused, "{command:?}: {:?}", home.problems());
    }
    let server = serde_json::json!({ "command": ["s"], "env": { "NODE_PATH": "./modules" }, "sandbox": false });
    home.settings.tools.mcp.insert("m".into(), serde_json::from_value(server).unwrap());
    home.names(&["something that is named by the MCP server \"m\""]);
}

#[test]
fn directories_shown_to_commands_contain_no_private_files() {
    let mut home = home();
    for (shown, refused) in [
        ("hook.sh", false),
        ("", false), // the whole directory: Belay's own files in it are deeper and stay hidden
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

#[test]
fn a_directory_of_the_kernel_is_no_workspace() {
    let mut home = home();
    let link = home.at("link");
    symlink("/proc/self", &link).unwrap();
    for path in [Path::new("/proc"), Path::new("/proc/self"), Path::new("/sys/kernel"), Path::new("/dev"), &link] {
        home.settings.tools.workspace = Some(path.to_owned());
        let problems = home.problems();
        let [problem] = &problems[..] else { panic!("{path:?}: {problems:#?}") };
        assert!(problem.starts_with("tools.workspace: ") && problem.contains("where the kernel shows"), "{problem}");
    }
    home.settings.tools.workspace = Some("/dev/shm/workspace".into());
    assert_eq!(home.problems(), Vec::<String>::new(), "files in memory are files");
}
