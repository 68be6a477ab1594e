//! git: its own subcommands, aliases, and the many ways in which it starts other programs.

use super::{Risk, is_option};

/// Options before the subcommand that only change the display.
const HARMLESS_OPTIONS: [&str; 8] = [
    "--no-pager",
    "-P",
    "--no-optional-locks",
    "--literal-pathspecs",
    "--glob-pathspecs",
    "--noglob-pathspecs",
    "--icase-pathspecs",
    "--version",
];

/// Subcommands that "always" may cover. Any other name may be an alias, which can run anything.
const COMMANDS: [&str; 42] = [
    "add",
    "am",
    "apply",
    "blame",
    "branch",
    "bundle",
    "cat-file",
    "checkout",
    "cherry-pick",
    "clone",
    "commit",
    "describe",
    "diff",
    "fetch",
    "format-patch",
    "grep",
    "init",
    "log",
    "ls-files",
    "ls-remote",
    "ls-tree",
    "merge",
    "mv",
    "notes",
    "pull",
    "push",
    "rebase",
    "reflog",
    "remote",
    "reset",
    "restore",
    "revert",
    "rev-list",
    "rev-parse",
    "rm",
    "shortlog",
    "show",
    "stash",
    "status",
    "switch",
    "tag",
    "worktree",
];

/// Subcommands that start other programs or change git's settings.
const STARTING_COMMANDS: [&str; 22] = [
    "bisect",
    "config",
    "credential",
    "daemon",
    "difftool",
    "fast-import",
    "filter-branch",
    "for-each-repo",
    "gui",
    "hook",
    "http-backend",
    "instaweb",
    "maintenance",
    "mergetool",
    "receive-pack",
    "remote-ext",
    "remote-fd",
    "send-email",
    "shell",
    "submodule",
    "update-server-info",
    "upload-pack",
];

/// Options of any subcommand that start another program, or write to a given path.
const STARTING_OPTIONS: [&str; 12] = [
    "--upload-pack",
    "--receive-pack",
    "--exec",
    "--ext-diff",
    "--textconv",
    "--open-files-in-pager",
    "--config",
    "--template",
    "--extcmd",
    "--output",
    "--strategy-option",
    "--trailer",
];

/// Options and arguments of single subcommands that start another program or cannot be undone.
const OPTIONS_OF: [(&str, &[&str]); 10] = [
    ("clone", &["-c", "-u"]),
    ("fetch", &["--upload-pack"]),
    ("grep", &["-O"]),
    ("rebase", &["-x"]),
    ("push", &["-f", "--force", "--force-with-lease", "--delete", "-d", "--mirror", "--prune", "+", ":"]),
    ("reset", &["--hard"]),
    ("switch", &["-f", "--force", "--discard-changes"]),
    ("branch", &["-D"]),
    ("stash", &["drop", "clear"]),
    ("worktree", &["remove"]),
];

/// Assesses the arguments of git.
pub(super) fn assess(arguments: &[String]) -> Risk {
    let mut rest = arguments.iter().map(String::as_str).skip_while(|argument| HARMLESS_OPTIONS.contains(argument));
    let Some(command) = rest.next() else { return Risk::covered("git --version") };
    if command.starts_with('-') {
        return Risk::always(format!(
            "its option {command:?} stands before the command, where git takes settings and programs"
        ));
    }
    if STARTING_COMMANDS.contains(&command) {
        return Risk::always(format!("git {command} starts other programs, or changes what git starts"));
    }
    if matches!(command, "clean" | "checkout" | "restore") {
        return Risk::always(format!("git {command} can throw away what was not committed"));
    }
    let own = OPTIONS_OF.iter().filter(|(name, _)| *name == command).flat_map(|(_, options)| options.iter());
    let options: Vec<&str> = STARTING_OPTIONS.iter().chain(own).copied().collect();
    for argument in rest {
        if options.iter().any(|option| is_option(argument, option)) {
            return Risk::always(format!(
                "its argument {argument:?} can start another program, or cannot be taken back"
            ));
        }
        if names_transport(argument) {
            return Risk::always(format!("its argument {argument:?} names a program that carries the data"));
        }
    }
    if COMMANDS.contains(&command) { Risk::covered(format!("git {command}")) } else { Risk::exact() }
}

/// Whether an argument is an address such as `ext::sh -c …`, or an address with an option as its host.
fn names_transport(argument: &str) -> bool {
    let scheme = argument.split("::").next().filter(|scheme| scheme.len() < argument.len());
    let is_scheme =
        |scheme: &str| !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    scheme.is_some_and(is_scheme) || argument.contains("://-") || argument.contains("@-")
}
