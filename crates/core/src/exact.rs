//! Exact numbers: decimals of any accepted length for comparison, and money that fits `rust_decimal`.
//! Absent on purpose: binary floats and rounding. What does not fit is refused, never shortened (AADP §18.3).

use std::cmp::Ordering;
use std::fmt;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::ids::Parsed;

/// Digits that fit a machine's number, whichever they are.
const SMALL_DIGITS_MAX: usize = 18;

/// A decimal of any length: sign, significant digits and power of ten, normalised so that equality is identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Exact {
    negative: bool,
    /// Without leading or trailing zeros; empty for zero.
    digits: String,
    /// Power of ten of the last digit.
    exponent: i32,
}

impl Exact {
    /// Reads the decimal-string grammar `-?(0|[1-9][0-9]*)(\.[0-9]+)?`, ASCII only (AADP §18.3).
    pub fn parse_decimal(text: &str) -> Option<Self> {
        Self::parse(text, false)
    }

    /// Reads a JSON number token, exponent included; the caller has checked its length (AADP §18.1).
    pub fn parse_number(token: &str) -> Option<Self> {
        Self::parse(token, true)
    }

    fn parse(text: &str, exponent_allowed: bool) -> Option<Self> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, power) = match rest.split_once(['e', 'E']) {
            Some((mantissa, power)) if exponent_allowed => {
                (mantissa, power.strip_prefix('+').unwrap_or(power).parse::<i32>().ok()?)
            }
            Some(_) => return None,
            None => (rest, 0),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (mantissa, ""),
        };
        let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        let whole_ok = whole == "0" || (!whole.is_empty() && !whole.starts_with('0'));
        if !whole_ok || !all_digits(whole) || !all_digits(fraction) {
            return None;
        }
        let exponent = power.checked_sub(i32::try_from(fraction.len()).ok()?)?;
        let mut digits = String::with_capacity(whole.len() + fraction.len());
        digits.push_str(whole);
        digits.push_str(fraction);
        Some(Self::normal(negative, digits, exponent))
    }

    fn normal(negative: bool, mut digits: String, exponent: i32) -> Self {
        let kept = digits.trim_end_matches('0').len();
        let dropped = i32::try_from(digits.len() - kept).unwrap_or(0);
        digits.truncate(kept);
        let zeros = digits.len() - digits.trim_start_matches('0').len();
        digits.drain(..zeros);
        if digits.is_empty() {
            return Self { negative: false, digits, exponent: 0 };
        }
        Self { negative, digits, exponent: exponent.saturating_add(dropped) }
    }

    /// The same value as money, when `rust_decimal` holds it exactly: 28 significant digits, scale at most 28.
    pub fn to_amount(&self) -> Option<Amount> {
        // Amounts of everyday fit a machine's number.
        let scale = u32::try_from(-i64::from(self.exponent)).ok().filter(|scale| *scale <= Decimal::MAX_SCALE);
        if let (Some(scale), true) = (scale, self.digits.len() <= SMALL_DIGITS_MAX) {
            let digits: i64 = if self.digits.is_empty() { 0 } else { self.digits.parse().ok()? };
            return Some(Amount(Decimal::new(if self.negative { -digits } else { digits }, scale)));
        }
        let text = self.to_string();
        let decimal = Decimal::from_str_exact(&text).ok()?;
        let back = Self::parse_decimal(&decimal.normalize().to_string())?;
        (back == *self).then_some(Amount(decimal.normalize()))
    }

    /// Below zero.
    pub fn is_negative(&self) -> bool {
        self.negative
    }

    fn magnitude_cmp(&self, other: &Self) -> Ordering {
        if self.digits.is_empty() || other.digits.is_empty() {
            return self.digits.len().min(1).cmp(&other.digits.len().min(1));
        }
        let top = |e: &Self| i64::from(e.exponent) + i64::try_from(e.digits.len()).unwrap_or(i64::MAX);
        // Equal leading powers make digit strings comparable as text: a proper prefix is the smaller number.
        top(self).cmp(&top(other)).then_with(|| self.digits.cmp(&other.digits))
    }
}

