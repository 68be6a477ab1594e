//! Determines how much one approval covers: what "always" includes, and which commands need an approval each time.
//!
//! There are three results, from narrow to wide:
//! - *Each time*: the command starts other programs by an argument, reaches beyond the workspace, or cannot be undone.
//!   Or it depends on files that an approval is not bound to (build tools, interpreters, compilers), or it is unknown.
//! - *These exact arguments*: the command may do more than its name says, and names nothing of the workspace.
//! - *This program*, with its subcommand if it has any: the program is known to start no other program.
//!
//! A deny list is never complete. So "always" covers only programs on an allow list. The result only decides how often
//! a person is asked.

mod git;
mod lists;
mod modes;
#[cfg(test)]
mod tests;

use belay_protocol::Ask;

use self::lists::{ALWAYS, COMMANDS, EXACT, OPEN_ENDED, Options, PLAIN, RISKY_OPTIONS, STARTING_OPTIONS_OF, WRAPPERS};
use super::program::Program;

/// Shown to a person for a command that depends on files to which the approval is not bound.
const UNBOUND: &str = "what it does depends on files that this approval does not cover: scripts, modules or build \
                       files that it loads may change before or while it runs";

/// Shown to a person for a command that names files of the workspace.
const NAMED: &str = "it is given files or directories of the workspace, which may change before or while it runs";

/// Shown to a person for a command that may set a set-user-ID or set-group-ID bit.
const LENDS: &str = "its mode may lend the rights of a file's owner to everybody who runs the file (set-user-ID)";

/// Shown to a person for an unknown program.
const UNKNOWN: &str =
    "Belay does not know this program: it may start other programs, or load files that this approval does not cover";

/// The assessment of a command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Risk {
    /// The scope of "always"; `None`: these exact arguments.
    pub(super) covers: Option<String>,
    /// Why the command needs an approval each time.
    pub(super) caution: Option<String>,
}

impl Risk {
    fn exact() -> Self {
        Self::default()
    }

    fn always(why: impl Into<String>) -> Self {
        Self { covers: None, caution: Some(why.into()) }
    }

    fn covered(scope: impl Into<String>) -> Self {
        Self { covers: Some(scope.into()), caution: None }
    }

    /// Requires an approval each time if there is a caution.
    pub(super) fn add(&mut self, caution: Option<String>) {
        if let Some(why) = caution {
            self.covers = None;
            self.caution.get_or_insert(why);
        }
    }

    /// The level of approval, if it is above that of the tool.
    pub(super) fn ask(&self) -> Option<Ask> {
        self.caution.is_some().then_some(Ask::Always)
    }
}

/// Assesses a command. `names_program` returns whether an argument names a program, and `in_workspace` whether it names
/// an existing file or directory of the workspace.
pub(super) fn assess(
    program: &Program,
    argv: &[String],
    names_program: impl Fn(&str) -> bool,
    in_workspace: impl Fn(&str) -> bool,
) -> Risk {
    let mut names = program.names();
    // A multi-call binary behaves according to the name by which it is called.
    if let [_, "busybox" | "toybox" | "coreutils"] = names[..] {
        names.truncate(1);
    }
    let is = |list: &[&str]| names.iter().any(|name| lists::has(list, name));
    let arguments = argv.get(1..).unwrap_or_default();
    let is_wrapper = is(WRAPPERS);
    // A program in the arguments of a wrapper is assessed like a direct call: `timeout 5 make`, `xargs rm -r`.
    let runs = |list: &[&str]| is(list) || (is_wrapper && arguments.iter().any(|argument| has_name(list, argument)));
    if let Some(why) = ALWAYS.iter().find(|(list, _)| runs(list)).map(|(_, why)| *why) {
        return Risk::always(why);
    }
    if !is(&["git"]) && arguments.iter().any(|argument| names_repository(argument)) {
        return Risk::always("it names something in a .git directory, from which git takes settings and programs");
    }
    if let Some(why) = risky_option(&runs, arguments) {
        return Risk::always(why);
    }
    if lends_rights(&names, arguments, is_wrapper) {
        return Risk::always(LENDS);
    }
    if let Some(option) = starting_option(&runs, arguments) {
        return Risk::always(format!(
            "its argument {option:?} can start another program, or reach further than it seems"
        ));
    }
    match program {
        Program::Inside(_) => return Risk::always(UNBOUND),
        Program::Elsewhere(_) => {
            return Risk::always("the program lies outside the directories where programs are looked for");
        }
        Program::Known { .. } => {}
    }
    let commands = COMMANDS.iter().find(|(program, _)| is(&[program])).map(|(_, commands)| *commands);
    let first = arguments.first().map(String::as_str).unwrap_or_default();
    let covered = commands.is_some_and(|commands| commands.contains(&first));
    let asks_for_help = matches!(arguments, [only] if ["--version", "-V", "--help"].contains(&only.as_str()));
    if runs(OPEN_ENDED) && !covered {
        return if asks_for_help { Risk::exact() } else { Risk::always(UNBOUND) };
    }
    let name = names.first().copied().unwrap_or_default();
    // Covers these exact arguments, unless they name something that may change before the next run.
    let starts_unknown = |argument: &String| names_program(argument) && !has_name(PLAIN, argument);
    let relative =
        |argument: &String| argument.split(['=', ':', ',']).any(|part| part.contains('/') && !part.starts_with('/'));
    let starts = |argument: &String| {
        has_name(OPEN_ENDED, argument)
            || (relative(argument) && (is_wrapper || names_program(argument)))
            || (is_wrapper && starts_unknown(argument))
    };
    let exact_arguments = || {
        if arguments.iter().any(starts) {
            return Risk::always(UNBOUND);
        }
        if arguments.iter().any(|argument| in_workspace(argument)) { Risk::always(NAMED) } else { Risk::exact() }
    };
    if is_wrapper || is(EXACT) {
        return exact_arguments();
    }
    if is(&["git"]) {
        return git::assess(arguments);
    }
    if commands.is_some() {
        return if covered { Risk::covered(format!("{name} {first}")) } else { exact_arguments() };
    }
    if is(PLAIN) {
        return Risk::covered(name);
    }
    if asks_for_help { Risk::exact() } else { Risk::always(UNKNOWN) }
}

