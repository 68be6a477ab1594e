//! Tool calls in the words of the protocol. Pure.

use std::path::{Path, PathBuf};

use agent_client_protocol::v1::schema::{Diff, ToolCallContent, ToolCallLocation, ToolKind};
use belay_cli::client::text;
use serde_json::Value as Json;

use crate::shown;

/// The kind of a tool, by which editors choose a symbol.
pub(crate) fn kind(tool: &str) -> ToolKind {
    match tool {
        "read_file" | "read_output" | "read_skill" => ToolKind::Read,
        "list_files" | "search_files" | "recall" => ToolKind::Search,
        "write_file" | "edit_file" => ToolKind::Edit,
        "run_command" | "run_shell" => ToolKind::Execute,
        "fetch_url" | "web_search" => ToolKind::Fetch,
        "forget" => ToolKind::Delete,
        "planning" | "calculate" => ToolKind::Think,
        _ => ToolKind::Other,
    }
}

/// The title of a call: the tool, and the beginning of its arguments in one line.
pub(crate) fn title(tool: &str, arguments: &str) -> String {
    shown::title(format!("{tool} {arguments}").trim_end_matches(' '))
}

/// The file that a call is about, if its arguments name one. Relative paths are those of the workspace.
pub(crate) fn location(arguments: &Json, workspace: Option<&Path>) -> Option<ToolCallLocation> {
    absolute(text(arguments, "/path"), workspace).map(ToolCallLocation::new)
}

/// The change that a call would make to a file, if it is an edit and the place of the workspace is known: the protocol wants
/// absolute paths. The old text of a file that would be written whole is not known here.
pub(crate) fn change(tool: &str, arguments: &Json, workspace: Option<&Path>) -> Option<ToolCallContent> {
    let path = absolute(text(arguments, "/path"), workspace)?;
    let new = |name: &str| arguments.pointer(name).and_then(Json::as_str);
    let diff = match tool {
        "edit_file" => Diff::new(path, new("/new")?).old_text(new("/old")?.to_owned()),
        "write_file" => Diff::new(path, new("/content")?),
        _ => return None,
    };
    Some(diff.into())
}

fn absolute(path: &str, workspace: Option<&Path>) -> Option<PathBuf> {
    let path = Some(Path::new(path)).filter(|path| !path.as_os_str().is_empty())?;
    let whole = workspace.map_or_else(|| path.to_owned(), |workspace| workspace.join(path));
    whole.is_absolute().then_some(whole)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_has_a_title_of_one_line() {
        assert_eq!(title("clock", ""), "clock");
        assert_eq!(title("calculate", "expression: 17*23"), "calculate expression: 17*23");
        assert_eq!(title("run_command", "argv: ls\n\u{202e}x"), r"run_command argv: ls\n\u{202e}x");
    }

    #[test]
    fn an_edit_is_shown_as_a_change_of_a_file() {
        let place = Path::new("/w");
        let edit = json!({"path": "a.rs", "old": "x", "new": "y"});
        let shown = |tool, arguments: &Json, place| serde_json::to_value(change(tool, arguments, place)).ok();
        assert_eq!(
            shown("edit_file", &edit, Some(place)),
            Some(json!({"type": "diff", "path": "/w/a.rs", "oldText": "x", "newText": "y"}))
        );
        let write = json!({"path": "b", "content": "text"});
        assert_eq!(
            shown("write_file", &write, Some(place)),
            Some(json!({"type": "diff", "path": "/w/b", "newText": "text"}))
        );
        for (tool, arguments, place) in
            [("edit_file", &edit, None), ("run_command", &edit, Some(place)), ("edit_file", &write, Some(place))]
        {
            assert_eq!(shown(tool, arguments, place), Some(Json::Null), "{tool} {arguments}");
        }
    }
}
