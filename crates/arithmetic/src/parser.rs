//! Parses and evaluates an expression in one pass, by recursive descent with a limited depth.
//!
//! ```text
//! sum     = product (("+" | "-") product)*
//! product = signed (("*" | "/" | "%") signed)*
//! signed  = ("-" | "+") signed | power
//! power   = postfix ("^" signed)?                  right to left, and tighter than a sign before it: -2^2 = -4
//! postfix = atom "!"*
//! atom    = number | constant | function "(" sum ("," sum)* ")" | "(" sum ")"
//! ```

use num::traits::Pow;
use num::{BigInt, BigRational};

use super::functions;
use super::number::{Number, Result};

/// Deepest nesting of parentheses, signs, functions and powers together.
pub(super) const MAX_DEPTH: usize = 64;

/// Largest decimal exponent in a number literal. `1e400` is larger than every double.
const MAX_EXPONENT: u32 = 400;

/// Parses the whole text as one expression and returns its value.
///
/// # Errors
/// A sentence for the model: the problem and its position.
pub(super) fn evaluate(text: &str) -> Result {
    if text.trim().is_empty() {
        return Err("The expression is empty.".to_owned());
    }
    let mut parser = Parser { text, at: 0, depth: 0, calls: 0 };
    let value = parser.sum()?;
    match parser.peek() {
        None => Ok(value),
        Some(',') => Err(parser.stray_comma()),
        Some(c) => Err(parser.unexpected(c)),
    }
}

struct Parser<'a> {
    text: &'a str,
    /// Byte offset of the next character.
    at: usize,
    /// Current depth of the recursion.
    depth: usize,
    /// Number of open function calls. Inside a call, a comma only separates arguments.
    calls: usize,
}

