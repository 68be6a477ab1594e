#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use belay_protocol::{Tool, ToolFailure};
use serde_json::json;

use super::*;
use crate::context::config::SkillEntry;
use crate::testing::{call, failure};

/// A workspace and a directory of `skills.dirs`.
struct Directories {
    workspace: tempfile::TempDir,
    dir: tempfile::TempDir,
}

impl Directories {
    fn new() -> Self {
        Self { workspace: tempfile::tempdir().unwrap(), dir: tempfile::tempdir().unwrap() }
    }

    fn files(&self) -> Arc<Workspace> {
        Arc::new(Workspace::open(self.workspace.path()).unwrap())
    }

    fn library(&self, config: SkillsConfig) -> Library {
        let config = config.with_dirs(vec![self.dir.path().to_owned()]);
        Library::new(&config, &CommandsConfig::default(), SkillNeeds::default())
    }

    fn scan(&self) -> Arc<Skills> {
        self.library(SkillsConfig::default()).scan(&self.files())
    }
}

fn skill(dir: &Path, folder: &str, name: &str, description: &str) {
    let folder = dir.join(folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("SKILL.md"), format!("---\nname: {name}\ndescription: {description}\n---\nDo it.\n"))
        .unwrap();
}

fn names(skills: &Skills) -> Vec<&str> {
    skills.list.iter().map(|skill| &*skill.name).collect()
}

fn why<'a>(skills: &'a Skills, what: &str) -> &'a str {
    let found = skills.skipped.iter().find(|skipped| skipped.what.ends_with(what));
    &found.unwrap_or_else(|| panic!("{what} in {:?}", skills.skipped)).why
}

#[test]
fn of_two_skills_with_one_name_the_first_directory_wins() {
    let directories = Directories::new();
    let (workspace, dir) = (directories.workspace.path(), directories.dir.path());
    skill(dir, "weather", "weather", "the operator's");
    skill(dir, "taxes", "taxes", "the operator's");
    skill(workspace, ".agents/skills/weather", "weather", "the agents'");
    skill(workspace, ".agents/skills/notes", "notes", "the agents'");
    skill(workspace, "skills/weather", "weather", "the workspace's");
    let skills = directories.scan();
    let seen: Vec<_> =
        skills.list.iter().map(|skill| (&*skill.name, &*skill.description, skill.place.clone())).collect();
    let inside = |path: &str| SkillLocation::Workspace(path.to_owned());
    assert_eq!(
        seen,
        [
            ("weather", "the workspace's", inside("skills/weather/SKILL.md")),
            ("notes", "the agents'", inside(".agents/skills/notes/SKILL.md")),
            ("taxes", "the operator's", SkillLocation::Elsewhere),
        ]
    );
    assert_eq!(skills.skipped.len(), 2);
    assert!(why(&skills, "/weather/SKILL.md").contains("called weather too"));
}

#[test]
fn broken_skills_are_skipped_with_the_reason() {
    let directories = Directories::new();
    let untrusted = tempfile::tempdir().unwrap();
    skill(untrusted.path(), "stolen", "stolen", "hush");
    let at = |name: &str| directories.workspace.path().join("skills").join(name);
    let folder = |name: &str| {
        fs::create_dir_all(at(name)).unwrap();
        at(name).join("SKILL.md")
    };
    skill(directories.workspace.path(), "skills/good", "good", "d");
    symlink("good", at("same")).unwrap();
    symlink(untrusted.path().join("stolen"), at("escape")).unwrap();
    symlink(untrusted.path().join("stolen/SKILL.md"), folder("escape-file")).unwrap();
    fs::create_dir_all(folder("directory")).unwrap();
    let fifo = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, folder("fifo"), rustix::fs::FileType::Fifo, fifo, 0).unwrap();
    fs::File::create(folder("huge")).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
    fs::write(folder("binary"), b"---\0").unwrap();
    fs::write(folder("headless"), "# No head").unwrap();
    fs::write(folder("escape\u{1b}"), "---\nname: a\ndescription: b\n---\n").unwrap();
    fs::write(at("a-file"), "no folder").unwrap();
    symlink("../a-file", at("good/link-to-a-file")).unwrap();
    let skills = directories.scan();
    assert_eq!(names(&skills), ["good"]);
    for (what, expected) in [
        ("skills/same/SKILL.md", "called good too"),
        ("skills/escape", "leads out of the workspace"),
        ("skills/escape-file/SKILL.md", "leads out of the workspace"),
        ("skills/directory/SKILL.md", "is a directory"),
        ("skills/fifo/SKILL.md", "is a pipe"),
        ("skills/huge/SKILL.md", "262145 bytes"),
        ("skills/binary/SKILL.md", "zero bytes"),
        ("skills/headless/SKILL.md", "does not begin with a head"),
        ("skills/escape\\u{1b}", "characters that cannot be seen"),
    ] {
        assert!(why(&skills, what).contains(expected), "{what}: {}", why(&skills, what));
    }
    assert_eq!(skills.skipped.len(), 9, "{:?}", skills.skipped);
    assert!(!format!("{skills:?}").contains("hush"));
}

