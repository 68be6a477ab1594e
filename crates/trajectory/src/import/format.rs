//! The formats of other programs.

use super::claude_code::ClaudeCode;
use super::codex::Codex;
use super::gemini::Gemini;
use super::goose::Goose;
use super::lists::{Files, Lists};
use super::opencode::Opencode;
use super::otel::Otel;
use super::{Reads, mini_swe_agent, swe_agent};

/// A transcript format of other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Messages in the format of OpenAI's chat completions: `tool_calls`, and the role `tool`.
    Openai,
    /// Items in the format of OpenAI's Responses API: `function_call`, `function_call_output`.
    Responses,
    /// Messages in the format of Anthropic's Messages API: blocks `tool_use`, `tool_result`, `text`, `thinking`.
    Anthropic,
    /// Sessions of Claude Code, one record a line.
    ClaudeCode,
    /// Rollouts of Codex CLI, one record a line.
    Codex,
    /// Sessions and checkpoints of Gemini CLI, and contents of the Gemini API.
    Gemini,
    /// Sessions that opencode exports, and events that it prints.
    Opencode,
    /// Sessions that Goose exports, or has stored one message a line.
    Goose,
    /// Spans of OpenTelemetry with the attributes `gen_ai.…`.
    Otel,
    /// A `.traj` file of SWE-agent: `trajectory` with `action`, `observation`, `thought`; or `history`.
    SweAgent,
    /// A `.traj.json` file of mini-swe-agent: `info`, `messages`, `trajectory_format`.
    MiniSweAgent,
    /// A result file of tau-bench: entries with `traj` (or, in its second version, `simulations` with `messages`).
    TauBench,
}

impl Format {
    /// Every format.
    pub const ALL: &'static [Self] = &[
        Self::Openai,
        Self::Responses,
        Self::Anthropic,
        Self::ClaudeCode,
        Self::Codex,
        Self::Gemini,
        Self::Opencode,
        Self::Goose,
        Self::Otel,
        Self::SweAgent,
        Self::MiniSweAgent,
        Self::TauBench,
    ];

    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Responses => "responses",
            Self::Anthropic => "anthropic",
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Goose => "goose",
            Self::Otel => "otel",
            Self::SweAgent => "swe-agent",
            Self::MiniSweAgent => "mini-swe-agent",
            Self::TauBench => "tau-bench",
        }
    }

    /// The format with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.word() == word)
    }

    /// The expected content of such a file, for error messages.
    pub(super) fn expected(self) -> &'static str {
        match self {
            Self::Openai => "a list of messages with `role` and `content` or `tool_calls`, or {\"messages\":[…]}",
            Self::Responses => "a list of items such as `function_call` and `function_call_output`",
            Self::Anthropic => "a list of messages whose `content` is text or blocks, or {\"messages\":[…]}",
            Self::ClaudeCode => "lines with `type`, `sessionId` and `message`",
            Self::Codex => "lines with `type` and `payload`",
            Self::Gemini => "a session with `sessionId` and messages of the type `gemini`, or contents with `parts`",
            Self::Opencode => "an object with `info` and `messages` with `parts`",
            Self::Goose => "an object with `conversation`, or lines with `role` and blocks such as `toolRequest`",
            Self::Otel => "`resourceSpans`, or spans with `attributes` such as `gen_ai.operation.name`",
            Self::SweAgent => "an object with `trajectory` (steps with `action` and `observation`) or `history`",
            Self::MiniSweAgent => "an object with `messages`, and `trajectory_format` or `info.exit_status`",
            Self::TauBench => "a list of entries with `traj`, or an object with `simulations`",
        }
    }

    /// Whether such a file may hold no event and be whole: a session that has only begun.
    pub(super) fn is_session(self) -> bool {
        matches!(self, Self::ClaudeCode | Self::Codex | Self::Gemini | Self::Opencode | Self::Goose)
    }

    pub(super) fn reader(self) -> Box<dyn Reads> {
        match self {
            Self::Openai | Self::Responses | Self::Anthropic | Self::TauBench => Box::new(Lists::new(self)),
            Self::ClaudeCode => Box::new(ClaudeCode::default()),
            Self::Codex => Box::new(Codex::default()),
            Self::Gemini => Box::new(Gemini::default()),
            Self::Opencode => Box::new(Opencode),
            Self::Goose => Box::new(Goose::default()),
            Self::Otel => Box::new(Otel::default()),
            Self::SweAgent => Box::new(Files { is_typical: swe_agent::is_typical, read: swe_agent::read }),
            Self::MiniSweAgent => {
                Box::new(Files { is_typical: mini_swe_agent::is_typical, read: mini_swe_agent::read })
            }
        }
    }
}
