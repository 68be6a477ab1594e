//! The documents agree with the code: settings, routes, commands, make targets and links are compared.
//!
//! `docs/reference/settings.md` is written from `config/default.toml`; `BELAY_UPDATE_GOLDEN=1` (`make golden`) refreshes it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use belay_protocol::StopReason;

mod vocabulary;

const SETTINGS_HEAD: &str = "\
# Settings

<!-- Written by tests/documents.rs from config/default.toml. `make golden` refreshes it. -->

Settings are TOML. Later ones in this list win:

1. the built-in defaults, `config/default.toml`, compiled into the program;
2. `/etc/belay/belay.toml`;
3. `$XDG_CONFIG_HOME/belay/belay.toml` (`~/.config/belay/belay.toml`);
4. each `--config FILE`, in their order;
5. environment variables `BELAY__SECTION__KEY`, for example `BELAY__LLM__MODEL`;
6. `--set section.key=value`.

An unknown key is an error that names the nearest known one. Belay reports all mistakes at once, each with its file and line; the
exit code is 78. `belay config show` prints the settings in force and the source of each value; `belay check` checks them without
starting. Some changes take effect by a [reload](../guide/operator.md#change-settings-while-it-runs), the others by a restart.

Secrets are never settings. A setting that ends in `_env` names an environment variable, one that ends in `_file` a file that
holds nothing but the secret. The file wins over the variable, the variable over the systemd credential of the name given
below (`LoadCredential=`).

A default of – means that there is none; the third column says what its absence means. Paths may begin with `~/`.
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ stands in the workspace").to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// One setting of `config/default.toml`.
struct Setting {
    section: String,
    key: String,
    default: Option<String>,
    meaning: String,
}

/// Reads the file as people do: a comment, then the key it is about. `# key = …` is a key without a default.
fn settings() -> Vec<Setting> {
    let (mut found, mut section, mut comment) = (Vec::new(), String::new(), Vec::new());
    for line in read("config/default.toml").lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.to_owned();
            comment.clear();
        } else if let Some((key, value, set)) = assignment(line) {
            found.push(Setting {
                section: section.clone(),
                key: key.to_owned(),
                default: set.then(|| value.to_owned()),
                meaning: std::mem::take(&mut comment).join(" "),
            });
        } else if let Some(text) = line.strip_prefix("# ") {
            comment.push(text.to_owned());
        } else {
            comment.clear();
        }
    }
    assert!(found.len() > 20, "config/default.toml is not read as it is written");
    found
}

fn assignment(line: &str) -> Option<(&str, &str, bool)> {
    let (code, set) = match line.strip_prefix("# ") {
        Some(code) => (code, false),
        None => (line, true),
    };
    let (key, value) = code.split_once(" = ")?;
    let is_key = !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    is_key.then_some((key, value, set))
}

fn settings_page() -> String {
    let mut page = SETTINGS_HEAD.to_owned();
    page.push_str("\n## The settings that most people change\n\n| key | what it is |\n|---|---|\n");
    for (key, meaning) in first_page() {
        let _ = writeln!(page, "| `{key}` | {meaning} |");
    }
    let mut section = None;
    for setting in settings() {
        if section.as_ref() != Some(&setting.section) {
            section = Some(setting.section.clone());
            let heading = match setting.section.as_str() {
                "" => "Outside of all sections".to_owned(),
                name => format!("[{name}]"),
            };
            let _ = write!(page, "\n## {heading}\n\n| key | default | what it is |\n|---|---|---|\n");
        }
        let default = setting.default.map_or("–".to_owned(), |value| format!("`{value}`"));
        let meaning = setting.meaning.replace('|', "\\|");
        let _ = writeln!(page, "| `{}` | {default} | {meaning} |", setting.key);
    }
    page
}

/// The settings that stand at the beginning of the file, each with its meaning.
fn first_page() -> Vec<(String, String)> {
    let text = read("config/default.toml");
    let rows = text.lines().filter_map(|line| line.strip_prefix("#   ")?.split_once("  "));
    let is_key = |key: &str| key.contains('.') && key.chars().all(|c| c.is_ascii_lowercase() || "._".contains(c));
    rows.filter(|(key, _)| is_key(key)).map(|(key, meaning)| (key.to_owned(), meaning.trim().to_owned())).collect()
}