#[test]
fn outside_directories_are_skipped_and_missing_ones_ignored() {
    let directories = Directories::new();
    let untrusted = tempfile::tempdir().unwrap();
    skill(untrusted.path(), "stolen", "stolen", "d");
    assert_eq!(*directories.scan(), Skills { max_prompt_chars: 18_000, ..Skills::default() });
    symlink(untrusted.path(), directories.workspace.path().join("skills")).unwrap();
    let gone = directories.library(SkillsConfig::default());
    drop(directories.dir);
    let skills = gone.scan(&Arc::new(Workspace::open(directories.workspace.path()).unwrap()));
    assert_eq!(names(&skills), Vec::<&str>::new());
    assert!(skills.skipped[0].why.contains("skills.dirs"), "{:?}", skills.skipped);
    assert!(why(&skills, "skills").contains("leads out of the workspace"));
}

#[test]
fn folders_are_searched_six_deep_and_not_below_a_skill() {
    let directories = Directories::new();
    let workspace = directories.workspace.path();
    skill(workspace, "skills/1/2/3/4/5/6", "six", "d");
    skill(workspace, "skills/1/2/3/4/5/x/7", "seven", "d");
    skill(workspace, "skills/1/2/3/4/5/6/below", "below", "d");
    skill(workspace, "skills/.hidden", "hidden", "d");
    symlink("..", workspace.join("skills/1/loop")).unwrap();
    assert_eq!(names(&directories.scan()), ["six"]);
}

#[test]
fn there_are_at_most_so_many() {
    let directories = Directories::new();
    for n in 0..MAX_SKILLS + 3 {
        skill(directories.workspace.path(), &format!("skills/s{n:03}"), &format!("s{n:03}"), "d");
    }
    let skills = directories.scan();
    assert_eq!((skills.list.len(), skills.skipped.len()), (MAX_SKILLS, 3));
    assert!(skills.skipped[0].why.contains("there are 150 skills before it"));
}

#[test]
fn only_changed_skills_are_read_again() {
    let directories = Directories::new();
    skill(directories.workspace.path(), "skills/a", "a", "first");
    let (library, files) = (directories.library(SkillsConfig::default()), directories.files());
    assert_eq!(library.known().list.len(), 0);
    let first = library.scan(&files);
    assert!(Arc::ptr_eq(&first, &library.scan(&files)) && Arc::ptr_eq(&first, &library.known()));
    skill(directories.workspace.path(), "skills/a", "a", "another");
    let second = library.scan(&files);
    assert_eq!(second.list[0].description, "another");
    fs::remove_dir_all(directories.workspace.path().join("skills/a")).unwrap();
    assert_eq!(library.scan(&files).list.len(), 0);
}

#[test]
fn nothing_is_searched_when_skills_are_disabled() {
    let directories = Directories::new();
    skill(directories.workspace.path(), "skills/a", "a", "d");
    let library = directories.library(SkillsConfig { allow: Some(Vec::new()), ..SkillsConfig::default() });
    assert_eq!(library.scan(&directories.files()).list.len(), 0);
    assert!(!library.reaches_out());
}

#[test]
fn a_skill_declares_its_users_and_the_settings_its_variables() {
    let directories = Directories::new();
    let folder = directories.workspace.path().join("skills/a");
    fs::create_dir_all(&folder).unwrap();
    let head = "---\nname: a\ndescription: d\nuser-invocable: false\ndisable-model-invocation: true\n---\n";
    fs::write(folder.join("SKILL.md"), head).unwrap();
    let entry = SkillEntry { env: BTreeMap::from([("CITY".into(), "Bonn".into())]), ..SkillEntry::default() };
    let config = SkillsConfig { entries: BTreeMap::from([("a".to_owned(), entry)]), ..SkillsConfig::default() };
    let skills = directories.library(config).scan(&directories.files());
    let a = &skills.list[0];
    assert_eq!((a.user_invocable, a.listed, &*a.variables[0].name), (false, false, "CITY"));
}

#[tokio::test]
async fn a_skill_outside_of_the_workspace_is_read_by_its_name_and_nothing_else_is() {
    let directories = Directories::new();
    skill(directories.dir.path(), "weather", "weather", "d");
    skill(directories.workspace.path(), "skills/inside", "inside", "d");
    fs::write(directories.dir.path().join("weather/units.md"), "metric").unwrap();
    fs::write(directories.dir.path().join("other.md"), "another's").unwrap();
    symlink("/etc/hostname", directories.dir.path().join("weather/escape")).unwrap();
    let library = Arc::new(directories.library(SkillsConfig::default()));
    library.scan(&directories.files());
    let tool = ReadSkill::new(library);
    let read = async |arguments| call(&tool as &dyn Tool, arguments).await;
    let text = read(json!({"name": "weather"})).await.unwrap();
    let folder = directories.dir.path().canonicalize().unwrap().join("weather");
    assert!(text.starts_with(&format!("[The folder of this skill is {}]\n---\n", folder.display())), "{text}");
    assert!(text.ends_with("Do it.\n"));
    assert!(read(json!({"name": "weather", "path": "units.md"})).await.unwrap().ends_with("\nmetric"));
    for (arguments, expected) in [
        (json!({"name": "nobody"}), "There is no skill"),
        (json!({"name": "inside"}), "read with read_file"),
        (json!({"name": "weather", "path": "../other.md"}), "without \"..\""),
        (json!({"name": "weather", "path": "/etc/hostname"}), "There is no"),
        (json!({"name": "weather", "path": "escape"}), "leads out of"),
        (json!({"name": "weather", "path": "none.md"}), "There is no \"none.md\""),
    ] {
        let output: Result<String, ToolFailure> = read(arguments.clone()).await;
        let error = failure(output);
        assert!(error.contains(expected), "{arguments}: {error}");
    }
}
