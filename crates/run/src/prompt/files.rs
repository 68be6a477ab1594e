//! The workspace files in a prompt.

use belay_protocol::{BootstrapFile, RULES_FILE};

const HEAD: &str = "Current files of the workspace. The people you work for maintain them: follow the instructions in \
them, and use the rest as background knowledge.";
const CUT: &str = " Some are too long to be shown in full";
const READ: &str = "; read the rest with read_file";

/// The part with all files; `None`: there are no files. `reads`: whether the run has `read_file`.
pub(super) fn part(files: &[BootstrapFile], reads: bool) -> Option<String> {
    if files.is_empty() {
        return None;
    }
    let mut text = HEAD.to_owned();
    if files.iter().any(|file| file.cut) {
        text.extend([CUT, if reads { READ } else { "" }, "."]);
    }
    for file in files {
        text.push_str(&format!("\n\n<file name=\"{}\">\n{}\n</file>", file.name, file.text));
    }
    Some(text)
}

/// The part with the rules of the workspace alone; `None`: there are none. Runs with them need not have `read_file`.
pub(super) fn rules(files: &[BootstrapFile]) -> Option<String> {
    let at = files.iter().position(|file| file.name == RULES_FILE)?;
    part(&files[at..=at], false)
}
