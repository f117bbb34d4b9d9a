//! Amounts such as `500m`, `2` or `16Gi`.

use std::fmt::Write as _;

/// An amount, in billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Amount(i128);

const ONE: i128 = 1_000_000_000;
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18), ("", 0)];

/// How an amount was written, which is how it is shown again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Decimal,
    Binary,
    Exponent,
}

impl Amount {
    pub(crate) const ZERO: Self = Self(0);

    pub(crate) fn parse(text: &str) -> Option<Self> {
        read(text).map(|(amount, _)| amount)
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    pub(crate) fn whole(number: usize) -> Self {
        Self(i128::try_from(number).unwrap_or(i128::MAX).saturating_mul(ONE))
    }

    /// As it is shown beside an amount that was written like `like`.
    pub(crate) fn shown_like(self, like: &str) -> String {
        let form = read(like).map_or(Form::Decimal, |(_, form)| form);
        show(self, form)
    }
}

/// The canonical writing of an amount: `1000m` is `1`, `1024Mi` is `1Gi`.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let (amount, form) = read(text)?;
    Some(show(amount, form))
}

fn read(text: &str) -> Option<(Amount, Form)> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = digits.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let mut amount: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    amount = amount.checked_mul(ONE)?;
    let (multiplier, form): (f64, Form);
    if let Some((_, bits)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        let factor = 1i128 << bits;
        let part = part_of(fraction, factor)?;
        amount = amount.checked_mul(factor)?.checked_add(part)?;
        return Some((Amount(sign(amount, negative)), Form::Binary));
    }
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        (multiplier, form) = (f64::from(*power), Form::Decimal);
    } else {
        let power = suffix.strip_prefix(['e', 'E'])?;
        (multiplier, form) = (f64::from(power.parse::<i16>().ok()?), Form::Exponent);
    }
    #[expect(clippy::cast_possible_truncation, reason = "a small whole number on purpose")]
    let power = multiplier as i32;
    let fraction_part = part_of(fraction, 1)?;
    amount = amount.checked_add(fraction_part)?;
    amount = if power >= 0 {
        amount.checked_mul(10i128.checked_pow(power.unsigned_abs())?)?
    } else {
        // Less than a billionth rounds up, as it does in Kubernetes.
        let divisor = 10i128.checked_pow(power.unsigned_abs())?;
        amount.div_euclid(divisor) + i128::from(amount.rem_euclid(divisor) != 0)
    };
    Some((Amount(sign(amount, negative)), form))
}

fn sign(amount: i128, negative: bool) -> i128 {
    if negative { -amount } else { amount }
}

/// The part behind the point, times a factor, in billionths.
fn part_of(fraction: &str, factor: i128) -> Option<i128> {
    let digits: String = fraction.chars().take(18).collect();
    if digits.is_empty() {
        return Some(0);
    }
    let scale = 10i128.checked_pow(u32::try_from(digits.len()).ok()?)?;
    digits.parse::<i128>().ok()?.checked_mul(ONE)?.checked_mul(factor)?.checked_div(scale)
}

fn show(Amount(amount): Amount, form: Form) -> String {
    if amount == 0 {
        return "0".to_owned();
    }
    let mut text = String::new();
    if form == Form::Binary && amount % ONE == 0 && (amount / ONE).abs() >= 1024 {
        let whole = amount / ONE;
        let (name, bits) =
            BINARY.iter().rev().find(|(_, bits)| whole % (1i128 << bits) == 0).copied().unwrap_or(("", 0));
        let _ = write!(text, "{}{name}", whole >> bits);
        return text;
    }
    for (name, power) in [
        ("E", 18),
        ("P", 15),
        ("T", 12),
        ("G", 9),
        ("M", 6),
        ("k", 3),
        ("", 0),
        ("m", -3),
        ("u", -6),
        ("n", -9),
    ] {
        let unit = 10i128.pow(u32::try_from(power + 9).unwrap_or(0));
        if amount % unit == 0 {
            let name = match (form, power) {
                (Form::Exponent, power) if power != 0 => format!("e{power}"),
                _ => name.to_owned(),
            };
            let _ = write!(text, "{}{name}", amount / unit);
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_and_written_canonically() {
        for (given, canonical_form) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("100Ki", "100Ki"),
            ("1000", "1k"),
            ("1500", "1500"),
            ("0", "0"),
            ("500m", "500m"),
            ("1e3", "1e3"),
            ("16Gi", "16Gi"),
            ("2", "2"),
            (".5", "500m"),
        ] {
            assert_eq!(canonical(given).as_deref(), Some(canonical_form), "{given}");
        }
        for wrong in ["", "abc", "1.2.3", "1Xi", "Gi", "1 Gi", "--1"] {
            assert_eq!(canonical(wrong), None, "{wrong}");
        }
        assert_eq!(Amount::parse("500m").unwrap().plus(Amount::parse("1500m").unwrap()), Amount::whole(2));
    }
}
