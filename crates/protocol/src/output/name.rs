//! The names of kept outputs. A model reads them and sends them back, so they are parsed strictly: a path is built
//! from the parsed parts, never from the text itself.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::ids::{CallId, RunId};
use crate::time::UnixMillis;

/// Length of [`OutputName::call`]: 12 hex digits (48 bits) of a digest, enough to distinguish the calls of a run.
const CALL_DIGITS: usize = 12;

/// The name of a kept output: `<run>/<n>-<call>`. Sorted by age.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutputName {
    run: RunId,
    number: u32,
    /// A digest of the call's id. The id itself comes from the provider and may be any text.
    call: String,
}

impl OutputName {
    /// The name of the output with this number of a run. `number`: from 1.
    pub fn new(run: RunId, number: u32, call: &CallId) -> Self {
        let digest = blake3::hash(call.as_str().as_bytes()).to_hex();
        Self { run, number, call: digest[..CALL_DIGITS].to_owned() }
    }

    /// The range of all names of a run.
    pub fn all_of(run: RunId) -> RangeInclusive<Self> {
        // `g` sorts after every hex digit.
        Self { run, number: 0, call: String::new() }..=Self { run, number: u32::MAX, call: "g".to_owned() }
    }

    /// Parses the name of a file in the directory of a run.
    pub fn of_file(run: RunId, file: &str) -> Option<Self> {
        let (number, call) = file.strip_suffix(".txt")?.split_once('-')?;
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let parsed = number.parse::<u32>().ok()?;
        let plain = parsed > 0 && parsed.to_string() == number;
        (plain && call.len() == CALL_DIGITS && call.bytes().all(is_hex)).then(|| Self {
            run,
            number: parsed,
            call: call.to_owned(),
        })
    }

    /// The run that produced the output.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// Whether the run was accepted before the date. The id of a run begins with the time of its acceptance.
    pub fn made_before(&self, date: UnixMillis) -> bool {
        let made = self.run.as_uuid().get_timestamp().map(|made| made.to_unix());
        let ms = made.map(|(seconds, nanos)| i128::from(seconds) * 1000 + i128::from(nanos / 1_000_000));
        ms.is_some_and(|ms| ms < i128::from(date.0))
    }

    /// The number within the run, from 1.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The digest of the id of the call that produced the output: 12 hex digits.
    pub fn call(&self) -> &str {
        &self.call
    }

    /// The name of the output's file in the directory of its run.
    pub fn file(&self) -> String {
        format!("{}-{}.txt", self.number, self.call)
    }
}

impl fmt::Display for OutputName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}-{}", self.run, self.number, self.call)
    }
}

/// The text is not the name of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a kept output")]
pub struct NoOutputName;

impl FromStr for OutputName {
    type Err = NoOutputName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (run, file) = text.split_once('/').ok_or(NoOutputName)?;
        let name = Self::of_file(run.parse().map_err(|_| NoOutputName)?, &format!("{file}.txt")).ok_or(NoOutputName)?;
        // A run id has several spellings; only the canonical one is accepted.
        if name.to_string() == text { Ok(name) } else { Err(NoOutputName) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_name_is_read_back_and_nothing_else_is_a_name() {
        let run = RunId::new();
        let name = OutputName::new(run, 7, &"../../call".into());
        assert_eq!(name.to_string().parse(), Ok(name.clone()));
        assert_eq!(OutputName::of_file(run, &name.file()), Some(name.clone()));
        let upper = name.to_string().to_uppercase();
        for wrong in [
            "",
            "/",
            "../../etc/passwd",
            "run/1-0123456789ab",
            &upper,
            &format!("{run}/0-0123456789ab"),
            &format!("{run}/01-0123456789ab"),
            &format!("{run}/+1-0123456789ab"),
            &format!("{run}/1-0123456789"),
            &format!("{run}/1-0123456789ag"),
            &format!("{run}/1-../../../../x"),
            &format!("{run}/1-0123456789ab.txt"),
            &format!("{run}/1-0123456789ab\n"),
            &format!("{run}//1-0123456789ab"),
            &format!("{{{run}}}/1-0123456789ab"),
            &format!("{}/1-0123456789ab", run.to_string().replace('-', "")),
        ] {
            assert_eq!(wrong.parse::<OutputName>(), Err(NoOutputName), "{wrong:?}");
        }
    }

    #[test]
    fn names_are_ordered_by_age() {
        let (early, late) = (RunId::new(), RunId::new());
        let call = |n: u32| OutputName::new(early, n, &n.to_string().as_str().into());
        assert!(call(9) < call(10) && call(10) < OutputName::new(late, 1, &"a".into()));
        assert!(OutputName::all_of(early).contains(&call(10)));
        assert!(!OutputName::all_of(late).contains(&call(10)));
    }
}
