//! Amounts of resources.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::entries::Entries;

/// Requests and limits, of any resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// What the scheduler sets aside, by resource name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32))]
    pub requests: Option<Entries<Quantity>>,
    /// What a container may use at most, by resource name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32))]
    pub limits: Option<Entries<Quantity>>,
}

/// An amount, as Kubernetes writes it: 2, "500m", "16Gi".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Quantity {
    Int(i64),
    Text(String),
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An amount, as Kubernetes writes it: 2, 500m, 16Gi.",
            "x-kubernetes-int-or-string": true,
            "maxLength": 64,
        })
    }
}

impl Quantity {
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Quantity::Int(number) => number.to_string().into(),
            Quantity::Text(text) => text.as_str().into(),
        }
    }

    /// The amount in thousandths, or nothing when it is not a quantity.
    pub fn millis(&self) -> Option<i128> {
        match self {
            Quantity::Int(number) => Some(i128::from(*number) * 1000),
            Quantity::Text(text) => parse_millis(text),
        }
    }
}

/// Kubernetes' suffixes, in thousandths. Below a thousandth it rounds up, as Kubernetes does for requests.
fn parse_millis(text: &str) -> Option<i128> {
    let split = text
        .char_indices()
        .find(|(at, c)| !(c.is_ascii_digit() || *c == '.' || (*at == 0 && (*c == '+' || *c == '-'))))
        .map_or(text.len(), |(at, _)| at);
    let (number, suffix) = text.split_at(split);
    let multiplier: f64 = match suffix {
        "n" => 1e-6,
        "u" => 1e-3,
        "m" => 1.0,
        "" => 1e3,
        "k" => 1e6,
        "M" => 1e9,
        "G" => 1e12,
        "T" => 1e15,
        "P" => 1e18,
        "E" => 1e21,
        "Ki" => 1e3 * 1024.0,
        "Mi" => 1e3 * 1024f64.powi(2),
        "Gi" => 1e3 * 1024f64.powi(3),
        "Ti" => 1e3 * 1024f64.powi(4),
        "Pi" => 1e3 * 1024f64.powi(5),
        "Ei" => 1e3 * 1024f64.powi(6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            if !(-30..=30).contains(&exponent) {
                return None;
            }
            1e3 * 10f64.powi(exponent)
        }
    };
    if number.is_empty() || number.matches('.').count() > 1 || !number.contains(|c: char| c.is_ascii_digit())
    {
        return None;
    }
    let value = number.parse::<f64>().ok()? * multiplier;
    // i128 holds far more than 1024 Ei in thousandths; the cast saturates beyond it.
    #[expect(clippy::cast_possible_truncation, reason = "float to integer casts saturate")]
    value.is_finite().then(|| value.ceil() as i128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        let millis = |text: &str| Quantity::Text(text.to_owned()).millis();
        assert_eq!(Quantity::Int(2).millis(), Some(2000));
        assert_eq!(millis("500m"), Some(500));
        assert_eq!(millis("1.5"), Some(1500));
        assert_eq!(millis("1Ki"), Some(1_024_000));
        assert_eq!(millis("2e3"), Some(2_000_000));
        assert_eq!(millis("1E"), Some(1_000_000_000_000_000_000_000));
        for bad in ["", "Gi", "4 Gi", "1.2.3", "16GB", "-", "1e999", "٣"] {
            assert_eq!(millis(bad), None, "{bad}");
        }
    }
}
