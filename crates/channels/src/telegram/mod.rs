//! t
mod format;
mod split;
mod styled;
