//! The standing permission for the check of a goal: once the gate has admitted the call, it is admitted again without another
//! question, as long as nothing has changed that it is bound to. Pure.

use belay_protocol::CallPreview;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::question::digest;

/// The beginning of the names of facts about files.
const FILE: &str = "file ";

/// The check of a goal as it was when the gate first admitted it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Digest of the tool, the arguments and the bound facts that are no files.
    digest: String,
    /// The named files with their digests, in order. Files of a program are none if "always" would cover the program with
    /// any arguments: then they are data, and nothing of them runs.
    files: Vec<(String, String)>,
}

impl Standing {
    /// The permission for this call as it is now.
    pub fn of(tool: &str, arguments: &Map<String, Value>, weight: &CallPreview) -> Self {
        let (files, bound) = weight.bound.iter().cloned().partition(|(name, _): &(String, _)| name.starts_with(FILE));
        let digest = digest(tool, arguments, &CallPreview { bound, ..CallPreview::default() });
        let is_data = weight.covers.is_some();
        Self { digest, files: if is_data { Vec::new() } else { files } }
    }

    /// What has changed since; `None`: nothing. A file that has come into being behind the known ones is data. Before
    /// them, or without any, it may be what runs.
    pub fn change(&self, now: &Self) -> Option<String> {
        if self.digest != now.digest {
            return Some("the command, its program or its environment".to_owned());
        }
        let same = |(known, new): &(&(String, String), &(String, String))| known == new;
        let kept = self.files.iter().zip(&now.files).take_while(same).count();
        if kept < self.files.len() {
            return self.files.get(kept).map(|(name, _)| name.clone());
        }
        let came = now.files.get(kept).filter(|_| self.files.is_empty());
        came.map(|(name, _)| name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_check_are_bound_and_its_data_is_not() {
        let of = |argument: &str, bound: &[(&str, &str)], covers: Option<&str>| {
            let bound = bound.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let weight = CallPreview { bound, covers: covers.map(str::to_owned), ..CallPreview::default() };
            let arguments = Map::from_iter([("argv".to_owned(), Value::from(argument))]);
            Standing::of("run_command", &arguments, &weight)
        };
        let script = [("program", "/bin/sh"), ("file check.sh", "1")];
        let base = of("sh check.sh out", &script, None);
        let other = "the command, its program or its environment";
        for (name, now, changed) in [
            ("nothing", of("sh check.sh out", &script, None), None),
            ("the arguments", of("sh other.sh", &script, None), Some(other)),
            ("the program", of("sh check.sh out", &[("program", "x"), script[1]], None), Some(other)),
            ("the script", of("sh check.sh out", &[script[0], ("file check.sh", "2")], None), Some("file check.sh")),
            ("without the script", of("sh check.sh out", &script[..1], None), Some("file check.sh")),
            ("data behind it", of("sh check.sh out", &[script[0], script[1], ("file out", "1")], None), None),
            (
                "a file before it",
                of("sh check.sh out", &[("file a", "1"), script[0], script[1]], None),
                Some("file check.sh"),
            ),
        ] {
            assert_eq!(base.change(&now).as_deref(), changed, "{name}");
        }
        let absent = of("sh check.sh", &script[..1], None);
        let written = of("sh check.sh", &script, None);
        assert_eq!(absent.change(&written).as_deref(), Some("file check.sh"), "the run must not write its own check");
        let data = |digest| of("grep -q ok out", &[("file out", digest)], Some("grep"));
        assert_eq!(data("1").change(&data("2")), None);
    }
}
