//! Exact numbers: decimals of any accepted length for comparison, and money that fits `rust_decimal`.
//! Absent on purpose: binary floats and rounding. What does not fit is refused, never shortened (AADP §18.3).

use std::cmp::Ordering;
use std::fmt;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::ids::Parsed;

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
        Some(Self::normal(negative, &format!("{whole}{fraction}"), exponent))
    }

    fn normal(negative: bool, digits: &str, exponent: i32) -> Self {
        let leading = digits.trim_start_matches('0');
        let kept = leading.trim_end_matches('0');
        let dropped = i32::try_from(leading.len() - kept.len()).unwrap_or(0);
        if kept.is_empty() {
            return Self { negative: false, digits: String::new(), exponent: 0 };
        }
        Self { negative, digits: kept.to_owned(), exponent: exponent.saturating_add(dropped) }
    }

    /// The same value as money, when `rust_decimal` holds it exactly: 28 significant digits, scale at most 28.
    pub fn to_amount(&self) -> Option<Amount> {
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
        Exact::parse_decimal(text)?.to_amount()
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
        let whole = limit.0.trunc().normalize().to_string().trim_start_matches('-').len();
        let fraction = usize::try_from(self.0.normalize().scale()).unwrap_or(usize::MAX);
        fraction == 0 || whole.saturating_add(fraction) <= DIGITS_MAX
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
