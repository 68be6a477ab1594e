//! The layers, kept: which package may import which, what each must not touch, and what no file may contain.
//!
//! `docs/ARCHITECTURE.md` draws the picture that these tables repeat. A change of the picture changes both, and says why.

mod circles;
mod sizes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// What each package may import, `belay-` left out. A package that is not listed fails the test.
const ARROWS: &[(&str, &[&str])] = &[
    ("protocol", &["text"]),
    ("agent-loop", &["protocol", "text"]),
    // Texts of schedules, and instants.
    ("schedule", &["protocol", "text"]),
    // One run, whatever started it; then what starts runs by itself; then the kinds of run; then the outer loop.
    ("run", &["agent-loop", "crash-point", "protocol", "text"]),
    ("automation", &["agent-loop", "crash-point", "run", "schedule", "protocol"]),
    ("delegates", &["agent-loop", "automation", "run", "protocol", "text"]),
    ("agent", &["agent-loop", "automation", "crash-point", "delegates", "run", "schedule", "protocol", "text"]),
    ("trajectory", &["agent-loop", "protocol", "text"]),
    // A development program: compares the stop rules with those of other programs.
    ("stopbench", &["agent-loop", "protocol", "trajectory"]),
    ("models", &["protocol", "text"]),
    // Points at which a crash test kills the daemon; compiled to nothing in every other build.
    ("crash-point", &[]),
    // Hidden characters: one table, for every exit to a terminal, a question or a prompt. "Did you mean": one metric.
    ("text", &[]),
    // Lines for a terminal, for each program that shows answers on one.
    ("terminal", &["text"]),
    // Starts and ends processes, for whatever runs programs.
    ("exec", &["crash-point", "protocol"]),
    // Values of expressions.
    ("arithmetic", &["text"]),
    // Files and pages as texts.
    ("pdf", &[]),
    ("readable", &[]),
    ("tools", &["arithmetic", "exec", "pdf", "protocol", "readable", "text"]),
    // What channels share; then channels, each over platforms of its own.
    ("channel-kit", &["protocol"]),
    ("adapter", &["channel-kit", "protocol", "text"]),
    ("channels", &["channel-kit", "crash-point", "protocol", "terminal", "text"]),
    ("mail", &["channel-kit", "protocol", "text"]),
    ("matrix", &["channel-kit", "protocol", "text"]),
    ("hooks", &["exec", "protocol", "text"]),
    ("store", &["crash-point", "protocol"]),
    ("console", &[]),
    ("gateway", &["console", "protocol"]),
    ("testkit", &["protocol"]),
    // What every command of the binary needs from the process and the machine.
    ("program", &["protocol", "terminal", "text"]),
    // Log lines, and the exporters to a collector, which start again as the background tasks of `run` do.
    ("telemetry", &["program", "protocol", "run", "text"]),
    // Clients of the public API; `chat` shows the prompt of `channels`.
    ("cli", &["channels", "program", "protocol", "terminal", "text"]),
    // The daemon as the agent of an editor: a client of the public API, as the commands are.
    ("acp", &["cli", "program", "protocol", "text"]),
    // All sections, each the plain struct of the crate that it configures.
    (
        "settings",
        &[
            "adapter",
            "agent",
            "agent-loop",
            "automation",
            "channels",
            "delegates",
            "gateway",
            "hooks",
            "mail",
            "matrix",
            "models",
            "program",
            "protocol",
            "run",
            "schedule",
            "store",
            "telemetry",
            "text",
            "tools",
        ],
    ),
    // What the daemon and commands without a daemon build.
    (
        "parts",
        &["agent", "exec", "gateway", "hooks", "models", "program", "protocol", "run", "settings", "store", "tools"],
    ),
    // The commands before a start.
    (
        "setup",
        &[
            "channels",
            "delegates",
            "gateway",
            "mail",
            "matrix",
            "models",
            "parts",
            "program",
            "protocol",
            "run",
            "settings",
            "store",
            "text",
            "tools",
        ],
    ),
    // Applies the stop rules to recorded runs.
    ("stops", &["agent-loop", "cli", "program", "settings", "text", "trajectory"]),
    // Backups, retention and the move to another database.
    (
        "maintenance",
        &[
            "agent",
            "cli",
            "crash-point",
            "gateway",
            "parts",
            "program",
            "protocol",
            "schedule",
            "settings",
            "store",
            "tools",
        ],
    ),
    (
        "daemon",
        &[
            "acp",
            "adapter",
            "agent",
            "automation",
            "crash-point",
            "delegates",
            "mail",
            "maintenance",
            "matrix",
            "run",
            "schedule",
            "models",
            "tools",
            "channels",
            "cli",
            "hooks",
            "store",
            "gateway",
            "trajectory",
            "parts",
            "program",
            "protocol",
            "settings",
            "setup",
            "stops",
            "telemetry",
        ],
    ),
    // The brakes stop real processes by the code of the daemon, and count for themselves what is left.
    ("tests", &["exec", "protocol", "testkit"]),
    // Runs the daemon with an allocator of its own, and measures it as the benchmark does.
    ("budget", &["daemon", "tests"]),
    // Reads the documents alone.
    ("site", &[]),
];

