//! Bounds on the answer of a server. A server that exceeds one violates the protocol, by accident or on purpose. The
//! call then ends with an error of kind `Network` that names the bound.

/// Longest text of one answer; reasoning is counted separately. 4 MiB: a hundred times the longest answer of any model.
pub(crate) const TEXT_MAX_BYTES: usize = 4 << 20;

/// Longest arguments of one tool call. 1 MiB: a whole source file fits.
pub(crate) const ARGUMENTS_MAX_BYTES: usize = 1 << 20;

/// Longest arguments of all tool calls of one answer. 2 MiB: as a tree of values, they take up to sixteen times as
/// much.
pub(crate) const ALL_ARGUMENTS_MAX_BYTES: usize = 2 << 20;

/// Most tool calls of one answer. 128: the most tools that OpenAI accepts in a request.
pub(crate) const CALLS_MAX: usize = 128;

/// Most items of a list in one event or message: choices, calls, blocks. 1024: thinking and text blocks come between
/// calls.
pub(crate) const LIST_MAX: usize = 1024;

/// Longest name or identifier of a tool call. 1 KiB: providers allow 64 bytes for a name.
pub(crate) const NAME_MAX_BYTES: usize = 1 << 10;

/// Longest line of an event stream, and longest event. 2 MiB: the arguments of a call, escaped, in one piece.
pub(crate) const EVENT_MAX_BYTES: usize = 2 << 20;

/// Longest event stream. 256 MiB: providers send up to 300 bytes for each token.
pub(crate) const STREAM_MAX_BYTES: usize = 256 << 20;

/// Longest answer of a server that does not stream although it was asked to. 8 MiB: a text of 4 MiB, escaped.
pub(crate) const BODY_MAX_BYTES: usize = 8 << 20;

/// Longest part of an error body that is read.
pub(crate) const ERROR_BODY_MAX_BYTES: usize = 16 << 10;

/// Longest part of an error that is logged, in characters.
pub(crate) const DETAIL_MAX_CHARS: usize = 500;

/// Longest list of models that is read. 4 MiB: an aggregator with hundreds of models describes each in detail.
pub(crate) const MODEL_LIST_MAX_BYTES: usize = 4 << 20;
