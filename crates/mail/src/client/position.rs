//! How far the mailbox was read: a cursor. Pure.

use std::fmt::{self, Display};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Days by which a search begins early: the server's date of a mail has its own time zone.
const MARGIN_DAYS: i64 = 2;

/// A place in the mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The UIDs belong to this `UIDVALIDITY`.
    pub(crate) validity: u32,
    /// The lowest UID that was not read.
    pub(crate) next: u32,
    /// When it was written down, in seconds since 1970. After a change of the validity, later mails are read again.
    pub(crate) at: i64,
}

impl Position {
    /// `None`: the text is no position.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(' ');
        let (validity, next, at) =
            (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        parts.next().is_none().then_some(Self { validity, next, at })
    }

    /// The search for the mails that came after the position, whatever their UIDs are.
    pub(crate) fn since(&self) -> String {
        let at = Timestamp::from_second(self.at - MARGIN_DAYS * 86_400).unwrap_or(Timestamp::UNIX_EPOCH);
        format!("SINCE {}", at.to_zoned(TimeZone::UTC).strftime("%-d-%b-%Y"))
    }
}

impl Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.validity, self.next, self.at)
    }
}

/// When a mail arrived, in milliseconds since 1970, from an `INTERNALDATE`. `None`: it is no date.
pub(crate) fn arrived_ms(date: &str) -> Option<i64> {
    let arrived = Timestamp::strptime("%d-%b-%Y %H:%M:%S %z", date.trim());
    arrived.ok().map(Timestamp::as_millisecond)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_one_line() {
        let position = Position { validity: 4_294_967_295, next: 7, at: 1_796_000_000 };
        assert_eq!(Position::parse(&position.to_string()), Some(position));
        for text in ["", "1 2", "1 2 3 4", "1 -2 3", "x"] {
            assert_eq!(Position::parse(text), None, "{text}");
        }
        assert_eq!(Position { at: 1_796_083_200, ..position }.since(), "SINCE 29-Nov-2026");
    }

    #[test]
    fn the_date_of_a_server_is_read() {
        assert_eq!(arrived_ms("01-Dec-2026 01:00:00 +0100"), arrived_ms(" 1-Dec-2026 00:00:00 +0000"));
        assert_eq!(arrived_ms("30-Nov-2026 00:00:01 +0000"), Some(1_795_996_801_000));
        assert_eq!(arrived_ms("yesterday"), None);
    }
}