/// Whether a word names one of these programs, by name or path.
fn has_name(list: &[&str], word: &str) -> bool {
    word.rsplit('/').next().is_some_and(|name| lists::has(list, name))
}

/// The reason why an option makes one of the listed programs do more than one approval should cover.
fn risky_option(is: &impl Fn(&[&str]) -> bool, arguments: &[String]) -> Option<&'static str> {
    let given =
        |options: &[&str]| options.iter().any(|option| arguments.iter().any(|argument| is_option(argument, option)));
    RISKY_OPTIONS.iter().find(|(rule, _)| is(rule.programs) && given(rule.options)).map(|(_, why)| *why)
}

/// Whether the program, or one that a wrapper starts, may set a set-user-ID or set-group-ID bit.
fn lends_rights(names: &[&str], arguments: &[String], is_wrapper: bool) -> bool {
    let lends = |program: &str, arguments: &[String]| match program {
        "chmod" => modes::chmod_lends(arguments),
        "install" | "mkdir" => modes::mode_option_lends(arguments),
        _ => false,
    };
    let started = arguments.iter().enumerate().filter(|_| is_wrapper);
    let mut started = started.filter_map(|(index, word)| Some((word.rsplit('/').next()?, arguments.get(index + 1..)?)));
    names.iter().any(|name| lends(name, arguments)) || started.any(|(name, arguments)| lends(name, arguments))
}

/// Whether an argument, or a value in it, lies in a `.git` directory.
fn names_repository(argument: &str) -> bool {
    argument.split(['=', ':', '/']).any(|part| part.eq_ignore_ascii_case(".git"))
}

/// The first argument that makes one of the listed programs start another.
fn starting_option<'a>(is: &impl Fn(&[&str]) -> bool, arguments: &'a [String]) -> Option<&'a str> {
    let rules = STARTING_OPTIONS_OF.iter().filter(|rule| is(rule.programs));
    let mut options = rules.flat_map(|rule: &Options| rule.options);
    // `tar xIf …`: the first word may contain options without a dash.
    let bundled = is(&["tar", "bsdtar"]).then(|| arguments.first()).flatten().filter(|word| !word.starts_with('-'));
    options.find_map(|option| {
        let given = arguments.iter().find(|argument| is_option(argument, option));
        given.or_else(|| bundled.filter(|word| is_option(&format!("-{word}"), option))).map(String::as_str)
    })
}

/// Whether an argument is this option, also if it is abbreviated (`--compress-prog`), has a joined value, or is part of
/// a group of letters. May report an option that is not there, but never misses one.
fn is_option(argument: &str, option: &str) -> bool {
    if let Some(long) = option.strip_prefix("--") {
        let Some(given) = argument.strip_prefix("--") else { return false };
        let given = given.split('=').next().unwrap_or(given);
        return !given.is_empty() && long.starts_with(given);
    }
    match option.strip_prefix('-') {
        Some(letter) if letter.len() == 1 => {
            argument.strip_prefix('-').is_some_and(|bundle| !bundle.starts_with('-') && bundle.contains(letter))
        }
        // A whole word, as find and compilers accept it.
        Some(_) => argument == option || argument.strip_prefix(option).is_some_and(|rest| rest.starts_with(['=', ','])),
        None => argument.starts_with(option),
    }
}
