//! Tables and properties of loop detection in tool calls as a whole.

mod cases;
mod gain;
mod measure;
mod notation;
mod properties;
mod runs;
mod table;
