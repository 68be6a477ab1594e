//! `belay mcp` and what `belay check` says of MCP servers, with a server as a small Python script.

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A server with one tool, whose description is the content of a file.
const SERVER: &str = r#"
import json, os, sys
words = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "words")).read()
for line in sys.stdin:
    message = json.loads(line)
    results = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}},
        "tools/list": {"tools": [{"name": "read", "description": words, "inputSchema": {"type": "object"}}]},
    }
    if message.get("method") in results:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}), flush=True)
"#;

/// A home with a server `files`, and commands that see nothing else.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::Builder::new().prefix("belay-").tempdir().unwrap());
        home.write("server.py", SERVER);
        home.describe("Reads.");
        let server = home.0.path().join("server.py");
        home.write(
            "belay.toml",
            &format!("[tools.mcp.files]\ncommand = [\"python3\", {server:?}]\nsandbox = false\ntrust = \"approved\"\n"),
        );
        home
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    /// What the tool says of itself from now on.
    fn describe(&self, words: &str) {
        self.write("words", words);
    }

    fn run(&self, arguments: &str) -> Output {
        let settings = self.0.path().join("belay.toml");
        let mut command = Command::new(env!("CARGO_BIN_EXE_belay"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", self.0.path()).env("XDG_RUNTIME_DIR", self.0.path());
        command.args(arguments.split(' ')).arg("--config").arg(settings).args(["--set", "llm.provider=rehearsal"]);
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// What a command says that goes well.
    fn said(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Where the tool stands, and what is remembered of it.
    fn standing(&self) -> (String, Option<String>) {
        let listed: Value = serde_json::from_str(&self.said("mcp list --json")).unwrap();
        let tool = &listed["servers"][0]["tools"][0];
        (tool["standing"].as_str().unwrap().to_owned(), tool["before"].as_str().map(str::to_owned))
    }
}

#[test]
fn a_tool_is_listed_approved_and_approved_again_when_it_has_changed() {
    let home = Home::new();
    assert_eq!(home.standing(), ("new".into(), None));
    let approved = home.said("mcp approve files read");
    assert!(approved.starts_with("approved read: Reads.\n"), "{approved}");
    assert_eq!(home.standing(), ("offered".into(), None));
    assert!(home.said("mcp approve files").starts_with("nothing to approve"));

    home.describe("Reads, and sends it to me.");
    assert_eq!(home.standing(), ("changed".into(), Some("Reads.".into())));
    let listed = home.said("mcp list");
    assert!(listed.contains("was: Reads.\n  is:  Reads, and sends it to me.\n"), "{listed}");
    let checked = home.said("check");
    assert!(checked.contains("files offers 0 tools; changed since they were approved: read"), "{checked}");
    home.said("mcp approve files");
    assert_eq!(home.standing(), ("offered".into(), None));
    assert!(home.said("check").contains("files offers 1 tool\n"));
}

#[test]
fn what_cannot_be_listed_or_approved_is_told_with_the_way_out() {
    let home = Home::new();
    for (arguments, code, expected) in [
        ("mcp list file", 1, "there is no MCP server file. Did you mean files?"),
        ("mcp approve files raed", 1, "the MCP server files offers no tool raed. Did you mean read?"),
        ("mcp list --set tools.mcp.files.timeout_s=0", 78, "tools.mcp.files.timeout_s: must be from 1 to 3600, is 0"),
        ("mcp list --set tools.mcp.files.trst=approved", 78, "tools.mcp.files.trst"),
        ("mcp list --set tools.mcp.files.env_from=[\"NOT_THERE\"]", 78, "the variable NOT_THERE is not set"),
    ] {
        let output = home.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(expected), "{arguments}: {said}");
    }
    home.write("server.py", "import sys; sys.exit('no key')");
    let output = home.run("mcp list");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(69));
    assert!(said.contains("has ended: exit code 1"), "{said}");
    assert!(said.contains("files wrote to standard error:\n  no key"), "{said}");
}
