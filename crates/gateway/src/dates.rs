//! Dates in queries.

use belay_protocol::UnixMillis;

use crate::error::ApiError;

/// Parses a date of a query: an RFC 3339 date with time and offset, a UTC day, or a time before `now`, such as `90s`,
/// `30m`, `12h`, `7d` or `4w`. The last form does not depend on the clock of the client.
///
/// # Errors
/// 422 with the name of the field.
pub(crate) fn date(field: &str, text: &str, now: UnixMillis) -> Result<UnixMillis, ApiError> {
    parse(text, now).ok_or_else(|| {
        ApiError::invalid(format!(
            "{field}: must be a date (2026-11-20T19:43:00Z or 2026-11-20) or a time before now (30m, 12h, 7d)"
        ))
    })
}

/// [`date`] for an optional field.
pub(crate) fn optional(field: &str, text: Option<&str>, now: UnixMillis) -> Result<Option<UnixMillis>, ApiError> {
    text.map(|text| date(field, text, now)).transpose()
}

fn parse(text: &str, now: UnixMillis) -> Option<UnixMillis> {
    if let Some(ms) = span(text) {
        return now.0.checked_sub(ms).map(UnixMillis);
    }
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Some(UnixMillis(at.as_millisecond()));
    }
    // A day alone: a text with a time but without an offset is not a point in time.
    let day = (text.len() == 10).then(|| text.parse::<jiff::civil::Date>().ok()).flatten()?;
    let midnight = day.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(UnixMillis(midnight.timestamp().as_millisecond()))
}

/// The milliseconds of `7d`.
fn span(text: &str) -> Option<i64> {
    let unit = text.chars().next_back()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        _ => return None,
    };
    let number = &text[..text.len() - unit.len_utf8()];
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| number.parse::<i64>().ok()?.checked_mul(seconds)?.checked_mul(1000)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_days_and_times_before_now_are_understood() {
        let now = UnixMillis(1_795_203_780_000); // 2026-11-20T19:43:00Z
        for (text, expected) in [
            ("2026-11-20T19:43:00Z", Some("2026-11-20T19:43:00.000Z")),
            ("2026-11-20T20:43:00.5+01:00", Some("2026-11-20T19:43:00.500Z")),
            ("2026-11-20", Some("2026-11-20T00:00:00.000Z")),
            ("90s", Some("2026-11-20T19:41:30.000Z")),
            ("43m", Some("2026-11-20T19:00:00.000Z")),
            ("12h", Some("2026-11-20T07:43:00.000Z")),
            ("7d", Some("2026-11-13T19:43:00.000Z")),
            ("1w", Some("2026-11-13T19:43:00.000Z")),
            ("0d", Some("2026-11-20T19:43:00.000Z")),
            ("", None),
            ("d", None),
            ("-7d", None),
            ("7", None),
            ("7x", None),
            ("7é", None),
            ("1.5h", None),
            ("99999999999999999d", None),
            ("9223372036854775807w", None),
            ("2026-11-20T19:43:00", None),
            ("2026-13-01", None),
            ("yesterday", None),
        ] {
            assert_eq!(parse(text, now).map(UnixMillis::to_rfc3339).as_deref(), expected, "{text}");
        }
    }
}
