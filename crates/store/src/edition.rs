//! The edition of a schema before the first release.

/// Distinguishes the editions of a first migration, which all have the same number: FNV-1a of its text, in 31 bits.
pub(crate) const fn edition(text: &[u8]) -> u32 {
    let (mut hash, mut at) = (0x811c_9dc5_u32, 0);
    while at < text.len() {
        hash = (hash ^ text[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    hash >> 1
}
