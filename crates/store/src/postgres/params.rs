//! Values on their way to PostgreSQL and back.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use bytes::BytesMut;
pub(crate) use tokio_postgres::Row as PgRow;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::fault::{Cause, Ended, PgError};
use crate::value::{Kind, Param, Value, ValueRef};

/// The type of a parameter. It is given to the server with each statement, so that the server infers none.
pub(super) fn type_of(kind: Kind) -> Type {
    match kind {
        Kind::Int => Type::INT8,
        Kind::Real => Type::FLOAT8,
        Kind::Text => Type::TEXT,
        Kind::Blob => Type::BYTEA,
    }
}

/// A parameter as the client takes it.
pub(super) struct Bound<'a>(Param<'a>);

impl<'a> Bound<'a> {
    /// Borrows the parameter.
    pub(super) fn new(param: &'a Param<'_>) -> Self {
        Self(match param {
            Param::Null(kind) => Param::Null(*kind),
            Param::Int(int) => Param::Int(*int),
            Param::Real(real) => Param::Real(*real),
            Param::Text(text) => Param::Text(Cow::Borrowed(text)),
            Param::Blob(bytes) => Param::Blob(Cow::Borrowed(bytes)),
            Param::Id(id) => Param::Id(*id),
        })
    }
}

impl Bound<'static> {
    /// Copies the parameter, for a statement that is answered later.
    pub(super) fn copy(param: &Param<'_>) -> Self {
        let value: Value = match param {
            Param::Null(kind) => Param::Null(*kind),
            Param::Int(int) => Param::Int(*int),
            Param::Real(real) => Param::Real(*real),
            Param::Text(text) => Param::Text(Cow::Owned(text.clone().into_owned())),
            Param::Blob(bytes) => Param::Blob(Cow::Owned(bytes.clone().into_owned())),
            Param::Id(id) => Param::Id(*id),
        };
        Self(value)
    }
}

/// The kind alone: the client logs parameters at the level debug, and the log must not contain texts of messages.
impl fmt::Debug for Bound<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.kind())
    }
}

impl ToSql for Bound<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match &self.0 {
            Param::Null(_) => Ok(IsNull::Yes),
            Param::Int(int) => int.to_sql(ty, out),
            Param::Real(real) => real.to_sql(ty, out),
            // PostgreSQL has no texts with this character.
            Param::Text(text) if text.contains('\0') => text.replace('\0', "\u{fffd}").to_sql(ty, out),
            Param::Text(text) => (&**text).to_sql(ty, out),
            Param::Blob(bytes) => (&**bytes).to_sql(ty, out),
            Param::Id(id) => id.as_bytes().as_slice().to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true // each statement is prepared with the types of its parameters
    }

    to_sql_checked!();
}

/// The place of the column with this name. `None`: there is none.
pub(crate) fn index_of(row: &PgRow, name: &str) -> Option<usize> {
    row.columns().iter().position(|column| column.name() == name)
}

/// The value of a column.
///
/// # Errors
/// There is no such column, its type is not one of the store's, or a sum is out of the range of 64 bits.
pub(crate) fn value(row: &PgRow, index: usize) -> Result<ValueRef<'_>, PgError> {
    match row.try_get::<_, Read<'_>>(index) {
        Ok(Read(value)) => Ok(value),
        Err(error) => Err(PgError::new(Cause::Value, Ended::Nothing, column_problem(row, index, &error))),
    }
}

/// The problem without the value.
fn column_problem(row: &PgRow, index: usize, error: &tokio_postgres::Error) -> String {
    let column = row.columns().get(index).map(|column| format!("{} of type {}", column.name(), column.type_()));
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("the column {}{cause}", column.unwrap_or_else(|| index.to_string()))
}

/// A value of any type that the store has.
struct Read<'a>(ValueRef<'a>);

