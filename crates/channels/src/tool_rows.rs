//! A row for each tool call that has ended, made of what a run does at a time.

use belay_protocol::LiveState;
use belay_terminal::ToolRow;

/// The calls that have a row already.
#[derive(Debug, Default)]
pub struct ToolRows {
    shown: u32,
}

impl ToolRows {
    /// Takes what the run does now, and returns the rows of the calls that have ended since.
    pub fn rows(&mut self, state: &LiveState) -> Vec<ToolRow> {
        let new = state.ended.iter().filter(|ended| ended.number > self.shown);
        let rows = new.map(|ended| ToolRow {
            tool: ended.call.tool.clone(),
            argument: ended.call.argument.clone(),
            took: ended.took,
            is_success: ended.is_success,
        });
        let rows = rows.collect();
        self.shown = state.ended.last().map_or(self.shown, |last| last.number);
        rows
    }
}
