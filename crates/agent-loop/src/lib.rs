//! The inner loop and its rules for stopping.