/// What tests of a package may import beyond that: the testkit anywhere, a real store where turns or jobs are tested, the
/// repair of histories where wire formats are tested with the histories that it leaves, the rules of routines for the
/// examples of the documents, and the mark of the daemon's processes.
const TEST_ARROWS: &[(&str, &[&str])] = &[
    ("agent", &["store"]),
    ("automation", &["store"]),
    ("models", &["agent-loop"]),
    ("cli", &["automation"]),
    ("daemon", &["exec"]),
];

/// Libraries that only some packages may use: the library, and who may.
const LIBRARIES: &[(&str, &[&str])] = &[
    ("rusqlite", &["store"]),
    ("rusqlite_migration", &["store"]),
    ("tokio-postgres", &["store"]),
    ("tar", &["store"]),
    ("flate2", &["gateway", "store"]),
    ("clap", &["cli", "maintenance", "settings", "setup", "stops", "daemon", "stopbench"]),
    ("config", &["settings"]),
    ("toml_edit", &["setup"]),
    ("signal-hook", &["program"]),
    ("signal-hook-tokio", &["program", "daemon"]),
    ("genai", &["models", "tests"]), // for its features
    ("agent-client-protocol", &["acp"]),
    ("reedline", &["channels", "tests"]), // for its features
    ("crossterm", &["channels"]),
    ("async-imap", &["mail"]),
    ("lettre", &["mail"]),
    ("mail-parser", &["mail"]),
    ("croner", &["schedule"]),
    ("strsim", &["text"]),
    (
        "reqwest",
        &[
            "models",
            "channels",
            "matrix",
            "tools",
            "hooks",
            "gateway",
            "program",
            "telemetry",
            "cli",
            "parts",
            "setup",
            "daemon",
            "tests",
        ],
    ),
    ("axum", &["adapter", "gateway", "channels", "matrix", "models", "daemon", "tests"]),
    ("hyper", &["gateway", "daemon", "tests"]),
    ("anyhow", &["daemon", "stopbench", "tests", "budget", "site", "testkit"]),
    ("mdbook-driver", &["site"]),
];

/// What the inner loop never names: it does no IO, and asks nobody for the time.
const NO_IO: &[&str] = &[
    "tokio::fs",
    "tokio::net",
    "tokio::process",
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
    "std::thread",
    "Instant::now",
    "SystemTime",
];

/// What no code outside tests says, and why. A pattern that begins with `^` stands at the beginning of a statement.
const NOWHERE: &[(&str, &str)] = &[
    ("^tokio::spawn(", "a task whose handle nobody keeps is detached"),
    ("let _ = tokio::spawn(", "a task whose handle nobody keeps is detached"),
    ("unbounded_channel", "every queue has a bound"),
    ("mpsc::channel()", "every queue has a bound: sync_channel has one"),
    ("Client::new()", "no time limits: there is one client, built with them"),
    ("Arc<Mutex<Session", "a lane task owns its session"),
    ("run = ?", "the log has ids as everything else shows them: an optional one by map(tracing::field::display)"),
    ("todo!(", "something finished is something wired in"),
];