/// Every document: name and text.
fn documents() -> Vec<(String, String)> {
    fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
        let entries = std::fs::read_dir(directory).expect("a readable directory");
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                walk(&path, found);
            } else {
                found.push(path);
            }
        }
    }
    let mut paths = Vec::new();
    walk(&root().join("docs"), &mut paths);
    walk(&root().join("deploy"), &mut paths);
    paths.extend(std::fs::read_dir(root()).expect("a readable directory").flatten().map(|entry| entry.path()));
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    let name = |path: &Path| path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), read(&name(path)))).collect()
}

/// The pieces of a text between two marks: `between("a(b)c(d)", "(", ")")` is `b`, `d`.
fn between<'a>(text: &'a str, open: &str, close: &str) -> Vec<&'a str> {
    text.split(open).skip(1).filter_map(|rest| Some(rest.split_once(close)?.0)).collect()
}

/// What stands in code: inline, and in blocks. Not in blocks of Rust, whose `context.cancel` is no setting; the compiler reads
/// those.
fn code_of(text: &str) -> Vec<&str> {
    let (mut code, mut fenced, mut rust) = (Vec::new(), false, false);
    for line in text.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            (fenced, rust) = (!fenced, !fenced && language.starts_with("rust"));
        } else if fenced && rust {
            // passed over
        } else if fenced {
            code.push(line);
        } else {
            code.extend(line.split('`').skip(1).step_by(2));
        }
    }
    code
}

fn assert_none(found: &[String], what: &str) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn the_settings_reference_says_what_the_defaults_say() {
    let name = "docs/reference/settings.md";
    if std::env::var("BELAY_UPDATE_GOLDEN").is_ok_and(|value| value == "1") {
        std::fs::write(root().join(name), settings_page()).expect("the reference can be written");
        return;
    }
    assert!(
        read(name) == settings_page(),
        "{name} is not what config/default.toml says; `make golden` writes it anew, then read the difference"
    );
}

/// Somebody who installs Belay reads one page of settings.
#[test]
fn the_first_page_of_settings_is_short_and_there_are_not_many_in_all() {
    let known: Vec<String> = settings().into_iter().map(|setting| [setting.section, setting.key].join(".")).collect();
    let first = first_page();
    let wrong: Vec<String> = first.iter().filter(|(key, _)| !known.contains(key)).map(|(key, _)| key.clone()).collect();
    assert_none(&wrong, "no settings, although config/default.toml begins with them");
    assert!((20..=40).contains(&first.len()), "{} settings are on the first page", first.len());
    // 226, and the eight of e-mail: a channel that has two servers, a login, and people.
    assert!(known.len() <= 234, "{} settings: this number may only shrink", known.len());
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut broken = Vec::new();
    for (name, text) in documents() {
        let folder = root().join(&name).parent().expect("a file has a folder").to_owned();
        for target in between(&text, "](", ")").into_iter().filter(|target| !target.contains("://")) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { root().join(&name) } else { folder.join(file) };
            if !path.exists() {
                broken.push(format!("{name}: {target}"));
            } else if !anchor.is_empty() {
                let there = std::fs::read_to_string(&path).expect("a readable document");
                let has = there.lines().filter(|line| line.starts_with('#')).any(|line| anchor_of(line) == anchor);
                if !has {
                    broken.push(format!("{name}: {target} (no such heading)"));
                }
            }
        }
    }
    assert_none(&broken, "links that lead nowhere");
}

