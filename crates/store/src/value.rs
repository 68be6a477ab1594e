//! Values that statements take and rows give, the same for each database.
//!
//! A database knows four kinds of values: whole numbers, real numbers, texts and bytes. Flags are numbers (0 and 1),
//! identifiers are the 16 bytes of a UUID, dates are milliseconds.

use std::borrow::Cow;
use std::sync::Arc;

use uuid::Uuid;

/// The kind of a value. A missing value has one too, because PostgreSQL gives each parameter a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A whole number of 64 bits.
    Int,
    /// A real number of 64 bits.
    Real,
    /// A text.
    Text,
    /// Bytes.
    Blob,
}

/// A parameter of a statement. Long values are borrowed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Param<'a> {
    /// No value.
    Null(Kind),
    /// A whole number, a date or a flag.
    Int(i64),
    /// A real number.
    Real(f64),
    /// A text.
    Text(Cow<'a, str>),
    /// Bytes, or the 16 bytes of an identifier.
    Blob(Cow<'a, [u8]>),
    /// An identifier.
    Id(Uuid),
}

/// A parameter that owns its value.
pub(crate) type Value = Param<'static>;

impl Param<'_> {
    /// The kind of the value.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "SQLite needs no types of parameters"))]
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Null(kind) => *kind,
            Self::Int(_) => Kind::Int,
            Self::Real(_) => Kind::Real,
            Self::Text(_) => Kind::Text,
            Self::Blob(_) | Self::Id(_) => Kind::Blob,
        }
    }
}

/// A type whose values can be parameters.
pub(crate) trait ToParam {
    /// The kind of all its values.
    const KIND: Kind;

    /// The parameter.
    fn to_param(&self) -> Param<'_>;
}

macro_rules! ints {
    ($($int:ty),*) => {$(
        impl ToParam for $int {
            const KIND: Kind = Kind::Int;
            fn to_param(&self) -> Param<'_> {
                Param::Int(i64::from(*self))
            }
        }
        impl From<$int> for Param<'_> {
            fn from(int: $int) -> Self {
                Self::Int(i64::from(int))
            }
        }
    )*};
}

ints!(i64, i32, u32, u16, u8, bool);

impl ToParam for Param<'_> {
    const KIND: Kind = Kind::Text; // unused: a parameter knows its own kind
    fn to_param(&self) -> Param<'_> {
        match self {
            Self::Text(text) => Param::Text(Cow::Borrowed(text)),
            Self::Blob(bytes) => Param::Blob(Cow::Borrowed(bytes)),
            Self::Null(kind) => Param::Null(*kind),
            Self::Int(int) => Param::Int(*int),
            Self::Real(real) => Param::Real(*real),
            Self::Id(id) => Param::Id(*id),
        }
    }
}

impl ToParam for f64 {
    const KIND: Kind = Kind::Real;
    fn to_param(&self) -> Param<'_> {
        Param::Real(*self)
    }
}

impl ToParam for str {
    const KIND: Kind = Kind::Text;
    fn to_param(&self) -> Param<'_> {
        Param::Text(Cow::Borrowed(self))
    }
}

impl ToParam for String {
    const KIND: Kind = Kind::Text;
    fn to_param(&self) -> Param<'_> {
        Param::Text(Cow::Borrowed(self))
    }
}

impl ToParam for Arc<str> {
    const KIND: Kind = Kind::Text;
    fn to_param(&self) -> Param<'_> {
        Param::Text(Cow::Borrowed(self))
    }
}

impl ToParam for [u8] {
    const KIND: Kind = Kind::Blob;
    fn to_param(&self) -> Param<'_> {
        Param::Blob(Cow::Borrowed(self))
    }
}

impl ToParam for Vec<u8> {
    const KIND: Kind = Kind::Blob;
    fn to_param(&self) -> Param<'_> {
        Param::Blob(Cow::Borrowed(self))
    }
}

impl ToParam for Uuid {
    const KIND: Kind = Kind::Blob;
    fn to_param(&self) -> Param<'_> {
        Param::Id(*self)
    }
}

impl<T: ToParam + ?Sized> ToParam for &T {
    const KIND: Kind = T::KIND;
    fn to_param(&self) -> Param<'_> {
        (**self).to_param()
    }
}

impl<T: ToParam> ToParam for Option<T> {
    const KIND: Kind = T::KIND;
    fn to_param(&self) -> Param<'_> {
        self.as_ref().map_or(Param::Null(T::KIND), T::to_param)
    }
}

impl From<String> for Param<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<Vec<u8>> for Param<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Blob(Cow::Owned(bytes))
    }
}

