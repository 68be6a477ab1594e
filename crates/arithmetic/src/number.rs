//! The numbers of the calculator: exact fractions while they are small, doubles beyond that.

use std::fmt;

use num::bigint::Sign;
use num::traits::Pow;
use num::{BigInt, BigRational, Integer, One, Signed, ToPrimitive, Zero};

/// Largest numerator or denominator that is kept exactly, in bits: 616 digits. A larger number is rounded, so that each
/// operation takes only a fraction of a millisecond.
pub(super) const MAX_BITS: u64 = 2048;

/// Most decimals that are written for an exact number.
const MAX_DECIMALS: usize = 40;

/// A number.
#[derive(Clone, Debug)]
pub(super) enum Number {
    /// A fraction, exact.
    Exact(BigRational),
    /// A rounded number; always finite.
    Rounded(f64),
}

pub(super) type Result<T = Number> = std::result::Result<T, String>;

impl Number {
    /// A rounded number.
    ///
    /// # Errors
    /// The value is NaN or infinite.
    pub(super) fn rounded(value: f64) -> Result {
        if value.is_nan() {
            return Err("The result is not a real number.".to_owned());
        }
        if value.is_infinite() {
            return Err("The result is too large to calculate.".to_owned());
        }
        Ok(Self::Rounded(value))
    }

    pub(super) fn integer(value: BigInt) -> Self {
        Self::Exact(BigRational::from_integer(value))
    }

    pub(super) fn to_f64(&self) -> f64 {
        match self {
            Self::Exact(value) => value.to_f64().unwrap_or(f64::NAN),
            Self::Rounded(value) => *value,
        }
    }

    /// The exact integer value, if the number has one.
    pub(super) fn as_integer(&self) -> Option<&BigInt> {
        match self {
            Self::Exact(value) if value.is_integer() => Some(value.numer()),
            _ => None,
        }
    }

    pub(super) fn is_zero(&self) -> bool {
        match self {
            Self::Exact(value) => value.is_zero(),
            Self::Rounded(value) => *value == 0.0,
        }
    }

    pub(super) fn less_than(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(a), Self::Exact(b)) => a < b,
            (a, b) => a.to_f64() < b.to_f64(),
        }
    }

    pub(super) fn negated(self) -> Self {
        match self {
            Self::Exact(value) => Self::Exact(-value),
            Self::Rounded(value) => Self::Rounded(-value),
        }
    }

    pub(super) fn plus(&self, other: &Self) -> Result {
        self.combine(other, |a, b| a + b, |a, b| a + b)
    }

    pub(super) fn minus(&self, other: &Self) -> Result {
        self.combine(other, |a, b| a - b, |a, b| a - b)
    }

    pub(super) fn times(&self, other: &Self) -> Result {
        self.combine(other, |a, b| a * b, |a, b| a * b)
    }

    pub(super) fn divided_by(&self, other: &Self) -> Result {
        if other.is_zero() {
            return Err("Division by zero.".to_owned());
        }
        self.combine(other, |a, b| a / b, |a, b| a / b)
    }

    /// The remainder. It has the sign of the divisor.
    pub(super) fn modulo(&self, other: &Self) -> Result {
        if other.is_zero() {
            return Err("Remainder of a division by zero.".to_owned());
        }
        self.combine(other, |a, b| a - b * (a / b).floor(), |a, b| a - b * (a / b).floor())
    }

    /// Raises to a power. The result is exact if the exponent is an integer and the result is small enough.
    pub(super) fn to_the(&self, exponent: &Self) -> Result {
        if self.is_zero() && exponent.less_than(&Self::integer(BigInt::zero())) {
            return Err("Division by zero: zero has no negative power.".to_owned());
        }
        if let (Self::Exact(base), Some(whole)) = (self, exponent.as_integer())
            && let Some(value) = exact_power(base, whole)
        {
            return Ok(Self::Exact(value));
        }
        match exponent {
            Self::Exact(e) if *e == BigRational::new(1.into(), 2.into()) => self.square_root(),
            _ => Self::rounded(self.to_f64().powf(exponent.to_f64())),
        }
    }

    /// The square root. It is exact if it is a fraction.
    pub(super) fn square_root(&self) -> Result {
        if let Self::Exact(value) = self
            && !value.is_negative()
        {
            let (n, d) = (value.numer().sqrt(), value.denom().sqrt());
            if &n * &n == *value.numer() && &d * &d == *value.denom() {
                return Ok(Self::Exact(BigRational::new(n, d)));
            }
        }
        Self::rounded(self.to_f64().sqrt())
    }

    fn combine(
        &self,
        other: &Self,
        exact: impl FnOnce(&BigRational, &BigRational) -> BigRational,
        rounded: impl FnOnce(f64, f64) -> f64,
    ) -> Result {
        if let (Self::Exact(a), Self::Exact(b)) = (self, other) {
            let value = exact(a, b);
            if is_small(&value) {
                return Ok(Self::Exact(value));
            }
            // An operation on two small numbers gives a number that is at most a few times as long. Converting the
            // result rounds once. Converting both operands first could overflow.
            return Self::rounded(value.to_f64().unwrap_or(f64::INFINITY));
        }
        Self::rounded(rounded(self.to_f64(), other.to_f64()))
    }
}

