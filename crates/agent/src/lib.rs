//! The outer loop: route, serialise, delegate, deliver.
