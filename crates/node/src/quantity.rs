//! Amounts as Kubernetes writes them (`500m`, `4Gi`, `1e3`), in thousandths.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// An amount in thousandths of its unit, rounded up. None if it is no amount.
pub(crate) fn millis(quantity: &Quantity) -> Option<i64> {
    let text = quantity.0.trim();
    let end =
        text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (negative, number) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (up, down) = scale(suffix)?;
    let scaled = digits.checked_mul(up)?.checked_mul(1000)?;
    let divisor = down.checked_mul(10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
    let rounded = (scaled + divisor - 1).div_euclid(divisor);
    i64::try_from(if negative { -rounded } else { rounded }).ok()
}

/// An amount in whole units, rounded up.
pub(crate) fn units(quantity: &Quantity) -> Option<i64> {
    millis(quantity).map(|millis| (millis + 999).div_euclid(1000))
}

/// What a suffix multiplies and divides by.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    let decimal = |power: u32| Some((10_i128.checked_pow(power)?, 1));
    match suffix {
        "n" => Some((1, 1_000_000_000)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1_000)),
        "" => Some((1, 1)),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        _ => {
            if let Some(position) = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|s| *s == suffix) {
                return Some((1 << (10 * (position + 1)), 1));
            }
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
            Some(if exponent >= 0 { (power, 1) } else { (1, power) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts() {
        for (text, wanted) in [
            ("1", Some(1000)),
            ("500m", Some(500)),
            ("0.5", Some(500)),
            ("1.5Gi", Some(1_610_612_736_000)),
            ("4Gi", Some(4_294_967_296_000)),
            ("1e3", Some(1_000_000)),
            ("2k", Some(2_000_000)),
            ("1u", Some(1)),
            ("-1", Some(-1000)),
            ("", None),
            ("x", None),
            ("1Q", None),
            (".", None),
        ] {
            assert_eq!(millis(&Quantity(text.to_owned())), wanted, "{text}");
        }
        assert_eq!(units(&Quantity("1500m".to_owned())), Some(2));
    }
}
