//! The results of commands as Codex CLI writes them: a head with an id and times, and the exit code in it.

use serde_json::Value;

/// The beginnings of the other lines of a head.
const HEADS: &[&str] = &[
    "Chunk ID: ",
    "Wall time: ",
    "Original token count: ",
    "Total output lines: ",
    "Process running with session ID ",
];

/// The result of a command without its head, and whether it succeeded, if the result says so.
pub(super) fn output_of(text: &str) -> (Option<bool>, String) {
    // Older versions write an object as text.
    if let Ok(object @ Value::Object(_)) = serde_json::from_str::<Value>(text)
        && let Some(output) = object.get("output").and_then(Value::as_str)
        && let Some(code) = object.pointer("/metadata/exit_code").and_then(Value::as_i64)
    {
        return (Some(code == 0), output.to_owned());
    }
    let (mut ok, mut rest, mut heads) = (None, text, 0);
    while let Some((line, after)) = rest.split_once('\n') {
        let code = ["Exit code: ", "Process exited with code "].iter().find_map(|head| line.strip_prefix(head));
        match line {
            "Output:" if heads > 0 => return (ok, after.to_owned()),
            _ if code.is_some() => ok = code.map(|code| code.trim() == "0"),
            _ if HEADS.iter().any(|head| line.starts_with(head)) => {}
            _ => break,
        }
        (rest, heads) = (after, heads + 1);
    }
    // A process that goes on has no exit code, and a head that is not one belongs to the text.
    (None, text.to_owned())
}
