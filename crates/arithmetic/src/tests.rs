//! Tests for results, refusals and run time of the calculator.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use belay_testkit::clock::processor_time;
use proptest::prelude::*;

use super::*;

fn check(rows: &[(&str, &str)]) {
    for (expression, expected) in rows {
        assert_eq!(evaluate(expression).as_deref(), Ok(*expected), "{expression}");
    }
}

#[test]
fn arithmetic_is_exact() {
    check(&[
        ("17*23", "391"),
        ("0.1+0.2", "0.3"),
        ("1.10 - 1", "0.1"),
        ("2^64", "18446744073709551616"),
        ("2^100 - 1", "1267650600228229401496703205375"),
        ("123456789012345678901234567890 * 10", "1234567890123456789012345678900"),
        ("10/4", "2.5"),
        ("1/8 + 1/8", "0.25"),
        ("1/3*3", "1"),
        ("2^-2", "0.25"),
        ("(1/2)^3", "0.125"),
        ("1e3 + 1.5e-1", "1000.15"),
        (".5 + 5.", "5.5"),
        ("0^0", "1"),
        ("5!", "120"),
        ("-3!", "-6"),
        ("25!", "15511210043330985984000000"),
        ("1_000_000 / 8", "125000"),
        ("-0", "0"),
        ("(-1)^1000000000000000000001", "-1"),
    ]);
}

#[test]
fn operators_bind_as_in_mathematics() {
    check(&[
        ("2+3*4", "14"),
        ("(2+3)*4", "20"),
        ("10-3-2", "5"),
        ("100/10/2", "5"),
        ("2*3%4", "2"),
        ("-2^2", "-4"),
        ("(-2)^2", "4"),
        ("2^3^2", "512"),
        ("2*-3^2", "-18"),
        ("2--3", "5"),
        ("2 - -+-3", "-1"),
        ("2**3", "8"),
        ("7%3", "1"),
        ("-7%3", "2"),
        ("7%-3", "-2"),
        ("5.5%2", "1.5"),
        ("6×7", "42"),
        ("8÷2", "4"),
        ("5−3", "2"),
        ("3·4", "12"),
        ("2\t+\n2 ", "4"),
    ]);
}

#[test]
fn commas_group_thousands_only_where_they_can_mean_nothing_else() {
    check(&[("1,000 * 2", "2000"), ("1,234,567.5 + 0.5", "1234568"), ("(1,000)", "1000"), ("max(1,000)", "1")]);
    for bad in ["1,00", "1,0000", "1000,000", "1,", "12,345,6", "1,000,"] {
        let error = evaluate(bad).unwrap_err();
        assert!(error.contains("comma"), "{bad}: {error}");
    }
}

#[test]
fn functions_and_constants_work() {
    check(&[
        ("sqrt(16)", "4"),
        ("sqrt(2.25)", "1.5"),
        ("4^0.5", "2"),
        ("sqrt(2)", "≈ 1.4142135623731"),
        ("cbrt(27)", "≈ 3"),
        ("abs(-3)", "3"),
        ("floor(-2.5)", "-3"),
        ("ceil(2.1)", "3"),
        ("trunc(-2.9)", "-2"),
        ("round(2.5)", "3"),
        ("round(3.14159, 2)", "3.14"),
        ("round(1234, -2)", "1200"),
        ("round(sqrt(2), 3)", "1.414"),
        ("min(3, 1, 2)", "1"),
        ("max(1, max(2, 3))", "3"),
        ("gcd(12, 18)", "6"),
        ("lcm(4, 6)", "12"),
        ("pow(2, 10)", "1024"),
        ("log10(1000)", "≈ 3"),
        ("log(8, 2)", "≈ 3"),
        ("ln(e)", "≈ 1"),
        ("sin(0)", "≈ 0"),
        ("cos(pi)", "≈ -1"),
        ("2*π", "≈ 6.28318530717959"),
        ("atan2(1, 1)*4", "≈ 3.14159265358979"),
        ("SQRT(9) + PI*0", "≈ 3"),
        ("10^100 * 1.5", &format!("15{}", "0".repeat(99))),
    ]);
}

#[test]
fn a_rounded_result_is_marked() {
    check(&[
        ("1/3", "≈ 0.333333333333333 (exactly 1/3)"),
        ("-22/7", "≈ -3.14285714285714 (exactly -22/7)"),
        ("2/3*10^30", "≈ 6.66666666666667e29"),
        ("10^-30/3", "≈ 3.33333333333333e-31"),
        ("2^1000.5", "≈ 1.51534200448232e301"),
    ]);
}