/// The anchor of a heading, as GitHub makes it.
fn anchor_of(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    heading.trim_start_matches('#').trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

#[test]
fn every_setting_and_verb_that_a_document_names_exists() {
    let keys: BTreeSet<String> = settings().iter().map(|it| format!("{}.{}", it.section, it.key)).collect();
    let sections: BTreeSet<&str> = keys.iter().filter_map(|key| key.split('.').next()).collect();
    // Methods of the RPC look like settings.
    let rpc = read("crates/gateway/src/ws/methods/mod.rs");
    let methods = between(&rpc, " = \"", "\"");
    let makefile = read("Makefile");
    let verbs: BTreeSet<&str> =
        makefile.lines().filter_map(|line| line.split_once(':')).map(|(verb, _)| verb.trim()).collect();
    let mut wrong = Vec::new();
    for (name, text) in documents() {
        for code in code_of(&text) {
            for word in code.split(|c: char| c.is_whitespace() || "=,;(){}|\"'".contains(c)) {
                let word = word.trim_matches(['.', ':']);
                let is_key = word.split_once('.').is_some_and(|(section, rest)| {
                    sections.contains(section) && rest.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '.')
                });
                // A file such as `store.rs`, or a field within a setting such as `llm.price_usd.input`.
                let known = methods.contains(&word)
                    || keys.iter().any(|key| word == key || word.starts_with(&format!("{key}.")));
                if is_key && !known && !sections.contains(word) && !word.ends_with(".rs") && !word.ends_with(".toml") {
                    wrong.push(format!("{name}: setting {word}"));
                }
            }
            for rest in
                code.match_indices("make ").filter(|(at, _)| *at == 0).map(|(at, word)| &code[at + word.len()..])
            {
                let verb = rest.split_whitespace().next().unwrap_or_default();
                if !verbs.contains(verb) {
                    wrong.push(format!("{name}: make {verb}"));
                }
            }
        }
    }
    assert_none(&wrong, "words that nothing answers to");
}

#[test]
fn every_route_and_command_is_described() {
    let mut missing = Vec::new();
    let api = read("docs/reference/http-api.md");
    for route in between(&read("crates/gateway/src/router.rs"), ".route(\"", "\"") {
        if route != "/api" && !route.contains('*') && !api.contains(route) {
            missing.push(format!("route {route}"));
        }
    }
    let commands = read("docs/reference/commands.md");
    let grammar = read("crates/agent/src/submission.rs");
    let words = grammar.split("\nimpl Submission {").next().unwrap_or_default();
    for word in between(words, "\"/", "\"") {
        if !commands.contains(&format!("`/{word}")) {
            missing.push(format!("command /{word}"));
        }
    }
    assert_none(&missing, "not described in docs/reference");
}

#[test]
fn what_the_guide_says_of_the_limit_of_steps_and_the_judge_is_what_the_settings_say() {
    let settings: toml::Table = read("config/default.toml").parse().expect("TOML");
    let number = |path: &[&str]| {
        let (last, sections) = path.split_last().expect("a key");
        let section = sections.iter().fold(&settings, |table, name| table[*name].as_table().expect("a section"));
        section[*last].as_integer().expect("a number")
    };
    let chat = number(&["agent", "max_tool_iterations"]);
    let step = 20; // a constant
    assert!(read("crates/run/src/config.rs").contains(&format!("max_steps_per_execution: {step}")));
    let subagent = number(&["agent", "subagents", "max_turns"]);
    let (job, judge) = (number(&["jobs", "max_steps"]), number(&["stops", "judge", "first_step"]));
    assert_eq!(number(&["stops", "max_strikes"]), 2, "the guide speaks of a second strike");
    assert!(chat + 1 < judge && step < judge && subagent <= judge && judge < job, "only a job is judged by default");
    let guide = read("docs/guide/operator.md").replace('\n', " ");
    for said in [
        format!("gets no tools from its step {chat} on"),
        format!("first asked at step {judge}"),
        format!("only a job ({job} steps)"),
        format!("a step of a plan has {step}, a subagent {subagent}"),
    ] {
        assert!(guide.contains(&said), "docs/guide/operator.md does not say: {said}");
    }
}

