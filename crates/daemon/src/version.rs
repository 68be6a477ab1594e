//! `belay --version --long`: the version, and the parts of this build.

use std::ffi::OsString;
use std::fmt::Write as _;

/// A part that a build may leave out: its Cargo feature, whether it is in this build, and what it does.
pub(crate) struct Part {
    feature: &'static str,
    is_in: bool,
    what: &'static str,
}

/// The parts that a build may leave out.
pub(crate) const PARTS: [Part; 22] = [
    Part { feature: "acp", is_in: cfg!(feature = "acp"), what: "the agent of editors, by the Agent Client Protocol" },
    Part {
        feature: "adapters",
        is_in: cfg!(feature = "adapters"),
        what: "channels in any language: programs that connect by a WebSocket",
    },
    Part { feature: "colours", is_in: cfg!(feature = "colours"), what: "colours in the help of commands" },
    Part { feature: "console", is_in: cfg!(feature = "console"), what: "the console: pages for a browser" },
    Part { feature: "cron", is_in: cfg!(feature = "cron"), what: "cron lines as schedules of routines" },
    Part { feature: "gzip", is_in: cfg!(feature = "gzip"), what: "compressed answers of HTTP servers" },
    Part { feature: "line-editor", is_in: cfg!(feature = "line-editor"), what: "the prompt with a line editor" },
    Part { feature: "mail", is_in: cfg!(feature = "mail"), what: "the channel e-mail" },
    Part { feature: "manual", is_in: cfg!(feature = "manual"), what: "manual pages, and completions for shells" },
    Part { feature: "matrix", is_in: cfg!(feature = "matrix"), what: "the channel Matrix" },
    Part {
        feature: "mcp",
        is_in: cfg!(feature = "mcp"),
        what: "tools of MCP servers, and sessions and runs as tools of others",
    },
    Part { feature: "messages", is_in: cfg!(feature = "messages"), what: "Anthropic's Messages API, at /v1/messages" },
    Part { feature: "metrics", is_in: cfg!(feature = "metrics"), what: "the exporter for Prometheus" },
    Part {
        feature: "more-providers",
        is_in: cfg!(feature = "more-providers"),
        what: "the formats of Gemini, of the Responses API of OpenAI and of Ollama itself",
    },
    Part {
        feature: "otlp",
        is_in: cfg!(feature = "otlp"),
        what: "traces, metrics and logs for a collector of OpenTelemetry",
    },
    Part { feature: "pdf", is_in: cfg!(feature = "pdf"), what: "the text of PDF files" },
    Part { feature: "pictures", is_in: cfg!(feature = "pictures"), what: "pictures for models that see" },
    Part {
        feature: "postgres",
        is_in: cfg!(feature = "postgres"),
        what: "stores in PostgreSQL, and several daemons over one of them",
    },
    Part { feature: "responses", is_in: cfg!(feature = "responses"), what: "OpenAI's Responses API, at /v1/responses" },
    Part { feature: "telegram", is_in: cfg!(feature = "telegram"), what: "the bot of Telegram" },
    Part { feature: "web", is_in: cfg!(feature = "web"), what: "the text of web pages and of other HTML files" },
    Part { feature: "websocket", is_in: cfg!(feature = "websocket"), what: "the RPC over WebSocket" },
];

/// The arguments, the program's name first, with `--version` for the words of other programs: `belay version`, and `belay -v`
/// without a command.
pub(crate) fn with_flag(mut args: Vec<OsString>) -> Vec<OsString> {
    let is_alone = args.iter().skip(2).all(|arg| arg == "--long");
    if let Some(first) = args.get_mut(1).filter(|first| *first == "version" || (*first == "-v" && is_alone)) {
        *first = "--version".into();
    }
    args
}

/// Whether these arguments, without the name of the program, ask for the long version.
pub(crate) fn is_asked(args: &[OsString]) -> bool {
    let has = |wanted: &[&str]| args.iter().any(|arg| wanted.iter().any(|wanted| arg == wanted));
    args.len() == 2 && has(&["--version", "-V"]) && has(&["--long"])
}

/// The version, and a line for each part.
pub(crate) fn long() -> String {
    let mut text = format!("belay {}\n", env!("CARGO_PKG_VERSION"));
    for Part { feature, is_in, what } in &PARTS {
        let mark = if *is_in { '+' } else { '-' };
        // Writing to a text cannot fail.
        let _ = write!(text, "\n{mark} {feature:<16}{what}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_words_for_the_version_are_its_flag_and_stay_arguments_of_commands() {
        let args = |line: &str| line.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        for (line, expected) in [
            ("belay version", "belay --version"),
            ("belay version --long", "belay --version --long"),
            ("belay -v", "belay --version"),
            ("belay ask version", "belay ask version"),
            ("belay ask -v", "belay ask -v"),
            ("belay -v ask x", "belay -v ask x"),
            ("belay", "belay"),
        ] {
            assert_eq!(with_flag(args(line)), args(expected), "{line}");
        }
    }

    #[test]
    fn each_part_is_named_with_whether_it_is_in() {
        let args = |line: &str| line.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        for line in ["--version --long", "--long -V"] {
            assert!(is_asked(&args(line)), "{line}");
        }
        for line in ["--version", "--long", "run --long", "--version --long run"] {
            assert!(!is_asked(&args(line)), "{line}");
        }
        let text = long();
        for Part { feature, is_in, .. } in &PARTS {
            let mark = if *is_in { '+' } else { '-' };
            assert!(text.lines().any(|line| line.starts_with(&format!("{mark} {feature}"))), "{text}");
        }
    }
}
