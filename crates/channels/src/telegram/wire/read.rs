//! Reads fields of a value. Nothing here fails: see the page of the module above.

use serde_json::Value;

/// A type that is read from a value that is there, and is not `null`.
pub(in crate::telegram) trait Read: Sized {
    /// `None`: the value is of another type.
    fn read(value: &Value) -> Option<Self>;
}

/// A type of a field, which may be missing.
pub(super) trait Field {
    /// The field with this value.
    fn field(value: Option<&Value>) -> Self;
}

impl<T: Read> Field for Option<T> {
    fn field(value: Option<&Value>) -> Self {
        value.filter(|value| !value.is_null()).and_then(T::read)
    }
}

impl<T: Read> Field for Vec<T> {
    fn field(value: Option<&Value>) -> Self {
        Option::field(value).unwrap_or_default()
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(value: &Value) -> Option<Self> {
        let items = value.as_array().into_iter().flatten();
        Some(items.filter(|item| !item.is_null()).filter_map(T::read).collect())
    }
}

impl<T: Read> Read for Box<T> {
    fn read(value: &Value) -> Option<Self> {
        T::read(value).map(Box::new)
    }
}

/// A number in place of a text is its digits.
impl Read for String {
    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }
}

impl Read for bool {
    fn read(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

impl Read for f64 {
    fn read(value: &Value) -> Option<Self> {
        value.as_f64()
    }
}

/// Digits in a text count as a number.
impl Read for i64 {
    fn read(value: &Value) -> Option<Self> {
        value.as_i64().or_else(|| value.as_str()?.parse().ok())
    }
}

impl Read for i32 {
    fn read(value: &Value) -> Option<Self> {
        i64::read(value)?.try_into().ok()
    }
}

impl Read for u64 {
    fn read(value: &Value) -> Option<Self> {
        i64::read(value)?.try_into().ok()
    }
}

impl Read for usize {
    fn read(value: &Value) -> Option<Self> {
        i64::read(value)?.try_into().ok()
    }
}

/// Fields of these types are empty, `false` or 0 where they are missing.
macro_rules! with_default {
    ($($type:ty),*) => {$(
        impl Field for $type {
            fn field(value: Option<&Value>) -> Self {
                Option::field(value).unwrap_or_default()
            }
        }
    )*};
}

with_default!(String, bool, i64, i32, u64);

/// Defines objects and reads them by the names of their fields, or by the name behind `=`. The fields behind `@flat`
/// are read from the object itself. A value that is no object is an object without fields.
macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$field_doc:meta])* $field:ident $(= $key:literal)?: $type:ty,)*
        $(@flat $flat:ident: $flat_type:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub(in crate::telegram) struct $name {
            $($(#[$field_doc])* pub(in crate::telegram) $field: $type,)*
            $(pub(in crate::telegram) $flat: $flat_type,)*
        }

        impl $crate::telegram::wire::read::Read for $name {
            fn read(value: &serde_json::Value) -> Option<Self> {
                #[allow(unused_imports)]
                use $crate::telegram::wire::read::Field;
                Some(Self {
                    $($field: Field::field(value.get(objects!(@key $field $($key)?))),)*
                    $($flat: $crate::telegram::wire::read::Read::read(value).unwrap_or_default(),)*
                })
            }
        }

        impl $crate::telegram::wire::read::Field for $name {
            fn field(value: Option<&serde_json::Value>) -> Self {
                Option::field(value).unwrap_or_default()
            }
        }
    )*};
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
}

pub(super) use objects;
