//! Tools that act on the world.
