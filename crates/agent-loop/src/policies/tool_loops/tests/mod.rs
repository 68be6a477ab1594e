//! Tables and properties of the whole policy.

mod measure;
mod notation;
mod properties;
mod runs;
mod table;