fn is_small(value: &BigRational) -> bool {
    value.numer().bits() <= MAX_BITS && value.denom().bits() <= MAX_BITS
}

/// The exact power of an integer exponent, if the result stays within [`MAX_BITS`].
fn exact_power(base: &BigRational, exponent: &BigInt) -> Option<BigRational> {
    if base.is_integer() && base.numer().bits() <= 1 {
        // The powers of 0, 1 and -1 are 0, 1 or -1, for any size of the exponent.
        let odd = exponent.is_odd();
        return Some(if exponent.is_zero() || (!odd && !base.is_zero()) { BigRational::one() } else { base.clone() });
    }
    let times = exponent.magnitude().to_u64()?;
    let bits = base.numer().bits().max(base.denom().bits());
    if bits.checked_mul(times)? > MAX_BITS {
        return None;
    }
    let value = BigRational::new(Pow::pow(base.numer(), times), Pow::pow(base.denom(), times));
    Some(if exponent.sign() == Sign::Minus { value.recip() } else { value })
}

impl fmt::Display for Number {
    /// Writes exact numbers in full, and rounded numbers as `≈` with 15 digits. Adds the fraction if it is short.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rounded(value) => write!(f, "≈ {}", fifteen_digits(*value)),
            Self::Exact(value) => match decimal(value) {
                Some(text) => f.write_str(&text),
                None => {
                    write!(f, "≈ {}", fifteen_digits(self.to_f64()))?;
                    let fraction = value.to_string();
                    if fraction.len() <= 24 { write!(f, " (exactly {fraction})") } else { Ok(()) }
                }
            },
        }
    }
}

/// The digits of a fraction that has at most [`MAX_DECIMALS`] decimals.
fn decimal(value: &BigRational) -> Option<String> {
    if value.is_integer() {
        return Some(value.numer().to_string());
    }
    let mut rest = value.denom().clone();
    let mut decimals = 0;
    for prime in [2u8, 5] {
        let mut count = 0;
        while rest.is_multiple_of(&BigInt::from(prime)) {
            rest /= prime;
            count += 1;
        }
        decimals = decimals.max(count);
    }
    if !rest.is_one() || decimals > MAX_DECIMALS {
        return None;
    }
    let scaled = (value * BigRational::from_integer(Pow::pow(BigInt::from(10), decimals))).to_integer();
    let digits = format!("{:0>width$}", scaled.magnitude().to_string(), width = decimals + 1);
    let (whole, behind) = digits.split_at(digits.len() - decimals);
    Some(format!("{}{whole}.{behind}", if value.is_negative() { "-" } else { "" }))
}

/// A rounded number with 15 significant digits, the precision of a double, without trailing zeros.
fn fifteen_digits(value: f64) -> String {
    let text = format!("{value:.14e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value == 0.0 {
        return "0".to_owned();
    }
    if !(-7..=20).contains(&exponent) {
        return format!("{}e{exponent}", trim_zeros(mantissa));
    }
    // `text` is already rounded. The following code only changes the notation of the same digits.
    let rounded: f64 = text.parse().unwrap_or(value);
    let decimals = usize::try_from(14 - exponent).unwrap_or(0);
    trim_zeros(&format!("{rounded:.decimals$}")).to_owned()
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}
