//! A build without the feature `responses` has no `/v1/responses`: its paths say so.

use crate::table::Table;

/// The routes of this API, for people.
pub(super) const ROUTES: &str = "";

/// The beginning of its paths, and why the build has none of them.
pub(super) const ABSENT: Option<(&str, &str)> = Some((
    "/v1/responses",
    "this build of Belay has no Responses API (feature responses); `belay --version --long` lists the parts of a build",
));

/// No routes.
pub(crate) fn table() -> Table {
    Table::new()
}