#[test]
fn an_invalid_expression_is_a_failure_with_the_reason() {
    for (expression, expected_text) in [
        ("1/0", "zero"),
        ("1%0", "zero"),
        ("0^-1", "zero"),
        ("1/(2-2)", "zero"),
        ("sqrt(-1)", "not a real number"),
        ("(-8)^(1/3)", "not a real number"),
        ("ln(0)", "too large"),
        ("asin(2)", "not a real number"),
        ("10^10^10", "too large"),
        ("9^9^9^9", "too large"),
        ("exp(1000)", "too large"),
        ("2^3000", "too large"),
        ("1000!", "at most 300"),
        ("2.5!", "whole"),
        ("(-1)!", "whole"),
        ("gcd(1.5, 2)", "whole"),
        ("1e9999", "exponent"),
        ("", "empty"),
        ("  ", "empty"),
        ("1+", "ends"),
        ("(1", "closing parenthesis"),
        ("1)", "unexpected"),
        ("1 2", "unexpected"),
        ("2pi", "unexpected"),
        ("*2", "unexpected"),
        ("1.2.3", "unexpected"),
        ("2 & 3", "unexpected"),
        ("()", "unexpected"),
        ("sqrt", "parentheses"),
        ("sqrt()", "argument"),
        ("sqrt(1, 2)", "argument"),
        ("squrt(4)", "Did you mean sqrt?"),
        ("x + 1", "no x"),
        ("\u{202e}1", "unexpected"),
        ("1\0", "unexpected"),
        ("🦀", "unexpected"),
    ] {
        match evaluate(expression) {
            Err(error) => assert!(error.contains(expected_text), "{expression}: {error}"),
            Ok(value) => panic!("{expression} = {value}"),
        }
    }
}

#[test]
fn long_and_deep_input_is_bounded() {
    for expression in [
        "(".repeat(1000),
        "-".repeat(999) + "1",
        "sqrt(".repeat(200),
        "2^".repeat(499) + "1",
        "abs(-".repeat(100) + "1",
    ] {
        assert!(evaluate(&expression).unwrap_err().contains("nested"), "{expression}");
    }
    assert!(evaluate(&"1+".repeat(501)).unwrap_err().contains("at most 1000"));
    let deepest = format!("{}1{}", "(".repeat(63), ")".repeat(63));
    assert_eq!(evaluate(&deepest).as_deref(), Ok("1"));
    assert_eq!(evaluate(&format!("1{}", "+1".repeat(499))).as_deref(), Ok("500"));
}

#[test]
fn the_worst_expressions_take_no_time_to_speak_of() {
    for expression in [
        format!("1{}", "+300!/299!/7".repeat(80)),
        format!("3^1200{}", "/7^700*7^701".repeat(80)),
        "300!*".repeat(199) + "1",
        format!("1{}", "+1/997".repeat(160)),
        "((2^2000+1)/(3^1200))^1".to_owned() + &"+1/3^1200".repeat(100),
        "9999999999^99+".repeat(70) + "1",
    ] {
        let before = processor_time();
        let _ = evaluate(&expression);
        let used = processor_time() - before;
        assert!(used < Duration::from_secs(2), "{used:?} for {expression}");
    }
}

/// A tree of + - * over integers, as its text and its value in `i128`.
fn tree() -> impl Strategy<Value = (String, i128)> {
    let leaf = (-1000i128..1000).prop_map(|n| if n < 0 { (format!("({n})"), n) } else { (n.to_string(), n) });
    leaf.prop_recursive(5, 32, 2, |inner| {
        (inner.clone(), 0..3usize, inner).prop_map(|((a, x), op, (b, y))| match op {
            0 => (format!("({a} + {b})"), x + y),
            1 => (format!("({a}-{b})"), x - y),
            _ => (format!("{a} * {b}"), x * y),
        })
    })
}

/// The value of a flat chain of + - *: products first, then sums from the left.
fn flat_value(first: i128, rest: &[(char, i128)]) -> i128 {
    let (mut sum, mut product) = (0, first);
    for (op, n) in rest {
        match op {
            '*' => product *= n,
            '+' => (sum, product) = (sum + product, *n),
            _ => (sum, product) = (sum + product, -n),
        }
    }
    sum + product
}

proptest! {
    #[test]
    fn nested_sums_and_products_agree_with_the_reference((text, value) in tree()) {
        prop_assume!(text.len() <= MAX_EXPRESSION_BYTES);
        prop_assert_eq!(evaluate(&text), Ok(value.to_string()));
    }

    #[test]
    fn flat_chains_agree_with_the_reference(
        first in 0i128..100,
        rest in proptest::collection::vec((prop_oneof![Just('+'), Just('-'), Just('*')], 0i128..100), 0..15),
    ) {
        let text = rest.iter().fold(first.to_string(), |text, (op, n)| format!("{text}{op}{n}"));
        prop_assert_eq!(evaluate(&text), Ok(flat_value(first, &rest).to_string()));
    }

    #[test]
    fn any_text_has_a_value_or_a_reason(text in "[-0-9a-z+*/^%().,! πé]{0,60}|.{0,40}") {
        match evaluate(&text) {
            Ok(value) => prop_assert!(!value.is_empty()),
            Err(reason) => prop_assert!(reason.len() > 10),
        }
    }
}
