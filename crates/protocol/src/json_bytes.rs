//! The length of a value as JSON.

use std::io;

use serde::Serialize;

/// Counts the bytes that are written to it, and keeps none.
struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The length of the JSON text of a value in bytes, without spaces. The text is not made. A value that is no JSON, as a map
/// with keys that are no text, counts up to the place that is none.
pub fn json_bytes(value: &impl Serialize) -> usize {
    let mut count = Count(0);
    // Counting never fails.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_length_is_that_of_the_text() {
        for value in [json!(null), json!("é\n\""), json!({"a": [1, 2.5, {}], "": "漢"}), json!([])] {
            assert_eq!(json_bytes(&value), value.to_string().len(), "{value}");
        }
    }
}
