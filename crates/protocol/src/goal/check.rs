//! The checks of a goal.

use super::words::{joined, words};
use super::{GoalCheck, NO_SHELL};
use crate::declared::DeclaredOutput;

/// Longest criterion of a judge, in bytes.
const CRITERION_MAX_BYTES: usize = 2_000;

/// Most characters of a text that a mistake repeats.
const SHOWN_CHARS: usize = 60;

const CHECKS: &str = "A check is run COMMAND, or a command in backticks, or outputs NAME:TYPE, or judge \"CRITERION\"; `and` \
joins several.";

impl GoalCheck {
    /// Reads `CHECK [and CHECK …]`.
    ///
    /// # Errors
    /// The mistake, and what a check is.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut check, mut rest) = (Self::default(), text.trim());
        loop {
            rest = check.take(rest)?.trim_start();
            match rest.strip_prefix("and").filter(|after| after.is_empty() || after.starts_with(char::is_whitespace)) {
                Some(after) => rest = after.trim_start(),
                None if rest.is_empty() => return Ok(check),
                None => return Err(mistake(&format!("Behind a check stands `{}`.", shown(rest)))),
            }
        }
    }

    /// Takes the check that a text begins with, and returns the rest.
    fn take<'a>(&mut self, text: &'a str) -> Result<&'a str, String> {
        if let Some(quoted) = text.strip_prefix('`') {
            let (command, rest) = quoted.split_once('`').ok_or_else(|| mistake("A backtick is not closed."))?;
            return self.command(command).map(|()| rest);
        }
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim_start();
        match word {
            "" => Err(mistake("A check is missing.")),
            "run" => self.command(rest).map(|()| ""),
            "outputs" | "output" => self.outputs(rest),
            "judge" => self.judge(rest),
            _ => {
                let text = shown(text);
                Err(mistake(&format!("`{text}` is no check; did you mean `run {text}`?")))
            }
        }
    }

    fn command(&mut self, text: &str) -> Result<(), String> {
        let words = words(text).ok_or(NO_SHELL)?;
        if words.is_empty() {
            return Err(mistake("The command is missing."));
        }
        if self.command.replace(words).is_some() {
            return Err(mistake("There are two commands: a script can run both."));
        }
        Ok(())
    }

    /// Takes outputs up to the next check.
    fn outputs<'a>(&mut self, text: &'a str) -> Result<&'a str, String> {
        let end = text.find(" and ").unwrap_or(text.len());
        let (list, rest) = text.split_at(end);
        for name in list.split(',').map(str::trim) {
            // A name alone is a text.
            let output = if name.contains(':') { name.to_owned() } else { format!("{name}:string") };
            let wrong = |_problem| mistake(&format!("`{}` is no output, as `n:integer` is.", shown(name)));
            DeclaredOutput::parse(&output).map_err(wrong)?;
            self.outputs.push(output);
        }
        Ok(rest)
    }

    /// Takes a criterion in quotes.
    fn judge<'a>(&mut self, text: &'a str) -> Result<&'a str, String> {
        let close = match text.chars().next() {
            Some('"') => '"',
            Some('“') => '”',
            _ => return Err(mistake("The criterion of a judge stands in double quotes.")),
        };
        let inside = &text[text.chars().next().map_or(0, char::len_utf8)..];
        let (criterion, rest) =
            inside.split_once(close).ok_or_else(|| mistake("The quotes around a criterion are not closed."))?;
        let criterion = criterion.trim();
        if criterion.is_empty() || criterion.len() > CRITERION_MAX_BYTES {
            return Err(mistake(&format!("A criterion has 1 to {CRITERION_MAX_BYTES} bytes.")));
        }
        if self.judge.replace(criterion.to_owned()).is_some() {
            return Err(mistake("There are two judges: one criterion can name both."));
        }
        Ok(rest)
    }

    /// The checks, as a person writes and reads them.
    pub fn written(&self) -> String {
        let command = self.command.as_ref().map(|words| format!("`{}`", joined(words)));
        let outputs = (!self.outputs.is_empty()).then(|| format!("outputs {}", self.outputs.join(", ")));
        let judge = self.judge.as_ref().map(|criterion| format!("judge \"{criterion}\""));
        command.into_iter().chain(outputs).chain(judge).collect::<Vec<_>>().join(" and ")
    }
}

fn mistake(what: &str) -> String {
    format!("{what} {CHECKS}")
}

/// The beginning of a text.
fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).chain((text.chars().count() > SHOWN_CHARS).then_some('…')).collect()
}
