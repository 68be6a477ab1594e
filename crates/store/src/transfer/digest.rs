//! A digest of the rows of a table, the same on both engines and in every order of the rows.
//!
//! It is the sum of the SHA-256 digests of the rows, in four numbers of 64 bits without their overflow. The order of two
//! texts may differ between the engines, because a character that PostgreSQL does not have is replaced. The sum finds
//! damage; it is no defence against a person who chooses rows so that their sums are equal.

use aws_lc_rs::digest::{Context, SHA256};

use crate::value::Param;

/// A number of rows, and their digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) rows: u64,
    lanes: [u64; 4],
}

impl Sum {
    /// Adds a row.
    pub(super) fn add(&mut self, row: &[Param<'_>]) {
        let mut context = Context::new(&SHA256);
        for value in row {
            match value {
                Param::Null(_) => context.update(&[0]),
                Param::Int(int) => update(&mut context, 1, &int.to_be_bytes()),
                Param::Real(real) => update(&mut context, 2, &real.to_bits().to_be_bytes()),
                Param::Text(text) => update(&mut context, 3, text.as_bytes()),
                Param::Blob(bytes) => update(&mut context, 4, bytes),
                Param::Id(id) => update(&mut context, 4, id.as_bytes()),
            }
        }
        let digest = context.finish();
        for (lane, bytes) in self.lanes.iter_mut().zip(digest.as_ref().chunks_exact(8)) {
            let bytes = bytes.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte));
            *lane = lane.wrapping_add(bytes);
        }
        self.rows += 1;
    }

    /// The digest in 64 hexadecimal digits.
    pub(super) fn hex(&self) -> String {
        self.lanes.iter().map(|lane| format!("{lane:016x}")).collect()
    }
}

/// A value with its kind and its length: two rows have the same bytes only if they are equal.
fn update(context: &mut Context, kind: u8, bytes: &[u8]) {
    context.update(&[kind]);
    context.update(&(bytes.len() as u64).to_be_bytes());
    context.update(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{Kind, Value};

    fn sum(rows: &[&[Value]]) -> String {
        let mut sum = Sum::default();
        rows.iter().for_each(|row| sum.add(row));
        sum.hex()
    }

    #[test]
    fn the_order_of_rows_does_not_matter_and_every_value_does() {
        let text = |text: &str| Value::from(text.to_owned());
        let (a, b) = ([text("a"), text("bc")], [text("ab"), text("c")]);
        assert_eq!(sum(&[&a, &b]), sum(&[&b, &a]));
        let blob = Value::from(b"a".to_vec());
        let none = Value::Null(Kind::Text);
        let rows: Vec<Vec<Value>> = vec![
            a.to_vec(),
            b.to_vec(),
            vec![text("abc")],
            vec![text("a"), blob.clone()],
            vec![text("a"), none.clone()],
            vec![none, text("a")],
            vec![text("")],
            vec![blob],
            vec![text("a")],
            vec![Value::Int(97)],
            vec![Value::Real(97.0)],
        ];
        let sums: std::collections::BTreeSet<String> = rows.iter().map(|row| sum(&[row])).collect();
        assert_eq!(sums.len(), rows.len());
        assert_ne!(sum(&[&a, &a, &b, &b]), sum(&[]), "equal rows do not cancel each other");
        assert_eq!(sum(&[]), "0".repeat(64));
    }
}