impl From<Uuid> for Param<'_> {
    fn from(id: Uuid) -> Self {
        Self::Id(id)
    }
}

impl<'a, T: ToParam + Into<Param<'a>>> From<Option<T>> for Param<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Param::Null(T::KIND), Into::into)
    }
}

/// The parameters of a statement: by number (`?1`, `?`), or by name (`:name`).
pub(crate) trait Params {
    /// The values, in order.
    fn values(&self) -> &[Param<'_>];

    /// The names of the values, each with its colon. None: the statement numbers them.
    fn names(&self) -> &[&'static str] {
        &[]
    }
}

impl<const N: usize> Params for [Param<'_>; N] {
    fn values(&self) -> &[Param<'_>] {
        self
    }
}

impl Params for Vec<Param<'_>> {
    fn values(&self) -> &[Param<'_>] {
        self
    }
}

impl Params for &[Param<'_>] {
    fn values(&self) -> &[Param<'_>] {
        self
    }
}

/// Parameters by name. [`named_params`] makes them.
pub(crate) struct Named<'a, const N: usize> {
    pub(crate) names: [&'static str; N],
    pub(crate) values: [Param<'a>; N],
}

impl<const N: usize> Params for Named<'_, N> {
    fn values(&self) -> &[Param<'_>] {
        &self.values
    }

    fn names(&self) -> &[&'static str] {
        &self.names
    }
}

/// The parameters of a statement by number, each of a type that is [`ToParam`].
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        [$($crate::value::ToParam::to_param(&$value)),*]
    };
}

/// The parameters of a statement by name.
macro_rules! named_params {
    ($($name:literal: $value:expr),* $(,)?) => {
        $crate::value::Named { names: [$($name),*], values: [$($crate::value::ToParam::to_param(&$value)),*] }
    };
}

pub(crate) use {named_params, params};

/// A value of a row, which borrows from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ValueRef<'a> {
    /// No value.
    Null,
    /// A whole number or a flag.
    Int(i64),
    /// A real number.
    Real(f64),
    /// A text.
    Text(&'a str),
    /// Bytes.
    Blob(&'a [u8]),
}

impl<'a> ValueRef<'a> {
    /// The text. `None`: the value is of another kind.
    pub(crate) fn as_str(self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// A type that a value can be read as.
pub(crate) trait FromValue: Sized {
    /// Reads the value. `None`: it is of another kind, or out of range.
    fn from_value(value: ValueRef<'_>) -> Option<Self>;
}

macro_rules! from_ints {
    ($($int:ty),*) => {$(
        impl FromValue for $int {
            fn from_value(value: ValueRef<'_>) -> Option<Self> {
                let ValueRef::Int(int) = value else { return None };
                Self::try_from(int).ok()
            }
        }
    )*};
}

from_ints!(i64, u32, u16, u8);

impl FromValue for bool {
    fn from_value(value: ValueRef<'_>) -> Option<Self> {
        let ValueRef::Int(int) = value else { return None };
        Some(int != 0)
    }
}

impl FromValue for f64 {
    fn from_value(value: ValueRef<'_>) -> Option<Self> {
        let ValueRef::Real(real) = value else { return None };
        Some(real)
    }
}

impl FromValue for String {
    fn from_value(value: ValueRef<'_>) -> Option<Self> {
        value.as_str().map(Into::into)
    }
}

impl FromValue for Arc<str> {
    fn from_value(value: ValueRef<'_>) -> Option<Self> {
        value.as_str().map(Into::into)
    }
}

impl FromValue for Vec<u8> {
    fn from_value(value: ValueRef<'_>) -> Option<Self> {
        let ValueRef::Blob(bytes) = value else { return None };
        Some(bytes.to_vec())
    }
}

impl FromValue for Uuid {
    fn from_value(value: ValueRef<'_>) -> Option<Self> {
        let ValueRef::Blob(bytes) = value else { return None };
        Self::from_slice(bytes).ok()
    }
}

impl FromValue for Value {
    fn from_value(value: ValueRef<'_>) -> Option<Self> {
        Some(match value {
            ValueRef::Null => Self::Null(Kind::Text),
            ValueRef::Int(int) => Self::Int(int),
            ValueRef::Real(real) => Self::Real(real),
            ValueRef::Text(text) => Self::Text(Cow::Owned(text.to_owned())),
            ValueRef::Blob(bytes) => Self::Blob(Cow::Owned(bytes.to_vec())),
        })
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: ValueRef<'_>) -> Option<Self> {
        match value {
            ValueRef::Null => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}
