//! Cursors: how far a channel has read a source of messages.

use std::sync::Arc;

/// The position up to which a channel has read one of its sources, such as the `since` of Matrix or the last UID of a
/// mailbox. [`Cursors`](crate::store::Cursors) keeps it over restarts.
///
/// A channel keeps a cursor only after the agent has acknowledged each message that it covers. After a crash before
/// that, the same messages are read again, and their [`IdempotencyKey`](crate::IdempotencyKey) makes the repetition
/// harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    name: Arc<str>,
    value: Arc<str>,
}

impl Cursor {
    /// The maximum length of a name, in bytes.
    pub const NAME_MAX: usize = 512;

    /// The maximum length of a value, in bytes.
    pub const VALUE_MAX: usize = 4096;

    /// The cursor of the source with this name within its channel.
    ///
    /// # Errors
    /// The name is empty, or one of the texts is too long.
    pub fn new(name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Result<Self, InvalidCursor> {
        let (name, value) = (name.into(), value.into());
        let fits = (1..=Self::NAME_MAX).contains(&name.len()) && value.len() <= Self::VALUE_MAX;
        if fits { Ok(Self { name, value }) } else { Err(InvalidCursor { name: name.len(), value: value.len() }) }
    }

    /// The source within the channel: an account, a room, a mailbox.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The position, in the form of the platform.
    pub fn value(&self) -> &str {
        &self.value
    }
}

/// A cursor that is not kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a cursor has a name of 1 to {} bytes and a value of at most {} bytes, not {name} and {value}",
    Cursor::NAME_MAX,
    Cursor::VALUE_MAX
)]
pub struct InvalidCursor {
    /// The length of the name.
    pub name: usize,
    /// The length of the value.
    pub value: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_cursor_are_bounded() {
        for (name, value, is_valid) in
            [(1, 0, true), (512, 4096, true), (0, 1, false), (513, 1, false), (1, 4097, false)]
        {
            let cursor = Cursor::new("n".repeat(name), "v".repeat(value));
            assert_eq!(cursor.is_ok(), is_valid, "{name} {value}");
            assert!(
                cursor.is_ok_and(|cursor| cursor.name().len() == name && cursor.value().len() == value) == is_valid
            );
        }
    }
}
