//! Concrete hooks.