impl<'a> FromSql<'a> for Read<'a> {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(match *ty {
            Type::INT8 => ValueRef::Int(i64::from_sql(ty, raw)?),
            Type::INT4 => ValueRef::Int(i32::from_sql(ty, raw)?.into()),
            Type::INT2 => ValueRef::Int(i16::from_sql(ty, raw)?.into()),
            Type::BOOL => ValueRef::Int(bool::from_sql(ty, raw)?.into()),
            Type::FLOAT8 => ValueRef::Real(f64::from_sql(ty, raw)?),
            Type::FLOAT4 => ValueRef::Real(f32::from_sql(ty, raw)?.into()),
            Type::NUMERIC => ValueRef::Int(whole(raw).ok_or("the number is not whole, or has more than 64 bits")?),
            Type::BYTEA => ValueRef::Blob(raw),
            _ => ValueRef::Text(std::str::from_utf8(raw)?),
        }))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(ValueRef::Null))
    }

    fn accepts(ty: &Type) -> bool {
        let known = [
            Type::INT8,
            Type::INT4,
            Type::INT2,
            Type::BOOL,
            Type::FLOAT8,
            Type::FLOAT4,
            Type::NUMERIC,
            Type::BYTEA,
            Type::TEXT,
            Type::VARCHAR,
            Type::NAME,
            Type::BPCHAR,
            Type::UNKNOWN,
        ];
        known.contains(ty)
    }
}

/// A NUMERIC as a whole number of 64 bits: `SUM` of BIGINT is one.
///
/// Its wire format is not documented; it is that of `numeric_send` in PostgreSQL's
/// src/backend/utils/adt/numeric.c: the number of digits to the base 10,000, the weight of the first one, the sign, the
/// scale, and the digits, each in 16 bits.
fn whole(raw: &[u8]) -> Option<i64> {
    let mut words = raw.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let digits = words.next()?;
    let weight = words.next()?.cast_signed();
    let negative = match words.next()? {
        0 => false,
        0x4000 => true,
        _ => return None, // NaN and infinity
    };
    words.next()?;
    let mut sum: i128 = 0;
    for place in 0..i32::from(digits) {
        let digit = i128::from(words.next()?);
        match i32::from(weight) - place {
            // 10,000 to the power of 4 is the highest that 64 bits can have.
            power @ 0..=4 => sum += digit * 10_000_i128.pow(power.unsigned_abs()),
            _ if digit == 0 => {}
            _ => return None,
        }
    }
    i64::try_from(if negative { -sum } else { sum }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numeric_is_read_exactly_or_not_at_all() {
        let numeric = |weight: i16, sign: u16, digits: &[u16]| {
            let head = [u16::try_from(digits.len()).unwrap(), weight.cast_unsigned(), sign, 0];
            head.iter().chain(digits).flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>()
        };
        for (raw, expected) in [
            (numeric(0, 0, &[]), Some(0)),
            (numeric(0, 0, &[7]), Some(7)),
            (numeric(1, 0x4000, &[1, 2]), Some(-10_002)),
            (numeric(1, 0, &[3]), Some(30_000)),
            (numeric(4, 0, &[922, 3372, 368, 5477, 5807]), Some(i64::MAX)),
            (numeric(4, 0x4000, &[922, 3372, 368, 5477, 5808]), Some(i64::MIN)),
            (numeric(4, 0, &[922, 3372, 368, 5477, 5808]), None),
            (numeric(5, 0, &[1]), None),
            (numeric(0, 0, &[1, 5000]), None),
            (numeric(0, 0, &[1, 0]), Some(1)),
            (numeric(0, 0xC000, &[]), None),
            (vec![0, 1, 0], None),
        ] {
            assert_eq!(whole(&raw), expected, "{raw:?}");
        }
    }

    #[test]
    fn the_log_of_the_client_sees_no_value() {
        assert_eq!(format!("{:?}", Bound::new(&Param::Text("secret".into()))), "Text");
    }

    #[test]
    fn a_nul_character_is_replaced() {
        let mut out = BytesMut::new();
        Bound::new(&Param::Text("a\0b".into())).to_sql(&Type::TEXT, &mut out).unwrap();
        assert_eq!(&out[..], "a\u{fffd}b".as_bytes());
    }
}