/// Where code makes a message in the role of the user, how often, and whose words it holds. Nothing else adds messages in the
/// person's name: see docs/adr/0022. A model call of its own is a conversation of its own, whose user is the part that asks.
const IN_THE_PERSONS_NAME: &[(&str, usize, &str)] = &[
    ("crates/agent-loop/src/notices.rs", 3, "the nudge, the truncation notice, the duplicate warning"),
    ("crates/run/src/compaction/ask.rs", 1, "a model call of its own: the summary"),
    ("crates/run/src/compaction/flush.rs", 1, "a model call of its own: notes before a compaction"),
    ("crates/run/src/completion_check.rs", 1, "a model call of its own: whether a job is done"),
    ("crates/delegates/src/container/worker.rs", 1, "a worker's task, in a conversation of its own"),
    ("crates/run/src/judge.rs", 1, "a model call of its own: the judge"),
    ("crates/run/src/titles.rs", 1, "a model call of its own: the title of a conversation"),
    ("crates/agent/src/lane/accept.rs", 1, "history that a client brings along"),
    ("crates/gateway/src/routes/openai/anthropic/count.rs", 1, "a client's history, whose tokens are estimated"),
    ("crates/agent/src/lane/edit.rs", 1, "what the person has edited"),
    ("crates/delegates/src/goals/judge.rs", 1, "a model call of its own: whether a goal is reached"),
    ("crates/delegates/src/plan/flow.rs", 1, "a model call of its own: the end of a plan"),
    ("crates/delegates/src/plan/planner.rs", 1, "a model call of its own: the plan"),
    ("crates/delegates/src/plan/step.rs", 1, "a step's task, in a conversation of its own"),
    ("crates/delegates/src/subagent/spawn.rs", 1, "a subagent's task, in a conversation of its own"),
    ("crates/run/src/core/client_calls.rs", 1, "what the person has sent behind the results of a client's tools"),
    ("crates/agent/src/turn/gathered.rs", 2, "what the person has sent, several messages of theirs in one"),
    ("crates/agent/src/queued_run.rs", 2, "what the person has sent"),
    ("crates/protocol/src/message.rs", 1, "the constructor of a message with what is known of it"),
    ("crates/protocol/src/store/inputs.rs", 1, "what the person has sent"),
    ("crates/store/src/sql/acceptance.rs", 1, "what the person has sent"),
    ("crates/store/src/sql/runs.rs", 1, "what the person has sent"),
];

/// Most of the lines of all packages that one package may have, in percent: a larger one is two packages.
const MAX_SHARE: usize = 13;

/// Most methods of a port. A larger one serves several roles: each of its users receives more than it uses.
const MAX_PORT_METHODS: usize = 8;

/// Most fields of a struct: a larger one is handed to readers that use a few of them.
const MAX_FIELDS: usize = 20;

/// Structs that are one row of a table each, and have the columns of the table as fields.
const RECORDS: &[&str] = &["ApprovalRequest", "JobRecord"];

/// Most lines of a function.
const MAX_FUNCTION: usize = 80;

/// Files longer than this are two files.
const MAX_LINES: usize = 800;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// `None` for an ordinary one, else `dev` or `build`.
    kind: Option<String>,
}

impl Package {
    fn short_name(&self) -> &str {
        self.name.strip_prefix("belay-").unwrap_or(&self.name)
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ stands in the workspace").to_owned()
}

fn output(program: &str, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root()).output().expect("the program starts")
}

fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".into())
}

fn packages() -> Vec<Package> {
    let output = output(&cargo(), &["metadata", "--format-version", "1", "--no-deps", "--offline"]);
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    metadata.packages
}

fn allowed(table: &[(&str, &'static [&'static str])], name: &str) -> Option<&'static [&'static str]> {
    table.iter().find(|(package, _)| *package == name).map(|(_, may)| *may)
}

/// Every file that belongs to the project, with its text; binary files are left out.
fn tracked_files() -> Vec<(String, String)> {
    let listed = output("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let names = if listed.status.success() {
        String::from_utf8(listed.stdout).expect("file names are UTF-8").split('\0').map(str::to_owned).collect()
    } else {
        // An unpacked release has no history: then everything that stands here belongs to it, but what was built.
        let mut found = Vec::new();
        walk(&root(), &mut found);
        found
    };
    let readable = |name: &String| Some((name.clone(), std::fs::read_to_string(root().join(name)).ok()?));
    names.iter().filter(|name| !name.is_empty()).filter_map(readable).collect()
}

fn walk(directory: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).expect("a readable directory").flatten() {
        let path = entry.path();
        let name = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
        match name.as_str() {
            "target" | "build" | ".git" => {}
            _ if path.is_dir() => walk(&path, found),
            _ => found.push(name),
        }
    }
}

