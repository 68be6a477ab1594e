//! A build without the feature `mcp` has no route `/mcp`: the setting `gateway.mcp` is refused.

use crate::app::Shared;
use crate::table::Table;

/// Adds nothing.
pub(crate) fn add_to(table: Table, _app: &Shared, _paths: [&'static str; 2]) -> Table {
    table
}
