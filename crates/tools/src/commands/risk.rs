//! How far one answer of a person reaches: what "always" covers, and which commands are asked for each time.
//!
//! Three answers, from narrow to wide: *each time* for what starts other programs by an argument, reaches beyond the
//! workspace, cannot be taken back, takes its meaning from files that an answer is not bound to (build tools,
//! interpreters, compilers), or is not known; *these very arguments* for what may do more than it seems and is given
//! nothing of the workspace; *this program* (with its first word, where it has commands of its own) for those that are
//! known to start nothing.
//!
//! Lists of bad words are always too short. So "always" covers only what is on a list of good ones, and this decides
//! nothing but how often somebody is asked.

mod git;
mod lists;
#[cfg(test)]
mod tests;

use belay_protocol::Ask;

use self::lists::{ALWAYS, COMMANDS, EXACT, FAR_REACHING, OPEN_ENDED, Options, PLAIN, STARTING, WRAPPERS};
use super::program::Program;

/// What a person reads about a command whose meaning lies in files that the answer is not bound to.
const UNBOUND: &str = "what it does depends on files that this approval does not cover: scripts, modules or build \
                       files that it loads may change before or while it runs";

/// What a person reads about a command that is given something of the workspace.
const NAMED: &str = "it is given files or directories of the workspace, which may change before or while it runs";

/// What a person reads about a command of which nothing is known.
const UNKNOWN: &str =
    "Belay does not know this program: it may start other programs, or load files that this approval does not cover";

/// What was found about a command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Risk {
    /// What "always" covers; `None`: these very arguments.
    pub(super) covers: Option<String>,
    /// Why it is asked for each time.
    pub(super) caution: Option<String>,
}

impl Risk {
    fn exact() -> Self {
        Self::default()
    }

    fn always(why: impl Into<String>) -> Self {
        Self { covers: None, caution: Some(why.into()) }
    }

    fn covered(by: impl Into<String>) -> Self {
        Self { covers: Some(by.into()), caution: None }
    }

    /// The same, asked for each time where there is a reason.
    pub(super) fn add(&mut self, caution: Option<String>) {
        if let Some(why) = caution {
            self.covers = None;
            self.caution.get_or_insert(why);
        }
    }

    /// The need to ask, where it is above the tool's own.
    pub(super) fn ask(&self) -> Option<Ask> {
        self.caution.is_some().then_some(Ask::Always)
    }
}

/// Judges a command. Of an argument, `names_program` says whether it names a program, and `in_workspace` whether it
/// names a file or directory of the workspace that is there.
pub(super) fn judge(
    program: &Program,
    argv: &[String],
    names_program: impl Fn(&str) -> bool,
    in_workspace: impl Fn(&str) -> bool,
) -> Risk {
    let mut names = program.names();
    // One file with many names does what it is called.
    if let [_, "busybox" | "toybox" | "coreutils"] = names[..] {
        names.truncate(1);
    }
    let is = |list: &[&str]| names.iter().any(|name| lists::has(list, name));
    let arguments = argv.get(1..).unwrap_or_default();
    let is_wrapper = is(WRAPPERS);
    // What a program starts for its arguments is judged like the program: `timeout 5 make`, `xargs rm -r`.
    let runs = |list: &[&str]| is(list) || (is_wrapper && arguments.iter().any(|argument| has_name(list, argument)));
    if let Some(why) = ALWAYS.iter().find(|(list, _)| runs(list)).map(|(_, why)| *why) {
        return Risk::always(why);
    }
    if !is(&["git"]) && arguments.iter().any(|argument| names_repository(argument)) {
        return Risk::always("it names something in a .git directory, from which git takes settings and programs");
    }
    if let Some(why) = far_reaching(&runs, arguments) {
        return Risk::always(why);
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
    // These very arguments, unless they name what may be something else the next time.
    let starts_unknown = |argument: &String| names_program(argument) && !has_name(PLAIN, argument);
    let relative =
        |argument: &String| argument.split(['=', ':', ',']).any(|part| part.contains('/') && !part.starts_with('/'));
    let starts = |argument: &String| {
        has_name(OPEN_ENDED, argument)
            || (relative(argument) && (is_wrapper || names_program(argument)))
            || (is_wrapper && starts_unknown(argument))
    };
    let these_very_arguments = || {
        if arguments.iter().any(starts) {
            return Risk::always(UNBOUND);
        }
        if arguments.iter().any(|argument| in_workspace(argument)) { Risk::always(NAMED) } else { Risk::exact() }
    };
    if is_wrapper || is(EXACT) {
        return these_very_arguments();
    }
    if is(&["git"]) {
        return git::judge(arguments);
    }
    if commands.is_some() {
        return if covered { Risk::covered(format!("{name} {first}")) } else { these_very_arguments() };
    }
    if is(PLAIN) {
        return Risk::covered(name);
    }
    if asks_for_help { Risk::exact() } else { Risk::always(UNKNOWN) }
}

/// Whether a word names one of these programs, by its name or its path.
fn has_name(list: &[&str], word: &str) -> bool {
    word.rsplit('/').next().is_some_and(|name| lists::has(list, name))
}

/// Why some option makes one of the listed programs do more than one answer should cover.
fn far_reaching(is: &impl Fn(&[&str]) -> bool, arguments: &[String]) -> Option<&'static str> {
    let given =
        |options: &[&str]| options.iter().any(|option| arguments.iter().any(|argument| is_option(argument, option)));
    FAR_REACHING.iter().find(|(rule, _)| is(rule.programs) && given(rule.options)).map(|(_, why)| *why)
}

/// Whether an argument, or the value in it, lies in a `.git` directory.
fn names_repository(argument: &str) -> bool {
    argument.split(['=', ':', '/']).any(|part| part.eq_ignore_ascii_case(".git"))
}

/// The first argument with which one of the listed programs starts another.
fn starting_option<'a>(is: &impl Fn(&[&str]) -> bool, arguments: &'a [String]) -> Option<&'a str> {
    let rules = STARTING.iter().filter(|rule| is(rule.programs));
    let mut options = rules.flat_map(|rule: &Options| rule.options);
    // `tar xIf …`: the first word may be options without a dash.
    let bundled = is(&["tar", "bsdtar"]).then(|| arguments.first()).flatten().filter(|word| !word.starts_with('-'));
    options.find_map(|option| {
        let given = arguments.iter().find(|argument| is_option(argument, option));
        given.or_else(|| bundled.filter(|word| is_option(&format!("-{word}"), option))).map(String::as_str)
    })
}

/// Whether an argument is the option, also when it is abbreviated (`--compress-prog`), has its value joined on, or
/// stands in a bundle of letters. Sees some options where there are none, and never the other way round.
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
        // A word, as find and compilers take them.
        Some(_) => argument == option || argument.strip_prefix(option).is_some_and(|rest| rest.starts_with(['=', ','])),
        None => argument.starts_with(option),
    }
}
