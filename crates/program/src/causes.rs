//! An error with what has caused it, in one line.

/// The message of an error with its causes: in many libraries only the last one says what is wrong. A cause that is said
/// already is left out, also one that says the same around it: SQLite's `disk I/O error` has the cause
/// `Error code 10: disk I/O error`.
pub fn words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut newest = words.clone();
    for cause in std::iter::successors(error.source(), |cause| cause.source()) {
        let more = cause.to_string();
        let last = newest.rsplit(": ").next().unwrap_or_default().to_lowercase();
        let is_said = words.contains(&more) || (!last.is_empty() && more.to_lowercase().contains(&last));
        // A number and its general meaning, below what SQLite itself has said.
        if !is_said && !more.starts_with("Error code ") {
            words.push_str(": ");
            words.push_str(&more);
            newest = more;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Said(&'static str, Option<Box<Said>>);

    impl fmt::Display for Said {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Said {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn nothing_is_said_twice() {
        for (said, expected) in [
            (&["/b/x: Permission denied", "Permission denied"][..], "/b/x: Permission denied"),
            (
                &["the store cannot be used: disk I/O error", "disk I/O error", "Error code 10: disk I/O error"],
                "the store cannot be used: disk I/O error",
            ),
            (
                &["database or disk is full", "Error code 13: Insertion failed because database is full"],
                "database or disk is full",
            ),
            (&["cannot listen", "Address in use (os error 98)"], "cannot listen: Address in use (os error 98)"),
            (
                &["request failed", "tcp connect error", "Connection refused (os error 111)"],
                "request failed: tcp connect error: Connection refused (os error 111)",
            ),
        ] {
            let chain = said.iter().rev().fold(None, |cause, text| Some(Box::new(Said(text, cause))));
            assert_eq!(words(&*chain.expect("an error")), expected);
        }
    }
}
