//! How far the mailbox was read: a cursor. Pure.

use std::fmt::{self, Display};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Days by which a search begins early: the server's date of a mail has its own time zone.
const MARGIN_DAYS: i64 = 2;

const DAY_S: i64 = 86_400;

/// The difference that the clocks of the server and of this machine may have, in seconds.
const CLOCKS_S: i64 = 600;

/// A place in the mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The UIDs belong to this `UIDVALIDITY`.
    pub(crate) validity: u32,
    /// The lowest UID that was not read.
    pub(crate) next: u32,
    /// When it was written down, in seconds since 1970. After a change of the validity, later mails are read again.
    pub(crate) at: i64,
    /// Mails that arrived before are not read, in seconds since 1970: the first start, or the time from which mails
    /// were read again after a change of the validity.
    pub(crate) oldest: i64,
}

impl Position {
    /// The end of the mailbox at the first start.
    pub(crate) fn first(validity: u32, next: u32, now: i64) -> Self {
        Self { validity, next, at: now, oldest: now - CLOCKS_S }
    }

    /// `None`: the text is no position. One without its last part is from before that part was kept.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(' ');
        let (validity, next) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let at: i64 = parts.next()?.parse().ok()?;
        let oldest = match parts.next() {
            Some(oldest) => oldest.parse().ok()?,
            None => at.saturating_sub(CLOCKS_S),
        };
        parts.next().is_none().then_some(Self { validity, next, at, oldest })
    }

    /// The position after a change of the validity.
    pub(crate) fn renewed(self, validity: u32, next: u32) -> Self {
        Self { validity, next, oldest: self.oldest.max(self.at.saturating_sub(MARGIN_DAYS * DAY_S)), ..self }
    }

    /// Whether a mail is older than all that is read. One without a date is not.
    pub(crate) fn is_too_old(&self, arrived: &str) -> bool {
        arrived_ms(arrived).is_some_and(|at| at < self.oldest.saturating_mul(1000))
    }

    /// The search for the mails that came after the position, whatever their UIDs are.
    pub(crate) fn since(&self) -> String {
        let at = Timestamp::from_second(self.at - MARGIN_DAYS * DAY_S).unwrap_or(Timestamp::UNIX_EPOCH);
        format!("SINCE {}", at.to_zoned(TimeZone::UTC).strftime("%-d-%b-%Y"))
    }
}

impl Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.validity, self.next, self.at, self.oldest)
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
        let position = Position { validity: 4_294_967_295, next: 7, at: 1_796_000_000, oldest: 1_790_000_000 };
        assert_eq!(Position::parse(&position.to_string()), Some(position));
        for text in ["", "1 2", "1 2 3 4 5", "1 2 3 x", "1 -2 3", "x"] {
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

    #[test]
    fn old_mails_are_not_read_under_new_uids() {
        let first = Position::first(1, 5, 1_796_000_000);
        assert!(first.is_too_old("29-Nov-2026 00:00:00 +0000") && !first.is_too_old("30-Nov-2026 00:53:20 +0000"));
        assert!(!first.is_too_old(""));
        assert_eq!(first.renewed(2, 1).oldest, first.oldest, "never before the first start");
        let later = Position { at: first.at + 10 * DAY_S, ..first }.renewed(2, 1);
        assert_eq!((later.validity, later.next, later.oldest), (2, 1, first.at + 8 * DAY_S));
        assert_eq!(Position::parse("1 5 1796000000"), Some(first));
    }
}