/// The source files below `crates/`, as (package, path, text).
fn sources() -> Vec<(String, String, String)> {
    let in_crate = |(name, text): (String, String)| {
        let (package, inside) = name.strip_prefix("crates/")?.split_once('/')?;
        let is_source = inside.starts_with("src/") && inside.ends_with(".rs");
        is_source.then(|| (package.to_owned(), name.clone(), text))
    };
    tracked_files().into_iter().filter_map(in_crate).collect()
}

fn is_test_file(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    file == "tests.rs" || file.ends_with("_tests.rs") || path.contains("/tests/")
}

/// A source file without its tests and comments. Files of tests are all tests.
fn code(path: &str, text: &str) -> String {
    if is_test_file(path) {
        return String::new();
    }
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut code = String::new();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            skip_item(&mut lines, line.len() - line.trim_start().len());
        } else {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

/// Passes over an item that begins at this indentation: up to its closing bracket, or to its semicolon.
fn skip_item<'a>(lines: &mut impl Iterator<Item = &'a str>, indentation: usize) {
    let _last = lines.find(|line| {
        let rest = line.get(indentation..).unwrap_or_default();
        rest.starts_with('}') || (!rest.starts_with([' ', '#']) && (rest.ends_with(';') || rest.ends_with('}')))
    });
}

fn assert_none(found: &[String], what: &str) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn arrows_between_packages_run_only_as_the_picture_draws_them() {
    let packages = packages();
    let ours: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let mut wrong = Vec::new();
    for package in &packages {
        let name = package.short_name();
        let Some(may) = allowed(ARROWS, name) else {
            wrong.push(format!("{name} is not in the picture"));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|dependency| ours.contains(dependency.name.as_str())) {
            let target = dependency.name.strip_prefix("belay-").unwrap_or(&dependency.name);
            let in_tests = dependency.kind.as_deref() == Some("dev")
                && (target == "testkit" || allowed(TEST_ARROWS, name).is_some_and(|may| may.contains(&target)));
            if !may.contains(&target) && !in_tests {
                wrong.push(format!("{name} imports {target}"));
            }
        }
    }
    assert_none(&wrong, "arrows that the picture does not have");
}

#[test]
fn no_package_has_more_than_its_share_of_the_lines() {
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for (package, _, text) in sources() {
        *lines.entry(package).or_default() += text.lines().count();
    }
    let all: usize = lines.values().sum();
    let too_large = lines.iter().filter(|(_, count)| **count * 100 > all * MAX_SHARE);
    let found: Vec<_> = too_large.map(|(package, count)| format!("{package}: {count} of {all} lines")).collect();
    assert_none(&found, &format!("packages with more than {MAX_SHARE} % of the lines"));
}

#[test]
fn each_library_is_used_only_where_it_belongs() {
    let mut wrong = Vec::new();
    for package in packages() {
        let name = package.short_name();
        for dependency in package.dependencies.iter().filter(|dependency| dependency.kind.as_deref() != Some("dev")) {
            if allowed(LIBRARIES, &dependency.name).is_some_and(|may| !may.contains(&name)) {
                wrong.push(format!("{name} uses {}", dependency.name));
            }
        }
    }
    assert_none(&wrong, "libraries outside of their layer");
}

#[test]
fn the_inner_loop_does_no_io_and_asks_nobody_for_the_time() {
    let loop_files: Vec<_> = sources().into_iter().filter(|(package, ..)| package == "agent-loop").collect();
    assert!(!loop_files.is_empty(), "the inner loop has moved");
    let mut wrong = Vec::new();
    for (_, path, text) in loop_files {
        let code = code(&path, &text);
        wrong.extend(NO_IO.iter().filter(|word| code.contains(**word)).map(|word| format!("{path}: {word}")));
    }
    assert_none(&wrong, "IO in the inner loop");
}

#[test]
fn no_code_detaches_a_task_or_opens_an_unbounded_queue() {
    let mut wrong = Vec::new();
    for (_, path, text) in sources() {
        let code = code(&path, &text);
        let says = |pattern: &str| match pattern.strip_prefix('^') {
            Some(start) => code.lines().any(|line| line.trim_start().starts_with(start)),
            None => code.contains(pattern),
        };
        let found = NOWHERE.iter().filter(|(pattern, _)| says(pattern));
        wrong.extend(found.map(|(word, why)| format!("{path}: {word} ({why})")));
    }
    assert_none(&wrong, "words that no code outside tests may use");
}