impl Ord for Exact {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.magnitude_cmp(other),
            (true, true) => other.magnitude_cmp(self),
        }
    }
}

impl PartialOrd for Exact {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Exact {
    /// The canonical form of AADP §14.5: `250`, `0.5`, `0`; never an exponent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.digits.is_empty() {
            return f.write_str("0");
        }
        let sign = if self.negative { "-" } else { "" };
        if self.exponent >= 0 {
            let zeros = "0".repeat(usize::try_from(self.exponent).unwrap_or(0));
            return write!(f, "{sign}{}{zeros}", self.digits);
        }
        let scale = usize::try_from(-i64::from(self.exponent)).unwrap_or(0);
        let padded = format!("{:0>width$}", self.digits, width = scale + 1);
        let (whole, fraction) = padded.split_at(padded.len() - scale);
        write!(f, "{sign}{whole}.{fraction}")
    }
}

impl Serialize for Exact {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Parsed(Self::parse_decimal, "a decimal string"))
    }
}

/// An amount of money or of any other unit: exact, checked, canonical when written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Amount(Decimal);

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(Decimal::ZERO);
    /// One call, for rate budgets.
    pub const ONE: Self = Self(Decimal::ONE);

    /// Reads the decimal-string grammar; `None` when it is another form or does not fit exactly (AADP §18.3).
    pub fn parse(text: &str) -> Option<Self> {
        Self::parse_small(text).or_else(|| Exact::parse_decimal(text)?.to_amount())
    }

    /// An amount of few digits, without text of its own: every entry that is read holds some. `None` says nothing.
    fn parse_small(text: &str) -> Option<Self> {
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
        let plain = whole == "0" || !(whole.is_empty() || whole.starts_with('0'));
        if !plain || fraction.is_empty() || whole.len() + fraction.len() > SMALL_DIGITS_MAX {
            return None;
        }
        let mut digits = 0i64;
        for byte in whole.bytes().chain(fraction.bytes()) {
            if !byte.is_ascii_digit() {
                return None;
            }
            digits = digits * 10 + i64::from(byte - b'0');
        }
        let signed = if unsigned.len() < text.len() { -digits } else { digits };
        Some(Self(Decimal::new(signed, u32::try_from(fraction.len()).ok()?).normalize()))
    }

    /// The sum; `None` when it does not fit exactly. `rust_decimal` may round a sum whose scale is too fine, so the
    /// result must give back what went in.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let sum = self.0.checked_add(other.0)?;
        let exact = sum.checked_sub(other.0)? == self.0 && sum.checked_sub(self.0)? == other.0;
        exact.then_some(Self(sum))
    }

    /// The sum, rounded up where it does not fit exactly: a counter may hold too much, never too little.
    pub fn add_at_least(self, other: Self) -> Self {
        if let Some(sum) = self.checked_add(other) {
            return sum;
        }
        let rounded = self.0.checked_add(other.0);
        let above = rounded.and_then(|sum| sum.checked_add(Decimal::new(1, sum.scale())));
        Self(above.unwrap_or(Decimal::MAX))
    }

    /// Whether every sum of such amounts up to `limit` fits exactly, in whatever parts it is held.
    pub fn adds_up_to(self, limit: Self) -> bool {
        const DIGITS_MAX: usize = 28;
        let fraction = usize::try_from(self.0.normalize().scale()).unwrap_or(usize::MAX);
        let whole = || limit.0.trunc().normalize().to_string().trim_start_matches('-').len();
        fraction == 0 || whole().saturating_add(fraction) <= DIGITS_MAX
    }

    /// The difference, not below zero: a counter never becomes a credit.
    pub fn minus_clamped(self, other: Self) -> Self {
        Self(self.0.checked_sub(other.0).unwrap_or(Decimal::ZERO).max(Decimal::ZERO))
    }

    /// Below zero.
    pub fn is_negative(self) -> bool {
        self.0 < Decimal::ZERO
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let normal = self.0.normalize();
        if normal.is_zero() { f.write_str("0") } else { write!(f, "{normal}") }
    }
}

