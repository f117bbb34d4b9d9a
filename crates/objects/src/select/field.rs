//! Field selectors: `metadata.name=x,status.phase!=Running`.

use super::SelectorError;

/// Requirements on fields that all must hold; none select everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    path: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// Reads `path=value,path!=value`; `\\`, `\,` and `\=` are escapes in values.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for term in terms(text) {
            if term.is_empty() {
                continue;
            }
            let misunderstood =
                || SelectorError(format!("invalid selector: '{text}'; can't understand '{term}'"));
            let (path, equal, value) = split(term).ok_or_else(misunderstood)?;
            requirements.push(Requirement { path: path.to_owned(), value: unescaped(value)?, equal });
        }
        Ok(Self { requirements })
    }

    /// Whether an object is selected; `field` gives its fields, `None` being the same as empty.
    pub fn matches(&self, field: impl Fn(&str) -> Option<String>) -> bool {
        self.requirements
            .iter()
            .all(|wanted| (field(&wanted.path).unwrap_or_default() == wanted.value) == wanted.equal)
    }

    /// The paths it asks about, so that a server can refuse those that a kind does not have.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.requirements.iter().map(|requirement| requirement.path.as_str())
    }

    /// The one value that the field must have to be selected, if there is one: a shortcut for `metadata.name=x`.
    pub fn exact(&self, path: &str) -> Option<&str> {
        self.requirements
            .iter()
            .find(|requirement| requirement.equal && requirement.path == path)
            .map(|requirement| requirement.value.as_str())
    }

    /// Whether it selects everything, so that it need not be asked.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

/// Splits at commas that are not escaped.
fn terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.find(['=', '!'])?;
    let (path, rest) = term.split_at(at);
    let (equal, value) = match rest {
        _ if rest.starts_with("!=") => (false, &rest[2..]),
        _ if rest.starts_with("==") => (true, &rest[2..]),
        _ if rest.starts_with('=') => (true, &rest[1..]),
        _ => return None,
    };
    Some((path, equal, value))
}

fn unescaped(value: &str) -> Result<String, SelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                other => {
                    let rest: String = other.into_iter().collect();
                    return Err(SelectorError(format!(
                        "invalid field selector: invalid escape sequence: \\{rest}"
                    )));
                }
            },
            ',' | '=' => {
                // The real server prints the character's number here, too.
                let number = u32::from(c);
                return Err(SelectorError(format!(
                    "invalid field selector: unescaped character in value: {number}"
                )));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(path: &str) -> Option<String> {
        match path {
            "metadata.name" => Some("web".to_owned()),
            "odd" => Some("a,b=c\\".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn what_matches() {
        let table = [
            ("", true),
            ("metadata.name=web", true),
            ("metadata.name==web,spec.nodeName=", true),
            ("metadata.name!=web", false),
            ("spec.nodeName!=x", true),
            (r"odd=a\,b\=c\\", true),
        ];
        for (text, expected) in table {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(field), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        for (text, expected) in [
            ("name", "invalid selector: 'name'; can't understand 'name'"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
            (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap_err().0, expected);
        }
    }

    #[test]
    fn shortcuts() {
        let selector = FieldSelector::parse("metadata.name=web,a!=b").unwrap();
        assert_eq!(selector.exact("metadata.name"), Some("web"));
        assert_eq!(selector.exact("a"), None);
        assert_eq!(selector.paths().collect::<Vec<_>>(), ["metadata.name", "a"]);
    }
}
