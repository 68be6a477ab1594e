//! The calculator's functions and constants.

use belay_text::near::{did_you_mean, nearest_names};
use num::traits::Pow;
use num::{BigInt, BigRational, Integer, One, ToPrimitive};

use super::number::{Number, Result};

/// Largest number whose factorial is calculated: 300! has 615 digits, the most that is kept exactly.
const MAX_FACTORIAL: u32 = 300;

/// Largest number of digits, positive or negative, that `round` accepts.
const MAX_ROUND_DIGITS: i64 = 100;

type Function = fn(&[Number]) -> Result;

/// Each function: its name, its minimum and maximum number of arguments, its implementation.
const FUNCTIONS: &[(&str, usize, usize, Function)] = &[
    ("abs", 1, 1, |a| if a[0].less_than(&zero()) { Ok(a[0].clone().negated()) } else { Ok(a[0].clone()) }),
    ("acos", 1, 1, |a| Number::rounded(a[0].to_f64().acos())),
    ("asin", 1, 1, |a| Number::rounded(a[0].to_f64().asin())),
    ("atan", 1, 1, |a| Number::rounded(a[0].to_f64().atan())),
    ("atan2", 2, 2, |a| Number::rounded(a[0].to_f64().atan2(a[1].to_f64()))),
    ("cbrt", 1, 1, |a| Number::rounded(a[0].to_f64().cbrt())),
    ("ceil", 1, 1, |a| whole(&a[0], BigRational::ceil)),
    ("cos", 1, 1, |a| Number::rounded(a[0].to_f64().cos())),
    ("exp", 1, 1, |a| Number::rounded(a[0].to_f64().exp())),
    ("floor", 1, 1, |a| whole(&a[0], BigRational::floor)),
    ("gcd", 2, 2, |a| Ok(Number::integer(integer(&a[0])?.gcd(integer(&a[1])?)))),
    ("lcm", 2, 2, |a| Number::integer(integer(&a[0])?.lcm(integer(&a[1])?)).plus(&zero())),
    ("ln", 1, 1, |a| Number::rounded(a[0].to_f64().ln())),
    ("log", 2, 2, |a| Number::rounded(a[0].to_f64().ln() / a[1].to_f64().ln())),
    ("log10", 1, 1, |a| Number::rounded(a[0].to_f64().log10())),
    ("log2", 1, 1, |a| Number::rounded(a[0].to_f64().log2())),
    ("max", 1, 100, |a| Ok(extreme(a, |best, next| best.less_than(next)))),
    ("min", 1, 100, |a| Ok(extreme(a, |best, next| next.less_than(best)))),
    ("pow", 2, 2, |a| a[0].to_the(&a[1])),
    ("round", 1, 2, round),
    ("sin", 1, 1, |a| Number::rounded(a[0].to_f64().sin())),
    ("sqrt", 1, 1, |a| a[0].square_root()),
    ("tan", 1, 1, |a| Number::rounded(a[0].to_f64().tan())),
    ("trunc", 1, 1, |a| whole(&a[0], BigRational::trunc)),
];

const CONSTANTS: &[(&str, f64)] = &[
    ("e", std::f64::consts::E),
    ("pi", std::f64::consts::PI),
    ("π", std::f64::consts::PI),
    ("tau", std::f64::consts::TAU),
    ("τ", std::f64::consts::TAU),
];

/// The value of a constant. The name is case-insensitive.
pub(super) fn constant(name: &str) -> Option<Number> {
    let (_, value) = CONSTANTS.iter().find(|(known, _)| *known == name.to_lowercase())?;
    Some(Number::Rounded(*value))
}

/// Whether a function with this name exists. The name is case-insensitive.
pub(super) fn is_function(name: &str) -> bool {
    FUNCTIONS.iter().any(|(known, ..)| *known == name.to_lowercase())
}

/// The error text for an unknown name.
pub(super) fn unknown(name: &str) -> String {
    let names = FUNCTIONS.iter().map(|(known, ..)| *known).chain(CONSTANTS.iter().map(|(known, _)| *known));
    format!("There is no {name} here.{}", did_you_mean(&nearest_names(name, names, 2)))
}

/// Applies a function.
pub(super) fn apply(name: &str, arguments: &[Number]) -> Result {
    let lower = name.to_lowercase();
    let Some((_, fewest, most, function)) = FUNCTIONS.iter().find(|(known, ..)| *known == lower) else {
        return Err(unknown(name));
    };
    if !(*fewest..=*most).contains(&arguments.len()) {
        let wanted = if fewest == most { fewest.to_string() } else { format!("{fewest} to {most}") };
        return Err(format!("{lower} takes {wanted} argument(s), here are {}.", arguments.len()));
    }
    function(arguments)
}

/// The factorial of a whole number from 0 to [`MAX_FACTORIAL`].
pub(super) fn factorial(number: &Number) -> Result {
    let n = number.as_integer().and_then(ToPrimitive::to_u64);
    let n = n.ok_or("A factorial needs a whole number from 0 on.")?;
    if n > u64::from(MAX_FACTORIAL) {
        return Err(format!("The factorial is calculated for at most {MAX_FACTORIAL}."));
    }
    Ok(Number::integer((1..=n).fold(BigInt::one(), |product, k| product * k)))
}

fn zero() -> Number {
    Number::integer(BigInt::from(0))
}

fn integer(number: &Number) -> Result<&BigInt> {
    number.as_integer().ok_or_else(|| "This function needs whole numbers.".to_owned())
}

fn extreme(numbers: &[Number], better: impl Fn(&Number, &Number) -> bool) -> Number {
    let mut best = &numbers[0];
    for next in &numbers[1..] {
        if better(best, next) {
            best = next;
        }
    }
    best.clone()
}

/// Rounds to an integer. The result is exact even for a rounded number, because a double has an exact value.
fn whole(number: &Number, how: fn(&BigRational) -> BigRational) -> Result {
    Ok(Number::Exact(how(&exact(number)?)))
}

fn exact(number: &Number) -> Result<BigRational> {
    match number {
        Number::Exact(value) => Ok(value.clone()),
        Number::Rounded(value) => {
            BigRational::from_float(*value).ok_or_else(|| "The result is not a real number.".to_owned())
        }
    }
}

/// `round(x)` and `round(x, digits)`: rounds half away from zero.
fn round(arguments: &[Number]) -> Result {
    let digits = match arguments.get(1) {
        None => 0,
        Some(digits) => integer(digits)?
            .to_i64()
            .filter(|n| n.abs() <= MAX_ROUND_DIGITS)
            .ok_or_else(|| format!("round takes from -{MAX_ROUND_DIGITS} to {MAX_ROUND_DIGITS} digits."))?,
    };
    let ten = BigRational::from_integer(Pow::pow(BigInt::from(10), digits.unsigned_abs()));
    let scale = if digits < 0 { ten.recip() } else { ten };
    Ok(Number::Exact((exact(&arguments[0])? * &scale).round() / scale))
}
