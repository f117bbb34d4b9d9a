//! The string formats that an API server checks. Others are ignored, as it does.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::names;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    DateTime,
    Date,
    Duration,
    Byte,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uuid,
    ShortName,
    LongName,
}

impl Format {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "date-time" | "datetime" => Self::DateTime,
            "date" => Self::Date,
            "duration" => Self::Duration,
            "byte" => Self::Byte,
            "uri" => Self::Uri,
            "email" => Self::Email,
            "hostname" => Self::Hostname,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "cidr" => Self::Cidr,
            "mac" => Self::Mac,
            "uuid" => Self::Uuid,
            "k8s-short-name" => Self::ShortName,
            "k8s-long-name" => Self::LongName,
            _ => return None,
        })
    }

    pub(super) fn accepts(self, text: &str) -> bool {
        match self {
            Self::DateTime => date_time(text).is_some(),
            Self::Date => date(text).is_some(),
            Self::Duration => duration(text).is_some(),
            Self::Byte => is_base64(text),
            Self::Uri => text.starts_with('/') || scheme_length(text).is_some(),
            Self::Email => is_email(text),
            Self::Hostname => is_hostname(text),
            Self::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
            Self::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
            Self::Cidr => is_cidr(text),
            Self::Mac => is_mac(text),
            Self::Uuid => is_uuid(text),
            Self::ShortName => names::dns_label(text).is_empty(),
            Self::LongName => names::dns_subdomain(text).is_empty(),
        }
    }
}

/// RFC 3339.
pub(super) fn date_time(text: &str) -> Option<chrono::DateTime<chrono::FixedOffset>> {
    chrono::DateTime::parse_from_rfc3339(text).ok()
}

/// A full date of RFC 3339, as its first moment.
pub(super) fn date(text: &str) -> Option<chrono::DateTime<chrono::FixedOffset>> {
    (text.len() == 10).then(|| date_time(&format!("{text}T00:00:00Z")))?
}

/// A duration as Go writes it: `1h30m`, `-1.5s`, `0`; also with words as unit: `2 days`.
pub(super) fn duration(text: &str) -> Option<chrono::Duration> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(chrono::Duration::zero());
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanoseconds = 0.0_f64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = rest[end..].trim_start();
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        nanoseconds += number * nanoseconds_of(rest[..end].trim_end())?;
        rest = &rest[end..];
    }
    #[expect(clippy::cast_possible_truncation, reason = "more than 292 years saturate")]
    let nanoseconds = (if negative { -nanoseconds } else { nanoseconds }) as i64;
    Some(chrono::Duration::nanoseconds(nanoseconds))
}

fn nanoseconds_of(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" | "nano" | "nanos" | "nanosecond" | "nanoseconds" => 1.0,
        "us" | "µs" | "μs" | "micro" | "micros" | "microsecond" | "microseconds" => 1e3,
        "ms" | "milli" | "millis" | "millisecond" | "milliseconds" => 1e6,
        "s" | "sec" | "secs" | "second" | "seconds" => 1e9,
        "m" | "min" | "mins" | "minute" | "minutes" => 60e9,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3600e9,
        "d" | "day" | "days" => 86_400e9,
        "w" | "wk" | "week" | "weeks" => 604_800e9,
        _ => return None,
    })
}

fn is_base64(text: &str) -> bool {
    let data = text.trim_end_matches('=');
    let padding = text.len() - data.len();
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && padding <= 2
        && data.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

fn scheme_length(text: &str) -> Option<usize> {
    let end = text.find(':')?;
    let scheme = &text[..end];
    let fits = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    // What follows must be a path or an authority, and hold no blanks.
    (fits && !text.contains(char::is_whitespace) && !text[end..].contains('\u{7f}')).then_some(end)
}

fn is_email(text: &str) -> bool {
    // `Name <address>` is one, too.
    let address =
        text.strip_suffix('>').and_then(|rest| rest.rsplit_once('<')).map_or(text, |(_, address)| address);
    match address.rsplit_once('@') {
        Some((name, host)) => {
            !name.is_empty()
                && !host.is_empty()
                && !address.contains(char::is_whitespace)
                && !name.contains('@')
        }
        None => false,
    }
}

fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        let ends = |byte: &u8| byte.is_ascii_alphanumeric();
        let bytes = label.as_bytes();
        (1..=63).contains(&bytes.len())
            && bytes.first().is_some_and(ends)
            && bytes.last().is_some_and(ends)
            && bytes.iter().all(|byte| ends(byte) || *byte == b'-')
    };
    text.len() <= 255 && text.strip_suffix('.').unwrap_or(text).split('.').all(label)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let Ok(length) = length.parse::<u8>() else { return false };
    (address.parse::<Ipv4Addr>().is_ok() && length <= 32)
        || (address.parse::<Ipv6Addr>().is_ok() && length <= 128)
}

fn is_mac(text: &str) -> bool {
    let separator = if text.contains('-') { '-' } else { ':' };
    let pairs: Vec<&str> = text.split(separator).collect();
    matches!(pairs.len(), 6 | 8 | 20)
        && pairs.iter().all(|pair| pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_uuid(text: &str) -> bool {
    let digits: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = digits.iter().map(|part| part.len()).collect();
    digits.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()))
        && (lengths == [8, 4, 4, 4, 12] || lengths == [32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        let table: [(&str, &[&str], &[&str]); 12] = [
            (
                "date-time",
                &["2014-12-15T19:30:20Z", "2014-12-15T19:30:20.5+01:00"],
                &["2014-12-15", "soon", ""],
            ),
            ("date", &["2014-12-15"], &["2014-13-15", "2014-12-15T19:30:20Z", ""]),
            ("duration", &["1h30m", "22 ns", "0", "-1.5s", "3 days"], &["", "1", "h", "1x"]),
            ("byte", &["YQ==", "YWJj"], &["", "YQ", "Y===", "a b="]),
            ("uri", &["http://x/y", "/a", "urn:x"], &["x", "", "a b:c"]),
            ("email", &["a@b", "A <a@b.c>"], &["a", "@b", "a b@c"]),
            ("hostname", &["a", "a.b-c", "A1."], &["", "-a", "a_b", "a..b"]),
            ("ipv4", &["10.0.0.1"], &["10.0.0", "::1", "10.0.0.256"]),
            ("ipv6", &["::1", "fe80::1"], &["10.0.0.1", "x"]),
            ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "x/8"]),
            ("mac", &["01:02:03:04:05:ab"], &["01:02", "0102030405ab"]),
            ("uuid", &["550e8400-e29b-41d4-a716-446655440000"], &["550e8400", "x"]),
        ];
        for (name, good, bad) in table {
            let format = Format::from_name(name).unwrap();
            for text in good {
                assert!(format.accepts(text), "{name} {text}");
            }
            for text in bad {
                assert!(!format.accepts(text), "{name} {text}");
            }
        }
        assert_eq!(Format::from_name("int32"), None);
    }

    #[test]
    fn durations_have_a_length() {
        assert_eq!(duration("1h30m"), Some(chrono::Duration::minutes(90)));
        assert_eq!(duration("-1.5s"), Some(chrono::Duration::milliseconds(-1500)));
    }
}
