//! The mark of a store into which a migration (`transfer`) has not copied everything yet.

/// The edition of a store that is not complete: that of no schema. The bytes spell "migr".
pub(crate) const UNFINISHED: u32 = 0x6d69_6772;

/// What opening does with a store that has the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// It is refused.
    Refuse,
    /// It is opened, for a migration that empties it.
    Accept,
}
