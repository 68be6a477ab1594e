//! The text that shows grants before a person gives them. Pure.

use belay_protocol::{CONFIRM_OPTION, WorkGrant};

/// The answer to a chat command that would give these grants: the calls, and the command that gives them. `command` is
/// the command with its verb, such as `/job`, and `argument` is the rest as it was typed.
pub(crate) fn shown(allow: &[WorkGrant], command: &str, argument: &str) -> String {
    let lines: String = allow.iter().enumerate().map(|(at, grant)| grant.line(at + 1)).collect();
    format!(
        "Nobody would be asked about these calls:{lines}\n\n`*` fits any text. Nothing was created. To give these grants, \
         send:\n````\n{command} {CONFIRM_OPTION} {argument}\n````"
    )
}
