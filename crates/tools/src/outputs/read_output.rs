//! `read_output`: returns a part of a stored output.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{
    Effect, OutputName, OutputPart, READ_OUTPUT, RunReader, Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::KeptOutputs;
use crate::arguments;

/// Most bytes that one call returns; below [`belay_protocol::tool::MAX_OUTPUT_BYTES`].
const MAX_SHOWN_BYTES: u64 = 60 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Its name in the cut result.
    name: String,
    /// First byte, from 0.
    #[serde(default)]
    offset: Option<u64>,
    /// Most bytes; 61440 without it.
    #[serde(default)]
    #[schemars(range(min = 1))]
    limit: Option<u64>,
}

/// The tool `read_output`. It reads stored outputs of the caller's session only.
pub(crate) struct ReadOutput {
    spec: ToolSpec,
    outputs: KeptOutputs,
    runs: Arc<dyn RunReader>,
}

impl ReadOutput {
    pub(crate) fn new(outputs: KeptOutputs, runs: Arc<dyn RunReader>) -> Self {
        let description = "Returns a part of a long output that was cut. The cut result names it.";
        let spec = arguments::spec::<Arguments>(READ_OUTPUT, description, Effect::Read, Duration::from_secs(10));
        // Most stored outputs come from other programs or web pages. The store does not record their source, so every
        // output counts as untrusted content.
        Self { spec: ToolSpec { untrusted: true, deferred: true, ..spec }, outputs, runs }
    }

    /// Whether the run is the caller's run, or an earlier run of the same session.
    async fn is_own(&self, name: &OutputName, context: &ToolContext) -> Result<bool, ToolFailure> {
        if name.run() == context.run_id {
            return Ok(true);
        }
        match self.runs.run(name.run()).await {
            Ok(run) => Ok(run.is_some_and(|run| run.session == context.session)),
            Err(error) => {
                tracing::warn!(%error, "whose an output is could not be found out");
                Err(ToolFailure::failed("The output cannot be read at the moment. Try again later."))
            }
        }
    }

    /// The part of an output, as the model sees it. `name`: the output's name, as the model gave it.
    async fn shown(&self, known: &OutputName, name: &str, from: u64, most: u64, context: &ToolContext) -> ToolOutput {
        // A caller must not learn whether an output of another session exists.
        if !self.is_own(known, context).await? {
            return Err(none_such(name));
        }
        match self.outputs.store.part(known, from, most).await {
            Ok(None) => Err(none_such(name)),
            Ok(Some(OutputPart { size, .. })) if from >= size && size > 0 => Err(ToolFailure::failed(format!(
                "The output has {size} bytes; there is none at {from}, the last one is at {}.",
                size - 1
            ))),
            Ok(Some(OutputPart { bytes, size })) => Ok(Part { from, bytes, size }.show(name).into()),
            Err(error) => {
                tracing::warn!(%error, "a kept output could not be read");
                Err(ToolFailure::failed("The output could not be read."))
            }
        }
    }
}

#[async_trait]
impl Tool for ReadOutput {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let Arguments { name, offset, limit } = arguments::read(arguments)?;
        if limit == Some(0) {
            return Err(ToolFailure::failed("limit counts from 1."));
        }
        let (from, most) = (offset.unwrap_or(0), limit.unwrap_or(MAX_SHOWN_BYTES).min(MAX_SHOWN_BYTES));
        let known = name.parse::<OutputName>().map_err(|_| none_such(&name))?;
        tokio::select! {
            () = context.cancel.cancelled() => Err(ToolFailure::Cancelled),
            shown = self.shown(&known, &name, from, most, context) => shown,
        }
    }
}

fn none_such(name: &str) -> ToolFailure {
    ToolFailure::failed(format!(
        "There is no output {name:?}; old outputs are removed after some time. Use a name from a result of this \
         conversation, or run the tool again."
    ))
}

/// A part of an output.
struct Part {
    /// Byte offset of the part.
    from: u64,
    bytes: Vec<u8>,
    /// Size of the whole output.
    size: u64,
}

impl Part {
    /// The part as text, cut at character boundaries.
    fn show(&self, name: &str) -> String {
        let at_start = if self.from == 0 { 0 } else { continuation_bytes(&self.bytes) };
        let until = self.from + self.bytes.len() as u64;
        let at_end = if until >= self.size { 0 } else { unfinished_bytes(&self.bytes[at_start..]) };
        let text = &self.bytes[at_start..self.bytes.len() - at_end];
        let (first, next) = (self.from + at_start as u64, until - at_end as u64);
        let mut shown = format!("[{name}: bytes {first} to {next} of {}]\n", self.size);
        shown.push_str(&String::from_utf8_lossy(text));
        if next < self.size {
            shown.push_str(&format!("\n[{} more; continue with offset {next}]", self.size - next));
        }
        shown
    }
}

/// Number of bytes at the beginning that continue an earlier character; at most 3.
fn continuation_bytes(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count()
}

/// Number of bytes at the end that begin an incomplete character. Never all bytes, so that each read makes progress.
fn unfinished_bytes(bytes: &[u8]) -> usize {
    match bytes.utf8_chunks().last() {
        Some(chunk) if chunk.invalid().len() < bytes.len() => {
            let cut_off = std::str::from_utf8(chunk.invalid()).is_err_and(|error| error.error_len().is_none());
            if cut_off { chunk.invalid().len() } else { 0 }
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_ends_and_begins_between_characters() {
        let whole = "aéz€".as_bytes();
        for (from, most, expected) in [
            (0, 7, "[n: bytes 0 to 7 of 7]\naéz€"),
            (0, 2, "[n: bytes 0 to 1 of 7]\na\n[6 more; continue with offset 1]"),
            (2, 2, "[n: bytes 3 to 4 of 7]\nz\n[3 more; continue with offset 4]"),
            (4, 2, "[n: bytes 4 to 6 of 7]\n\u{fffd}\n[1 more; continue with offset 6]"),
            (5, 9, "[n: bytes 7 to 7 of 7]\n"),
        ] {
            let bytes = whole[from..whole.len().min(from + most)].to_vec();
            let part = Part { from: from as u64, bytes, size: whole.len() as u64 };
            assert_eq!(part.show("n"), expected, "{from} {most}");
        }
    }
}
