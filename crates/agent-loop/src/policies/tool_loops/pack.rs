//! Packs lists of small fixed-size records into one string, four characters for three bytes.
//!
//! The state of this policy is stored at each step of a run. As JSON numbers, its digests would take ten characters for
//! four bytes. Packed, they take five and a third.

use std::collections::VecDeque;

use serde::{Deserialize, Deserializer, Serializer};

/// A record of fixed size.
pub(super) trait Packed: Sized {
    /// Bytes of one record.
    const SIZE: usize;
    /// Appends the record.
    fn put(&self, out: &mut Text);
    /// Reads a record back from exactly `SIZE` bytes.
    fn take(bytes: &mut Bytes<'_>) -> Self;
}

/// Bytes that are read from the front. Missing bytes read as zeros.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl Bytes<'_> {
    /// The next `N` bytes.
    pub(super) fn next<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let have = N.min(self.0.len());
        out[..have].copy_from_slice(&self.0[..have]);
        self.0 = &self.0[have..];
        out
    }

    /// The next number of two bytes.
    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.next())
    }

    /// The next number of four bytes.
    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.next())
    }

    /// The next number of eight bytes.
    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.next())
    }
}

impl Packed for u32 {
    const SIZE: usize = 4;

    fn put(&self, out: &mut Text) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn take(bytes: &mut Bytes<'_>) -> Self {
        bytes.u32()
    }
}

/// The alphabet of RFC 4648 §5 (base64url): nothing in it needs an escape in JSON.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Bytes that become text as they come, so that they are stored nowhere else.
pub(super) struct Text {
    letters: String,
    /// Bytes that are not written yet, in the order of their places.
    held: [u8; 3],
    count: usize,
}

impl Text {
    fn for_bytes(count: usize) -> Self {
        Self { letters: String::with_capacity(count.div_ceil(3) * 4), held: [0; 3], count: 0 }
    }

    /// Appends a byte.
    pub(super) fn push(&mut self, byte: u8) {
        self.held[self.count] = byte;
        self.count += 1;
        if self.count == 3 {
            self.write();
        }
    }

    /// Appends bytes.
    pub(super) fn extend_from_slice(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.push(*byte));
    }

    fn write(&mut self) {
        let [a, b, c] = std::mem::take(&mut self.held);
        let bits = u32::from_be_bytes([0, a, b, c]);
        for place in 0..=std::mem::take(&mut self.count) {
            self.letters.push(char::from(LETTERS[(bits >> (18 - 6 * place)) as usize & 63]));
        }
    }

    fn end(mut self) -> String {
        if self.count > 0 {
            self.write();
        }
        self.letters
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for four in text.as_bytes().chunks(4) {
        let mut bits = 0u32;
        for place in 0..4 {
            let value = match four.get(place) {
                Some(letter) => LETTERS.iter().position(|known| known == letter)? as u32,
                None => 0,
            };
            bits = bits << 6 | value;
        }
        out.extend_from_slice(&bits.to_be_bytes()[1..four.len().max(1)]);
    }
    Some(out)
}

/// Serialises a list.
pub(super) fn serialize<T: Packed, S: Serializer>(items: &VecDeque<T>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut text = Text::for_bytes(items.len() * T::SIZE);
    for item in items {
        item.put(&mut text);
    }
    serializer.serialize_str(&text.end())
}

/// Deserialises a list. Unreadable text gives an empty list: a detector without its state starts to count again, but a
/// run that cannot be loaded is lost.
pub(super) fn deserialize<'de, T: Packed, D: Deserializer<'de>>(deserializer: D) -> Result<VecDeque<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let bytes = decode(&text).filter(|bytes| bytes.len() % T::SIZE == 0).unwrap_or_default();
    Ok(bytes.chunks(T::SIZE).map(|record| T::take(&mut Bytes(record))).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_packed_list_is_none() {
        for text in ["!", "AAA=", "é"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn bytes_survive_packing(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut text = Text::for_bytes(bytes.len());
            text.extend_from_slice(&bytes);
            prop_assert_eq!(decode(&text.end()), Some(bytes));
        }
    }
}