#[test]
fn no_second_crypto_library_is_in_the_tree() {
    for library in ["ring", "openssl-sys"] {
        let output = output(&cargo(), &["tree", "--locked", "--offline", "--workspace", "-i", library]);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(printed.trim().is_empty(), "{library} is in the tree:\n{printed}");
        // An absent package is an error to cargo; any other error would make this test blind.
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            error.contains("did not match any packages") || error.contains("nothing to print"),
            "cargo tree: {error}"
        );
    }
}

#[test]
fn no_file_names_a_machine_or_a_private_registry() {
    // Put together here, so that this file does not contain what it looks for.
    let words: Vec<String> = [
        ["/work", "/"],
        ["/root", "/."],
        ["/tmp/", "brief"],
        ["arti", "factory"],
        ["nex", "us."],
        ["dev", "pi"],
        ["PIP_INDEX", "_URL="],
        ["source.", "crates-io"],
        ["replace", "-with"],
    ]
    .iter()
    .map(|parts| parts.concat())
    .collect();
    let mut wrong = Vec::new();
    for (path, text) in tracked_files() {
        for (number, line) in text.lines().enumerate() {
            let found = words.iter().filter(|word| names_it(line, word));
            wrong.extend(found.map(|word| format!("{path}:{}: {word}", number + 1)));
        }
        if path == "Cargo.lock" {
            let elsewhere = text
                .lines()
                .filter(|line| line.starts_with("source = ") && !line.contains("rust-lang/crates.io-index"));
            wrong.extend(elsewhere.map(|line| format!("{path}: {line}")));
        }
    }
    assert_none(&wrong, "names of machines or registries");
}

/// Whether `word` stands in the line by itself, not as the tail of a longer path.
fn names_it(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | ')'))
    })
}

#[test]
fn nothing_adds_messages_in_the_persons_name_but_what_is_listed() {
    let mut wrong = Vec::new();
    for (package, path, text) in sources() {
        if matches!(package.as_str(), "testkit" | "models") {
            continue; // scripts of tests, and wire formats, which add nothing
        }
        let code = code(&path, &text);
        let made = |what: &str| code.matches(what).count();
        let found = made("Message::user(") + made("Message::sent(") + made("Self::user(");
        let listed = IN_THE_PERSONS_NAME.iter().find(|(listed, ..)| *listed == path).map_or(0, |(_, n, _)| *n);
        if found != listed {
            wrong.push(format!("{path}: {found} messages in the role of the user, {listed} listed"));
        }
    }
    assert_none(&wrong, "messages in the person's name that IN_THE_PERSONS_NAME does not explain");
}

#[test]
fn no_top_level_modules_import_one_another_in_a_circle() {
    let mut wrong = Vec::new();
    for package in packages() {
        let src = root().join("crates").join(package.short_name()).join("src");
        if !src.exists() {
            continue; // the tests themselves
        }
        let imports = circles::Imports::of_crate(&src);
        let circles = imports.circles();
        if !circles.is_empty() {
            wrong.push(format!("{}:", package.short_name()));
            for circle in &circles {
                wrong.push(format!("  {}", circle.iter().copied().collect::<Vec<_>>().join(" ")));
                wrong.extend(imports.shortest_way_around(circle).into_iter().map(|arrow| format!("    {arrow}")));
            }
        }
    }
    assert_none(&wrong, "circles among the top-level modules of a crate");
}

#[test]
fn no_port_has_more_methods_than_one_role_needs() {
    let mut wrong = Vec::new();
    for (_, path, text) in sources().into_iter().filter(|(package, ..)| package == "protocol") {
        let file = syn::parse_file(&text).expect("the crate compiles");
        for item in file.items {
            let syn::Item::Trait(port) = item else { continue };
            let methods = port.items.iter().filter(|item| matches!(item, syn::TraitItem::Fn(_))).count();
            if methods > MAX_PORT_METHODS {
                wrong.push(format!("{path}: {} has {methods} methods", port.ident));
            }
        }
    }
    assert_none(&wrong, &format!("ports of more than {MAX_PORT_METHODS} methods"));
}

#[test]
fn every_source_file_is_short_enough_to_read() {
    let long = sources().into_iter().filter_map(|(_, path, text)| {
        let lines = text.lines().count();
        (lines > MAX_LINES).then(|| format!("{path}: {lines} lines"))
    });
    assert_none(&long.collect::<Vec<_>>(), &format!("files of more than {MAX_LINES} lines"));
}

