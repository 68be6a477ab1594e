//! The formats of texts in forms. Pure.

pub(super) fn is_email(text: &str) -> bool {
    let parts = text.split_once('@');
    parts.is_some_and(|(name, host)| !name.is_empty() && host.contains('.') && !host.contains('@'))
        && !text.contains(char::is_whitespace)
}

pub(super) fn is_uri(text: &str) -> bool {
    let scheme = text.split_once(':').map(|(scheme, rest)| (scheme.as_bytes(), !rest.is_empty()));
    scheme.is_some_and(|(scheme, rest)| {
        rest && scheme.first().is_some_and(u8::is_ascii_alphabetic)
            && scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
    }) && !text.contains(char::is_whitespace)
}

/// Whether a text is a day of the calendar, as in RFC 3339.
pub(super) fn is_date(text: &str) -> bool {
    if !has_shape(text, "0000-00-00") {
        return false;
    }
    let (year, month, day) = (number(text, 0..4), number(text, 5..7), number(text, 8..10));
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// Whether a text is a time with its zone, as in RFC 3339. A minute may have a leap second.
pub(super) fn is_time(text: &str) -> bool {
    let text = text.to_ascii_uppercase();
    let (Some(day), Some(clock), Some(rest)) = (text.get(..10), text.get(10..19), text.get(19..)) else { return false };
    let zone = match rest.strip_prefix('.') {
        Some(digits) => {
            let zone = digits.trim_start_matches(|c: char| c.is_ascii_digit());
            if zone.len() == digits.len() {
                return false;
            }
            zone
        }
        None => rest,
    };
    let is_clock = has_shape(clock, "T00:00:00")
        && number(clock, 1..3) <= 23
        && number(clock, 4..6) <= 59
        && number(clock, 7..9) <= 60;
    let is_offset =
        has_shape(&zone.replacen('-', "+", 1), "+00:00") && number(zone, 1..3) <= 23 && number(zone, 4..6) <= 59;
    is_date(day) && is_clock && (zone == "Z" || is_offset)
}

/// Whether a text has this shape: `0` stands for a digit.
fn has_shape(text: &str, shape: &str) -> bool {
    text.len() == shape.len()
        && text.bytes().zip(shape.bytes()).all(|(byte, of)| if of == b'0' { byte.is_ascii_digit() } else { byte == of })
}

/// The number in a part of a text that has a shape.
fn number(text: &str, at: std::ops::Range<usize>) -> u32 {
    text.get(at).and_then(|part| part.parse().ok()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_days_of_the_calendar_and_times_of_a_day_are_taken() {
        for day in ["2026-07-28", "2024-02-29", "2000-02-29", "2026-12-31"] {
            assert!(is_date(day), "{day}");
        }
        for day in ["2026-02-31", "2026-02-29", "1900-02-29", "2026-04-31", "2026-13-01", "2026-00-10", "2026-1-1", "ä"]
        {
            assert!(!is_date(day), "{day}");
        }
        for time in ["00:00:00Z", "23:59:60z", "12:00:00.25Z", "12:00:00+02:00", "12:00:00.5-05:30"] {
            assert!(is_time(&format!("2026-07-28T{time}")), "{time}");
        }
        for time in ["99:99:99Z", "24:00:00Z", "12:60:00Z", "12:00:61Z", "12:00:00", "12:00:00.Z", "12:00:005Z"] {
            assert!(!is_time(&format!("2026-07-28T{time}")), "{time}");
        }
        assert!(!is_time("2026-07-28T12:00:00+24:00") && !is_time("2026-07-28T12:00:00+01:60"));
        assert!(!is_time("2026-02-31T12:00:00Z") && !is_time("2026-07-28 12:00:00Z"));
    }
}
