//! The words that TAB completes at a prompt: commands, and the models, sessions and ids that they take.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_channels::Completions;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Longest time for a list. 300 ms: a person who presses TAB notices no more.
const LIST_LIMIT: Duration = Duration::from_millis(300);

/// Most words that are offered.
const WORDS_MAX: usize = 100;

/// Something that a command takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// One of these words.
    Words(&'static [&'static str]),
    /// The name of a model.
    Models,
    /// The key of a session.
    Sessions,
    /// The id of a run that has not ended.
    Runs,
    /// The id of a job.
    Jobs,
    /// The id of an open approval request.
    Approvals,
    /// The name of a routine.
    Routines,
}

/// Looks up what a daemon has.
#[async_trait]
pub trait Lists: Send + Sync {
    /// The names or ids of this kind, the most useful first. Empty if they cannot be read.
    async fn list(&self, what: Wanted) -> Vec<String>;
}

/// Completes lines from lists that are read while the prompt waits.
pub struct Completion<L> {
    lists: L,
    /// The words that begin a command.
    commands: Vec<&'static str>,
    runtime: Handle,
}

impl<L: Lists + 'static> Completion<L> {
    /// Reads the lists on the present runtime. `commands`: the words that begin a command, such as `/stop`.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn over(lists: L, commands: Vec<&'static str>) -> Arc<dyn Completions> {
        Arc::new(Self { lists, commands, runtime: Handle::current() })
    }
}

impl<L: Lists> Completions for Completion<L> {
    fn complete(&self, line: &str) -> Vec<String> {
        let last = line.rsplit(char::is_whitespace).next().unwrap_or_default();
        let mut found: Vec<String> = Vec::new();
        if line.starts_with('/') && !line.contains(char::is_whitespace) {
            found.extend(self.commands.iter().map(|word| (*word).to_owned()));
        }
        for what in wanted(line).iter().copied() {
            match what {
                Wanted::Words(words) => found.extend(words.iter().map(|word| (*word).to_owned())),
                what => {
                    let listed = self.runtime.block_on(async { timeout(LIST_LIMIT, self.lists.list(what)).await });
                    found.extend(listed.unwrap_or_default());
                }
            }
        }
        found.retain(|word| word.starts_with(last));
        found.truncate(WORDS_MAX);
        found
    }
}

/// What may stand in place of the last word of a line.
fn wanted(line: &str) -> &'static [Wanted] {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    if !line.ends_with(char::is_whitespace) {
        words.pop();
    }
    match words.as_slice() {
        ["/model"] => &[Wanted::Models],
        ["/stop"] => &[Wanted::Words(&["all"]), Wanted::Sessions, Wanted::Runs],
        ["/approve" | "/always" | "/deny"] => &[Wanted::Approvals],
        ["/job" | "/cancel"] => &[Wanted::Jobs],
        ["/routine"] => &[Wanted::Words(&["list", "create", "show", "next", "on", "off", "fire", "delete"])],
        ["/routine", "show" | "next" | "on" | "off" | "fire" | "delete"] => &[Wanted::Routines],
        ["/queue"] => &[Wanted::Words(&["steer", "followup", "collect", "interrupt"])],
        ["/think"] => &[Wanted::Words(&["off", "low", "medium", "high"])],
        ["/reasoning"] => &[Wanted::Words(&["off", "on", "stream"])],
        ["/verbose" | "/loops"] => &[Wanted::Words(&["on", "off"])],
        ["/tools"] => &[Wanted::Words(&["disable", "enable"])],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    #[async_trait]
    impl Lists for Fixed {
        async fn list(&self, what: Wanted) -> Vec<String> {
            let words: &[&str] = match what {
                Wanted::Models => &["gpt-5", "gpt-5-mini"],
                Wanted::Sessions => &["me", "telegram:42"],
                Wanted::Runs => &["0193-run"],
                Wanted::Jobs => &["0193-job"],
                _ => &[],
            };
            words.iter().map(|word| (*word).to_owned()).collect()
        }
    }

    #[test]
    fn words_are_completed_by_the_place_where_they_stand() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let commands = vec!["/reset", "/redo", "/reasoning", "/resume", "/retry", "/stop", "/status"];
        let completion = Completion { lists: Fixed, commands, runtime: runtime.handle().clone() };
        for (line, expected) in [
            ("/stat", vec!["/status"]),
            ("/re", vec!["/reset", "/redo", "/reasoning", "/resume", "/retry"]),
            ("hello /stat", vec![]),
            ("", vec![]),
            ("/model ", vec!["gpt-5", "gpt-5-mini"]),
            ("/model gpt-5-", vec!["gpt-5-mini"]),
            ("/model gpt-5 ", vec![]),
            ("/stop ", vec!["all", "me", "telegram:42", "0193-run"]),
            ("/stop tele", vec!["telegram:42"]),
            ("/job 01", vec!["0193-job"]),
            ("/routine s", vec!["show"]),
            ("/think h", vec!["high"]),
        ] {
            let mut found = completion.complete(line);
            let mut expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
            if line == "/re" {
                found.sort();
                expected.sort();
            }
            assert_eq!(found, expected, "{line:?}");
        }
    }
}