impl Serialize for Amount {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Parsed(Self::parse, "an exact decimal string"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_forms_keep_every_digit() {
        let sixty = "9".repeat(60);
        for (token, canonical) in [
            ("250", "250"),
            ("250.00", "250"),
            ("2.5E+2", "250"),
            ("-0", "0"),
            ("0.50", "0.5"),
            ("1e-3", "0.001"),
            ("-12.30", "-12.3"),
            (sixty.as_str(), sixty.as_str()),
        ] {
            assert_eq!(Exact::parse_number(token).map(|e| e.to_string()).as_deref(), Some(canonical), "{token}");
        }
    }

    #[test]
    fn decimal_strings_have_one_grammar() {
        for bad in ["", "+1", "01", ".5", "5.", "1e2", " 1", "1 ", "1,0", "٣", "NaN", "Infinity", "--1"] {
            assert_eq!(Exact::parse_decimal(bad), None, "{bad}");
        }
    }

    #[test]
    fn comparison_never_rounds() {
        let cmp = |a: &str, b: &str| Exact::parse_number(a).unwrap().cmp(&Exact::parse_number(b).unwrap());
        assert_eq!(cmp("500.0000000000000000001", "500"), Ordering::Greater);
        assert_eq!(cmp("499.9999999999999999999999999999999999999", "500"), Ordering::Less);
        assert_eq!(cmp("-1", "1"), Ordering::Less);
        assert_eq!(cmp("-2", "-1"), Ordering::Less);
        assert_eq!(cmp("0", "0.0001"), Ordering::Less);
        assert_eq!(cmp("0", "-0.0001"), Ordering::Greater);
        assert_eq!(cmp("1e2", "100.0"), Ordering::Equal);
    }

    /// Goal: the short way for small amounts gives what the long way gives, and is taken for nothing else.
    #[test]
    fn small_amounts_are_what_the_long_way_makes_of_them() {
        let long = |text: &str| {
            let exact = Exact::parse_decimal(text)?;
            let decimal = Decimal::from_str_exact(&exact.to_string()).ok()?.normalize();
            Some((decimal, decimal.scale(), decimal.is_sign_negative()))
        };
        let parts =
            ["0", "00", "1", "01", "10", "100", "250", "999999999", "999999999999999999", "1000000000000000000"];
        let mut small = 0;
        for whole in parts {
            for fraction in [None, Some(""), Some("0"), Some("5"), Some("50"), Some("05"), Some("000000000"), Some("x")]
            {
                for sign in ["", "-", "--", "+"] {
                    let text = fraction.map_or(format!("{sign}{whole}"), |part| format!("{sign}{whole}.{part}"));
                    let parts = |amount: Amount| (amount.0, amount.0.scale(), amount.0.is_sign_negative());
                    assert_eq!(Amount::parse(&text).map(parts), long(&text), "{text}");
                    let exact = Exact::parse_decimal(&text).and_then(|exact| exact.to_amount());
                    assert_eq!(exact.map(parts), long(&text), "{text}");
                    small += usize::from(Amount::parse_small(&text).is_some());
                }
            }
        }
        assert!(small > 60, "{small}");
    }

    #[test]
    fn money_that_does_not_fit_is_refused() {
        assert!(Amount::parse("79228162514264337593543950335").is_some());
        assert!(Amount::parse("79228162514264337593543950336").is_none());
        assert!(Amount::parse("0.00000000000000000000000000001").is_none());
        assert!(Amount::parse("12345678901234567890.12345678901").is_none());
        let most = Amount::parse("79228162514264337593543950335").unwrap();
        assert_eq!(most.checked_add(Amount::ONE), None);
        // Fits only by rounding the fraction away, so it does not fit.
        assert_eq!(most.checked_add(Amount::parse("0.1").unwrap()), None);
    }
}