/// `tests/documents/unguided.txt` lists the settings that no guide names yet. The list may only shrink.
#[test]
fn a_guide_names_each_setting() {
    let guides: Vec<(String, String)> =
        documents().into_iter().filter(|(name, _)| name.starts_with("docs/guide/")).collect();
    let code: Vec<&str> = guides.iter().flat_map(|(_, text)| code_of(text)).collect();
    let names = |code: &str, name: &str| {
        code.match_indices(name).any(|(at, _)| {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            !code[..at].ends_with(is_part) && !code[at + name.len()..].starts_with(is_part)
        })
    };
    let is_unguided = |setting: &Setting| !code.iter().any(|code| names(code, &setting.key));
    let full = |setting: Setting| [setting.section, setting.key].join(".").trim_start_matches('.').to_owned();
    let unguided: BTreeSet<String> = settings().into_iter().filter(is_unguided).map(full).collect();
    let listed: BTreeSet<String> = include_str!("documents/unguided.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    let new: Vec<String> = unguided.difference(&listed).cloned().collect();
    assert_none(&new, "settings that no page of docs/guide names");
    let done: Vec<String> = listed.difference(&unguided).cloned().collect();
    assert_none(&done, "settings that a guide names or that are gone: remove them from tests/documents/unguided.txt");
}

/// Every Rust file of the project.
fn sources() -> Vec<(PathBuf, String)> {
    fn walk(directory: &Path, found: &mut Vec<(PathBuf, String)>) {
        for path in std::fs::read_dir(directory).expect("a readable directory").flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a readable source");
                found.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    for folder in ["crates", "tests"] {
        walk(&root().join(folder), &mut found);
    }
    found
}

/// Whether a text has a test of that name.
fn has_test(text: &str, name: &str) -> bool {
    let Some(at) = text.find(&format!("fn {name}(")) else { return false };
    // Between the attribute and the name there may be others, and comments.
    let before: Vec<&str> = text[..at].lines().rev().take(5).collect();
    before.iter().any(|line| line.trim_start().starts_with("#[") && line.contains("test"))
}

#[test]
fn every_test_that_a_table_names_exists() {
    let sources = sources();
    let (mut missing, mut named, mut tables) = (Vec::new(), 0, 0);
    for (path, text) in &sources {
        let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("//! |")).collect();
        if !lines.first().is_some_and(|head| head.contains("proved by")) {
            continue;
        }
        tables += 1;
        for line in &lines[2..] {
            let proof = line.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
            let names: Vec<&str> = proof.split('`').skip(1).step_by(2).collect();
            named += names.len();
            if names.is_empty() && !proof.contains("not there yet") {
                missing.push(format!("{}: no test at all: {line}", path.display()));
            }
            for name in names {
                let exists = match name.split_once("::") {
                    None => has_test(text, name),
                    Some((module, name)) => {
                        sources.iter().any(|(of, text)| is_module(of, module) && has_test(text, name))
                    }
                };
                if !exists {
                    missing.push(format!("{}: {name}", path.display()));
                }
            }
        }
    }
    assert!(tables >= 3 && named > 60, "{tables} tables with {named} names: they are not read as they are written");
    assert_none(&missing, "tests that a table names and nobody wrote");
}

/// The cells of a row, without the escaped lines between them.
fn cells(row: &str) -> Vec<String> {
    let row = row.replace("\\|", "\u{1}");
    row.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// A row without a version and a source cannot be looked up, and one without a test may not be true any more.
#[test]
fn each_row_about_other_programs_has_a_version_a_source_and_a_test() {
    let sources = sources();
    let (mut wrong, mut rows) = (Vec::new(), 0);
    for page in ["model-servers", "mcp-servers", "telegram"] {
        let text = read(&format!("docs/reference/{page}.md"));
        let mut heads: Vec<String> = Vec::new();
        for line in text.lines() {
            if !line.starts_with('|') {
                heads.clear();
            } else if heads.is_empty() {
                heads = cells(line);
            } else if !line.starts_with("|---") {
                rows += 1;
                let cells = cells(line);
                let unknown = |cell: &String| {
                    cell.is_empty() || ["-", "–"].contains(&cell.as_str()) || cell.contains("version not known")
                };
                let of = |name: &str| heads.iter().position(|head| head.ends_with(name)).map(|at| &cells[at]);
                let names = of("test").map(|test| test.split('`').skip(1).step_by(2).collect::<Vec<_>>());
                let is_test = |name: &&str| match name.rsplit_once("::") {
                    _ if name.contains('/') => root().join(name).exists() || has_path(name, &sources),
                    Some((_, name)) => sources.iter().any(|(_, text)| has_test(text, name)),
                    None => sources.iter().any(|(_, text)| has_test(text, name)),
                };
                let has_test = names.is_none_or(|names| match names.is_empty() {
                    true => of("test").is_some_and(|test| test.starts_with("the same") || test == "none"),
                    false => names.iter().all(is_test),
                });
                if cells.len() != heads.len() || cells.iter().any(unknown) || !has_test {
                    wrong.push(format!("{page}.md: {line}"));
                }
            }
        }
    }
    assert!(rows > 150, "{rows} rows: they are not read as they are written");
    assert_none(&wrong, "rows without a version, a source or a test");
}

/// Whether a name such as `patterns/tests.rs::a_test` or `tests.rs` is a test or a file.
fn has_path(name: &str, sources: &[(PathBuf, String)]) -> bool {
    let (path, test) = name.split_once("::").map_or((name, None), |(path, test)| (path, Some(test)));
    let found = sources.iter().any(|(of, text)| of.ends_with(path) && test.is_none_or(|test| has_test(text, test)));
    found || test.is_none() && sources.iter().any(|(of, _)| of.starts_with(root().join(path)))
}

/// Whether a file is that module, or a part of it.
fn is_module(path: &Path, module: &str) -> bool {
    path.file_stem().is_some_and(|stem| stem == module) || path.iter().any(|folder| folder == module)
}

#[test]
fn every_decision_is_listed() {
    let list = read("docs/adr/README.md");
    let files = std::fs::read_dir(root().join("docs/adr")).expect("a readable directory");
    let names: Vec<String> = files.flatten().map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    let unlisted: Vec<String> =
        names.into_iter().filter(|name| name != "README.md" && !list.contains(&format!("({name})"))).collect();
    assert_none(&unlisted, "decisions that docs/adr/README.md does not list");
}

/// Most lines of the README: a stranger reads it in two minutes.
const README_MAX_LINES: usize = 180;

#[test]
fn the_users_guide_quotes_the_lines_that_end_a_run() {
    let guide = read("docs/guide/user.md");
    let table = between(&guide, "| line | what to do |\n|---|---|\n", "\n\n");
    let quoted: Vec<&str> = table
        .iter()
        .flat_map(|rows| rows.lines())
        .filter_map(|row| row.split('|').nth(1))
        .flat_map(|lines| lines.split(" / "))
        .map(str::trim)
        .collect();
    assert!(quoted.len() > 20, "{quoted:?}");
    let said = |line: &&str| StopReason::ALL.iter().any(|reason| reason.user_line().starts_with(*line));
    let unknown: Vec<String> = quoted.into_iter().filter(|line| !said(line)).map(str::to_owned).collect();
    assert_none(&unknown, "lines that no run ends with");
}

#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines <= README_MAX_LINES, "README.md has {lines} lines; move details to docs/ and link them");
}

#[test]
fn every_file_that_a_document_names_exists() {
    let sources: Vec<PathBuf> = sources().into_iter().map(|(path, _)| path).collect();
    let (mut missing, mut named) = (Vec::new(), 0);
    for (name, text) in documents() {
        // Decisions keep the names of their time.
        if name.starts_with("docs/adr/") {
            continue;
        }
        for code in code_of(&text) {
            let is_path = code.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
            let is_rooted = ["crates/", "tests/", "config/", "deploy/"].iter().any(|folder| code.starts_with(folder));
            let exists = match code {
                "tests/golden/NAME.txt" => continue,
                _ if !is_path => continue,
                path if is_rooted => root().join(path).exists(),
                // The architecture names files without their crates.
                file if file.ends_with(".rs") => sources.iter().any(|path| path.ends_with(file)),
                _ => continue,
            };
            named += 1;
            if !exists {
                missing.push(format!("{name}: {code}"));
            }
        }
    }
    assert!(named > 150, "{named} files: they are not read as they are written");
    assert_none(&missing, "files that documents name and nobody wrote");
}
