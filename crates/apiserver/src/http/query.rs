//! Paths and queries.

use std::str::FromStr;

use crate::error::{ApiError, Result};

/// The query of a request: names and values, decoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decoded(name, true), decoded(value, true))
                })
                .collect(),
        )
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// A flag: `true`, `1`, or only its name.
    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some("" | "1" | "true" | "True" | "t" | "T" | "TRUE"))
    }

    /// A number, if it is given.
    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        match self.get(name) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                ApiError::bad_request(format!(
                    "strconv.ParseInt: parsing \"{text}\": invalid syntax ({name})"
                ))
            }),
        }
    }
}

/// Percent-decoding; in queries, a plus is a space.
pub(crate) fn decoded(text: &str, plus: bool) -> String {
    if !(text.contains('%') || plus && text.contains('+')) {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |index: usize| bytes.get(index).and_then(|byte| char::from(*byte).to_digit(16));
        match (bytes[at], hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                at += 2;
            }
            (b'+', ..) if plus => out.push(b' '),
            (byte, ..) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// What a path is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Health,
    Version,
    /// `/api` or `/apis`: which groups there are.
    Core,
    Groups,
    Group(String),
    /// `/api/v1`, `/apis/group/version`: which resources there are.
    Resources(String, String),
    /// `/openapi/v2`.
    OldOpenApi,
    OpenApi(Option<String>),
    Resource(Place),
    Nowhere,
}

/// A resource, an object, or a part of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) plural: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl Route {
    pub(crate) fn parse(path: &str) -> Self {
        let trimmed = path.trim_matches('/');
        let parts: Vec<String> = trimmed.split('/').map(|part| decoded(part, false)).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match parts.as_slice() {
            ["healthz" | "livez" | "readyz", ..] => Self::Health,
            ["version"] => Self::Version,
            ["api"] => Self::Core,
            ["apis"] => Self::Groups,
            ["api", version] => Self::Resources(String::new(), (*version).to_owned()),
            ["apis", group] => Self::Group((*group).to_owned()),
            ["apis", group, version] => Self::Resources((*group).to_owned(), (*version).to_owned()),
            ["openapi", "v2"] => Self::OldOpenApi,
            ["openapi", "v3"] => Self::OpenApi(None),
            ["openapi", "v3", rest @ ..] => Self::OpenApi(Some(rest.join("/"))),
            ["api", version, rest @ ..] => Self::place("", version, rest),
            ["apis", group, version, rest @ ..] => Self::place(group, version, rest),
            _ => Self::Nowhere,
        }
    }

    fn place(group: &str, version: &str, rest: &[&str]) -> Self {
        let (namespace, rest) = match rest {
            // Below a namespace; but `namespaces/x/status` and `namespaces/x/finalize` are about itself.
            ["namespaces", _, "status" | "finalize"] if group.is_empty() => (None, rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some((*namespace).to_owned()), rest),
            _ => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some(*name), None),
            [plural, name, subresource] => (*plural, Some(*name), Some((*subresource).to_owned())),
            [plural, name, subresource, more @ ..] => {
                (*plural, Some(*name), Some(format!("{subresource}/{}", more.join("/"))))
            }
            [] => return Self::Nowhere,
        };
        Self::Resource(Place {
            group: group.to_owned(),
            version: version.to_owned(),
            namespace,
            plural: plural.to_owned(),
            name: name.map(str::to_owned),
            subresource,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> (String, Option<String>, String, Option<String>, Option<String>) {
        match Route::parse(path) {
            Route::Resource(place) => {
                (place.group, place.namespace, place.plural, place.name, place.subresource)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn paths_are_taken_apart() {
        let some = |text: &str| Some(text.to_owned());
        let (none, core) = (None, String::new());
        assert_eq!(
            place("/api/v1/pods"),
            (core.clone(), none.clone(), "pods".into(), none.clone(), none.clone())
        );
        assert_eq!(
            place("/api/v1/namespaces/a/pods/b/log"),
            (core.clone(), some("a"), "pods".into(), some("b"), some("log"))
        );
        assert_eq!(
            place("/api/v1/namespaces/a"),
            (core.clone(), none.clone(), "namespaces".into(), some("a"), none.clone())
        );
        assert_eq!(
            place("/api/v1/namespaces/a/finalize"),
            (core, none.clone(), "namespaces".into(), some("a"), some("finalize"))
        );
        assert_eq!(
            place("/apis/ml.example.com/v1/namespaces/a/trainingjobs/x%2Dy/status"),
            ("ml.example.com".into(), some("a"), "trainingjobs".into(), some("x-y"), some("status"))
        );
        assert_eq!(Route::parse("/apis/g"), Route::Group("g".into()));
        assert_eq!(Route::parse("/foo"), Route::Nowhere);
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc&watch=true&x=a+b&command=a&command=b&limit=5");
        assert_eq!(query.text("labelSelector"), "a=b,c");
        assert!(query.flag("watch") && !query.flag("follow"));
        assert_eq!(query.text("x"), "a b");
        assert_eq!(query.all("command").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(query.number::<u32>("limit").unwrap(), Some(5));
        assert!(query.number::<u32>("x").is_err());
    }
}