#[test]
fn no_struct_and_no_function_is_larger_than_a_reader_can_hold() {
    let (mut structs, mut functions) = (Vec::new(), Vec::new());
    for (_, path, text) in sources().into_iter().filter(|(_, path, _)| !is_test_file(path)) {
        let sizes = sizes::Sizes::of(Path::new(&path), &text);
        let is_record = |item: &sizes::Sized| RECORDS.contains(&item.name.as_str());
        structs.extend(sizes.structs.into_iter().filter(|item| !is_record(item)).map(|item| (path.clone(), item)));
        functions.extend(sizes.functions.into_iter().map(|item| (path.clone(), item)));
    }
    let larger = |kind| sizes::larger(include_str!("architecture/larger.txt"), kind);
    let fields = sizes::judge(&structs, MAX_FIELDS, &larger("struct"));
    let lines = sizes::judge(&functions, MAX_FUNCTION, &larger("function"));
    assert_none(
        &[fields, lines].concat(),
        "fields of structs and lines of functions that tests/architecture/larger.txt does not list",
    );
}

#[test]
fn each_crash_point_occurs_once_and_the_driver_knows_its_work() {
    let mut names: Vec<String> = Vec::new();
    for (_, path, text) in sources().into_iter().filter(|(package, ..)| package != "crash-point") {
        let points = code(&path, &text);
        names.extend(
            points.split("crash_point!(\"").skip(1).map(|rest| rest.split('"').next().unwrap_or(rest).to_owned()),
        );
    }
    names.sort_unstable();
    let table = std::fs::read_to_string(root().join("tests/crash/points.py")).expect("the table of the driver");
    let mut known: Vec<&str> =
        table.lines().filter_map(|line| line.strip_prefix("    \"")?.split('"').next()).collect();
    known.sort_unstable();
    assert_eq!(names, known, "crash points of the sources, and of tests/crash/points.py");
}

#[test]
fn no_feature_that_is_on_by_default_compiles_crash_points_in() {
    let manifest = |path: &str| {
        let text = std::fs::read_to_string(root().join(path)).expect("a manifest");
        text.parse::<toml::Table>().expect("TOML")
    };
    let default = |path: &str| manifest(path)["features"].get("default").cloned();
    assert_eq!(default("crates/crash-point/Cargo.toml"), None);
    let daemon = default("crates/daemon/Cargo.toml").expect("the parts of the full build");
    assert!(!daemon.as_array().expect("a list").contains(&"crash-points".into()), "{daemon}");
    let enabled = |dependency: &toml::Value| dependency.as_table().is_some_and(|it| it.contains_key("features"));
    for package in packages() {
        let path = match package.short_name() {
            "tests" => "tests/Cargo.toml".to_owned(),
            name @ ("budget" | "site") => format!("tests/{name}/Cargo.toml"),
            name => format!("crates/{name}/Cargo.toml"),
        };
        let dependency = manifest(&path).get("dependencies").and_then(|all| all.get("belay-crash-point").cloned());
        assert!(!dependency.as_ref().is_some_and(enabled), "{path} enables the crash points");
    }
}

#[test]
fn every_crate_says_first_what_it_is_for_and_what_it_does_not_know() {
    let mut wrong = Vec::new();
    for (package, path, text) in sources() {
        // The daemon knows everything: that is its work.
        if package == "daemon" || path != format!("crates/{package}/src/lib.rs") {
            continue;
        }
        let doc: Vec<_> = text.lines().take_while(|line| line.starts_with("//!")).collect();
        if !doc.join(" ").to_lowercase().replace("//! ", "").contains("does not know") {
            wrong.push(path);
        }
    }
    assert_none(&wrong, "crates whose //! does not say \"Does not know\"");
}

#[test]
fn tests_inside_of_a_file_are_told_from_its_code() {
    let text = "use a;\n#[cfg(test)]\nmod tests;\nfn one() {\n    two();\n}\n#[cfg(test)]\nfn three() {\n    four();\n}\nfn five() {}\n#[cfg(test)]\nmod six {\n    seven();\n}\n";
    assert_eq!(code("crates/x/src/a.rs", text), "use a;\nfn one() {\n    two();\n}\nfn five() {}\n");
}
