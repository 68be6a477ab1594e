//! Parses a time of day in the settings.

use jiff::civil::Time;

/// Parses `HH:MM`.
///
/// # Errors
/// The problem, as the rest of a sentence.
pub fn time_of_day(text: &str) -> Result<Time, String> {
    let wrong = || format!("{text:?} is no time of day: write hours and minutes as in \"04:00\"");
    let (hours, minutes) = text.split_once(':').ok_or_else(wrong)?;
    let number = |digits: &str| match digits.len() {
        2 if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
        _ => None,
    };
    let (hours, minutes) = number(hours).zip(number(minutes)).ok_or_else(wrong)?;
    Time::new(hours, minutes, 0, 0).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_is_hours_and_minutes() {
        for (text, fits) in [
            ("00:00", true),
            ("04:00", true),
            ("23:59", true),
            ("24:00", false),
            ("4:00", false),
            ("04:60", false),
            ("+4:00", false),
            ("04:00:00", false),
            ("", false),
        ] {
            assert_eq!(time_of_day(text).is_ok(), fits, "{text:?}");
        }
    }
}
