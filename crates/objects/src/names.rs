//! Names, label keys and label values: what is allowed, and the API server's words for what is not.
//!
//! Each check answers with all its complaints; no complaint means that the text is fine. The checks are written out
//! instead of using regular expressions because every object passes them.

const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;

const DNS_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                         start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
                         validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const DNS_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                             must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
                             validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const DNS_1035_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                              alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or \
                              'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const LABEL_KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                         character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                           start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
                           regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
                          'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const ENV_NAME: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";

/// A DNS-1123 label: pods' hostnames, namespaces, containers.
pub fn dns_label(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if text.len() > LABEL_MAX {
        complaints.push(at_most_characters(LABEL_MAX));
    }
    if !is_dns_label(text) {
        let dots_only = is_dns_subdomain(text);
        complaints.push(if dots_only { "must not contain dots".to_owned() } else { DNS_LABEL.to_owned() });
    }
    complaints
}

/// A DNS-1123 subdomain: the names of most objects.
pub fn dns_subdomain(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        complaints.push(at_most_characters(SUBDOMAIN_MAX));
    }
    if !is_dns_subdomain(text) {
        complaints.push(DNS_SUBDOMAIN.to_owned());
    }
    complaints
}

/// A DNS-1035 label: the names of services.
pub fn dns_1035_label(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if text.len() > LABEL_MAX {
        complaints.push(at_most_characters(LABEL_MAX));
    }
    if !(is_dns_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase())) {
        complaints.push(DNS_1035_LABEL.to_owned());
    }
    complaints
}

/// A name that may be part of a URL path: what is left of the rules where a kind has none of its own.
pub fn path_segment(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"]
        .into_iter()
        .filter(|bad| text.contains(bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

/// A label's or annotation's key: `name` or `prefix.example.com/name`.
pub fn label_key(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut parts = text.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => name,
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                complaints.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > SUBDOMAIN_MAX {
                    complaints.push(format!("prefix part {}", at_most_bytes(SUBDOMAIN_MAX)));
                }
                if !is_dns_subdomain(prefix) {
                    complaints.push(format!("prefix part {DNS_SUBDOMAIN}"));
                }
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {LABEL_KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        complaints.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        complaints.push(format!("name part {}", at_most_bytes(LABEL_MAX)));
    }
    if !is_label_name(name) {
        complaints.push(format!("name part {LABEL_KEY}"));
    }
    complaints
}

/// A label's value; it may be empty.
pub fn label_value(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if text.len() > LABEL_MAX {
        complaints.push(at_most_bytes(LABEL_MAX));
    }
    if !(text.is_empty() || is_label_name(text)) {
        complaints.push(LABEL_VALUE.to_owned());
    }
    complaints
}

/// A key in a config map or secret.
pub fn config_key(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        complaints.push(at_most_characters(SUBDOMAIN_MAX));
    }
    if text.is_empty() || !text.bytes().all(is_label_byte) {
        complaints.push(CONFIG_KEY.to_owned());
    } else if text == "." || text == ".." {
        complaints.push(format!("must not be '{text}'"));
    } else if text.starts_with("..") {
        complaints.push("must not start with '..'".to_owned());
    }
    complaints
}

/// The name of an environment variable, as a server since 1.32 takes it.
pub fn env_name(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    let fine = text.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=');
    if fine { Vec::new() } else { vec![ENV_NAME.to_owned()] }
}

/// The name of a container port.
pub fn port_name(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if text.len() > 15 {
        complaints.push(at_most_characters(15));
    }
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if text.is_empty() || !text.bytes().all(fits) {
        complaints.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        complaints.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        complaints.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        complaints.push("must not begin or end with a hyphen".to_owned());
    }
    complaints
}

fn at_most_characters(count: usize) -> String {
    format!("must be no more than {count} characters")
}

fn at_most_bytes(count: usize) -> String {
    format!("must be no more than {count} bytes")
}

fn is_dns_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let end = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.first().is_some_and(end)
        && bytes.last().is_some_and(end)
        && bytes.iter().all(|b| end(b) || *b == b'-')
}

fn is_dns_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

fn is_label_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

fn is_label_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().copied().all(is_label_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Check = fn(&str) -> Vec<String>;

    #[test]
    fn what_is_allowed_and_what_is_not() {
        let table: [(Check, &[&str], &[&str]); 7] = [
            (dns_label, &["a", "0", "a-b", "123-abc"], &["", "-a", "a-", "A", "a_b", "ä"]),
            (dns_subdomain, &["a", "a.b", "x-1.y"], &["", ".a", "a.", "a..b", "A", "-a.b"]),
            (dns_1035_label, &["a", "a-1"], &["1a", "", "a-", "a.b"]),
            (label_key, &["a", "A_b.c", "example.com/a"], &["", "/a", "a/", "a/b/c", "-a", "UP.x/a", "a b"]),
            (label_value, &["", "a", "A_b.c-1"], &["-a", "a-", "a b", "ä"]),
            (config_key, &["a", ".a", "a_b-c.D"], &["", ".", "..", "..a", "a/b"]),
            (port_name, &["http", "a-1"], &["", "1", "a--b", "-a", "A", "sixteen-letters-"]),
        ];
        for (check, good, bad) in table {
            for text in good {
                assert_eq!(check(text), Vec::<String>::new(), "{text:?}");
            }
            for text in bad {
                assert_ne!(check(text), Vec::<String>::new(), "{text:?}");
            }
        }
    }

    #[test]
    fn the_words_are_the_servers() {
        assert_eq!(
            dns_label("A"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
                 end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
        assert_eq!(dns_label(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(label_value(&"a".repeat(64)), ["must be no more than 63 bytes"]);
        assert_eq!(path_segment("a/b%"), ["may not contain '/'", "may not contain '%'"]);
    }
}
