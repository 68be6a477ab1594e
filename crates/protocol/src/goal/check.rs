//! The checks of a goal.

use super::words::{joined, words};
use super::{GoalCheck, NO_SHELL, USAGE};
use crate::declared::DeclaredOutput;

/// Longest criterion of a judge, in bytes.
const CRITERION_MAX_BYTES: usize = 2_000;

impl GoalCheck {
    /// Reads `CHECK [and CHECK …]`.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let (mut check, mut rest) = (Self::default(), text.trim());
        loop {
            rest = check.take(rest)?.trim_start();
            match rest.strip_prefix("and").filter(|after| after.starts_with(char::is_whitespace)) {
                Some(after) => rest = after.trim_start(),
                None if rest.is_empty() => return Ok(check),
                None => return Err(USAGE),
            }
        }
    }

    /// Takes the check that a text begins with, and returns the rest.
    fn take<'a>(&mut self, text: &'a str) -> Result<&'a str, &'static str> {
        if let Some(quoted) = text.strip_prefix('`') {
            let (command, rest) = quoted.split_once('`').ok_or(USAGE)?;
            return self.command(command).map(|()| rest);
        }
        let (word, rest) = text.split_once(char::is_whitespace).ok_or(USAGE)?;
        let rest = rest.trim_start();
        match word {
            "run" => self.command(rest).map(|()| ""),
            "outputs" | "output" => self.outputs(rest),
            "judge" => self.judge(rest),
            _ => Err(USAGE),
        }
    }

    fn command(&mut self, text: &str) -> Result<(), &'static str> {
        let words = words(text).ok_or(NO_SHELL)?;
        if words.is_empty() || self.command.is_some() {
            return Err(USAGE);
        }
        self.command = Some(words);
        Ok(())
    }

    /// Takes outputs up to the next check.
    fn outputs<'a>(&mut self, text: &'a str) -> Result<&'a str, &'static str> {
        let end = text.find(" and ").unwrap_or(text.len());
        let (list, rest) = text.split_at(end);
        for name in list.split(',').map(str::trim) {
            // A name alone is a text.
            let output = if name.contains(':') { name.to_owned() } else { format!("{name}:string") };
            DeclaredOutput::parse(&output).map_err(|_problem| USAGE)?;
            self.outputs.push(output);
        }
        Ok(rest)
    }

    /// Takes a criterion in quotes.
    fn judge<'a>(&mut self, text: &'a str) -> Result<&'a str, &'static str> {
        let close = match text.chars().next() {
            Some('"') => '"',
            Some('“') => '”',
            _ => return Err(USAGE),
        };
        let inside = &text[text.chars().next().map_or(0, char::len_utf8)..];
        let (criterion, rest) = inside.split_once(close).ok_or(USAGE)?;
        let criterion = criterion.trim();
        if criterion.is_empty() || criterion.len() > CRITERION_MAX_BYTES || self.judge.is_some() {
            return Err(USAGE);
        }
        self.judge = Some(criterion.to_owned());
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
