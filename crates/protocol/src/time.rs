//! Dates for stored values. Durations are [`std::time::Duration`], and deadlines are `tokio::time::Instant`.

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00Z. Stored as an integer; RFC 3339 on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnixMillis(pub i64);

impl UnixMillis {
    /// The number of whole UTC days since 1970-01-01. Daily budgets count by it.
    pub fn utc_day(self) -> i64 {
        self.0.div_euclid(86_400_000)
    }

    /// The day in UTC, e.g. `2026-11-20`.
    pub fn day(self) -> String {
        let mut date = self.to_rfc3339();
        date.truncate(date.find('T').unwrap_or(date.len()));
        date
    }

    /// RFC 3339 in UTC with milliseconds, e.g. `2026-11-20T19:43:00.123Z`.
    pub fn to_rfc3339(self) -> String {
        // Civil-from-days, Howard Hinnant, http://howardhinnant.github.io/date_algorithms.html
        let days = self.utc_day();
        let ms = self.0.rem_euclid(86_400_000);
        let z = days + 719_468;
        let era = z.div_euclid(146_097);
        let doe = z.rem_euclid(146_097);
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let day = doy - (153 * mp + 2) / 5 + 1;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        let year = yoe + era * 400 + i64::from(month <= 2);
        let (h, m, s, milli) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000);
        format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{milli:03}Z")
    }
}

impl Serialize for UnixMillis {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_rfc3339())
    }
}

impl<'de> Deserialize<'de> for UnixMillis {
    /// Reads integer milliseconds, the stored form. The RFC 3339 form is for people and is never read back.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        i64::deserialize(deserializer).map(Self)
    }
}

/// Tells the date. A port, so that tests can move the date.
pub trait Clock: Send + Sync {
    /// The present date. It may jump in either direction, so the difference of two dates is no reliable duration.
    fn now(&self) -> UnixMillis;
}

#[cfg(test)]
mod tests {
    use super::UnixMillis;

    #[test]
    fn dates_are_written_as_rfc3339() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_795_203_780_123, "2026-11-20T19:43:00.123Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(UnixMillis(ms).to_rfc3339(), text);
        }
    }
}