impl<'a> Parser<'a> {
    fn sum(&mut self) -> Result {
        let mut value = self.product()?;
        loop {
            if self.take(&["+"]) {
                value = value.plus(&self.product()?)?;
            } else if self.take(&["-", "−", "–"]) {
                value = value.minus(&self.product()?)?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result {
        let mut value = self.signed()?;
        loop {
            if self.take(&["*", "×", "·", "⋅"]) {
                value = value.times(&self.signed()?)?;
            } else if self.take(&["/", "÷"]) {
                value = value.divided_by(&self.signed()?)?;
            } else if self.take(&["%"]) {
                value = value.modulo(&self.signed()?)?;
            } else {
                return Ok(value);
            }
        }
    }

    /// Every recursion passes through this function, so the depth is counted here.
    fn signed(&mut self) -> Result {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("The expression is nested deeper than {MAX_DEPTH} levels. Split it."));
        }
        let value = if self.take(&["-", "−", "–"]) {
            self.signed()?.negated()
        } else if self.take(&["+"]) {
            self.signed()?
        } else {
            self.power()?
        };
        self.depth -= 1;
        Ok(value)
    }

    fn power(&mut self) -> Result {
        let base = self.postfix()?;
        if self.take(&["^", "**"]) { base.to_the(&self.signed()?) } else { Ok(base) }
    }

    fn postfix(&mut self) -> Result {
        let mut value = self.atom()?;
        while self.take(&["!"]) {
            value = functions::factorial(&value)?;
        }
        Ok(value)
    }

    fn atom(&mut self) -> Result {
        match self.peek() {
            None => Err("The expression ends where a number is expected.".to_owned()),
            Some('(') => {
                self.at += 1;
                let value = self.sum()?;
                self.close()?;
                Ok(value)
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_alphabetic() => self.named(),
            Some(c) => Err(self.unexpected(c)),
        }
    }

    fn named(&mut self) -> Result {
        let name = self.scan(|c| c.is_alphanumeric() || c == '_');
        if let Some(value) = functions::constant(name) {
            return Ok(value);
        }
        if !functions::is_function(name) {
            return Err(functions::unknown(name));
        }
        if !self.take(&["("]) {
            return Err(format!("{name} is a function: its argument stands in parentheses, as in {name}(2)."));
        }
        self.calls += 1;
        let mut arguments = Vec::new();
        if self.peek() != Some(')') {
            arguments.push(self.sum()?);
            while self.take(&[","]) {
                arguments.push(self.sum()?);
            }
        }
        self.close()?;
        self.calls -= 1;
        functions::apply(name, &arguments)
    }

    fn close(&mut self) -> Result<()> {
        match self.peek() {
            Some(')') => {
                self.at += 1;
                Ok(())
            }
            Some(',') => Err(self.stray_comma()),
            Some(c) => Err(self.unexpected(c)),
            None => Err("A closing parenthesis is missing.".to_owned()),
        }
    }

    /// Parses a number: digits with `_` or, outside function calls, `,` between groups of three; decimals; an exponent.
    fn number(&mut self) -> Result {
        let mut digits = self.digits();
        if self.calls == 0 && self.rest().starts_with(',') {
            self.groups(&mut digits)?;
        }
        let mut decimals = 0;
        if self.rest().starts_with('.') {
            self.at += 1;
            let behind = self.digits();
            decimals = behind.len();
            digits.push_str(&behind);
        }
        if digits.is_empty() {
            return Err(self.unexpected('.'));
        }
        let exponent = self.exponent()?;
        let whole: BigInt = digits.parse().map_err(|_| format!("{digits} is not a number."))?;
        let ten = |power: usize| BigRational::from_integer(Pow::pow(BigInt::from(10), power));
        let value = BigRational::from_integer(whole) / ten(decimals);
        let power = ten(exponent.unsigned_abs() as usize);
        let value = Number::Exact(if exponent < 0 { value / power } else { value * power });
        value.plus(&Number::integer(BigInt::from(0))) // a number too long to be kept exactly is rounded
    }

    fn digits(&mut self) -> String {
        self.scan(|c| c.is_ascii_digit() || c == '_').replace('_', "")
    }

    /// Parses `,ddd` groups after 1 to 3 digits. Each group must have exactly three digits; otherwise it is an error.
    fn groups(&mut self, digits: &mut String) -> Result<()> {
        if digits.is_empty() || digits.len() > 3 {
            return Err(self.stray_comma());
        }
        while self.rest().starts_with(',') {
            self.at += 1;
            let group = self.digits();
            if group.len() != 3 {
                return Err(self.stray_comma());
            }
            digits.push_str(&group);
        }
        Ok(())
    }

    /// Parses the decimal exponent after an `e`. An `e` without digits after it is not part of the number.
    fn exponent(&mut self) -> Result<i32> {
        let rest = self.rest();
        let Some(tail) = rest.strip_prefix(['e', 'E']) else { return Ok(0) };
        let unsigned = tail.strip_prefix(['+', '-']).unwrap_or(tail);
        let length = unsigned.bytes().take_while(u8::is_ascii_digit).count();
        if length == 0 {
            return Ok(0);
        }
        let number = unsigned[..length].parse().ok().filter(|n: &u32| *n <= MAX_EXPONENT);
        let number = number.ok_or_else(|| format!("The exponent of a number may be at most {MAX_EXPONENT}."))?;
        self.at += 1 + (tail.len() - unsigned.len()) + length;
        let number = i32::try_from(number).unwrap_or(0); // at most 400
        Ok(if tail.starts_with('-') { -number } else { number })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// The next character that is not white space.
    fn peek(&mut self) -> Option<char> {
        self.at = self.text.len() - self.rest().trim_start().len();
        self.rest().chars().next()
    }

    /// Consumes one of these signs if it comes next.
    fn take(&mut self, signs: &[&str]) -> bool {
        self.peek();
        // `**` is a power. A product must not consume its first half.
        if signs.contains(&"*") && self.rest().starts_with("**") {
            return false;
        }
        let taken = signs.iter().find(|sign| self.rest().starts_with(**sign)).map_or(0, |sign| sign.len());
        self.at += taken;
        taken > 0
    }

    fn scan(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let start = self.at;
        let length = self.rest().find(|c| !belongs(c)).unwrap_or(self.text.len() - start);
        self.at += length;
        &self.text[start..start + length]
    }

    fn unexpected(&self, found: char) -> String {
        let place = self.text[..self.at].chars().count() + 1;
        format!("Character {place}, {found:?}, is unexpected there.")
    }

    fn stray_comma(&self) -> String {
        "A comma stands between the arguments of a function, or groups thousands as in 1,000,000.".to_owned()
    }
}
