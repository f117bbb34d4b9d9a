//! An error about one field, worded as an API server words it.

use std::fmt::{self, Write as _};

use serde_json::Value;

/// What is wrong with a field, apart from the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldReason {
    /// It must be there and is not.
    Required,
    /// Its value breaks a rule.
    Invalid,
    /// Its value is of another JSON type.
    TypeInvalid,
    /// Its value is not one of the allowed ones.
    NotSupported,
    /// Its text is too long.
    TooLong,
    /// Its text is too short.
    TooShort,
    /// It has too many items.
    TooMany,
    /// It has too few items.
    TooFew,
    /// Something that must be unique is there twice.
    Duplicate,
    /// It must not be set or changed here.
    Forbidden,
    /// It names something that does not exist.
    NotFound,
    /// It could not be checked.
    Internal,
}

impl FieldReason {
    /// The `reason` of the cause in `Status.details.causes`.
    pub fn cause(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::TooLong => "FieldValueTooLong",
            Self::TooShort => "FieldValueTooShort",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::NotFound => "FieldValueNotFound",
            Self::Internal => "InternalError",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::TooLong => "Too long",
            Self::TooShort => "Too short",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "Not found",
            Self::Internal => "Internal error",
        }
    }

    /// Whether the offending value is shown: not if it is missing, secret by nature or too long.
    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::TooShort | Self::Internal)
    }
}

/// One problem with one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// What kind of problem it is.
    pub reason: FieldReason,
    /// Where: `spec.roles[0].name`, or `<nil>` for the whole object.
    pub path: String,
    /// The offending value, if it is to be shown.
    pub value: Option<Value>,
    /// More words, may be empty.
    pub detail: String,
}

impl FieldError {
    /// A problem of any kind.
    pub fn new(
        reason: FieldReason,
        path: impl Into<String>,
        value: Option<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self { reason, path: path.into(), value, detail: detail.into() }
    }

    /// `path: Required value: detail`
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldReason::Required, path, None, detail)
    }

    /// `path: Invalid value: value: detail`
    pub fn invalid(path: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldReason::Invalid, path, Some(value.into()), detail)
    }

    /// `path: Forbidden: detail`
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldReason::Forbidden, path, None, detail)
    }

    /// `path: Duplicate value: value`
    pub fn duplicate(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(FieldReason::Duplicate, path, Some(value.into()), "")
    }

    /// `path: Not found: value`
    pub fn not_found(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(FieldReason::NotFound, path, Some(value.into()), "")
    }

    /// `path: Unsupported value: value: supported values: "a", "b"`
    pub fn not_supported(path: impl Into<String>, value: impl Into<Value>, supported: &[&str]) -> Self {
        let detail = match supported {
            [] => String::new(),
            names => {
                let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
                format!("supported values: {}", names.join(", "))
            }
        };
        Self::new(FieldReason::NotSupported, path, Some(value.into()), detail)
    }

    /// `path: Too long: may not be more than 63 bytes`
    pub fn too_long(path: impl Into<String>, bytes: usize) -> Self {
        let unit = if bytes == 1 { "byte" } else { "bytes" };
        Self::new(FieldReason::TooLong, path, None, format!("may not be more than {bytes} {unit}"))
    }

    /// The message without the path: what a cause of a `Status` says.
    pub fn body(&self) -> String {
        let mut body = self.reason.words().to_owned();
        if let Some(value) = self.value.as_ref().filter(|_| self.reason.shows_value()) {
            body.push_str(": ");
            body.push_str(&shown(value));
        }
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.body())
    }
}

impl std::error::Error for FieldError {}

/// Several errors as an API server joins them: one as it is, more in brackets, each once.
pub fn joined(errors: &[FieldError]) -> String {
    let mut texts: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Number(number) if number.is_f64() => go_float(number.as_f64().unwrap_or(f64::NAN)),
        other => other.to_string(),
    }
}

/// A float as Go prints it: with an exponent from a million on and below 0.0001.
pub(crate) fn go_float(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude == 0.0 || (1e-4..1e6).contains(&magnitude) {
        return format!("{number}");
    }
    let text = format!("{number:e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    match exponent.strip_prefix('-') {
        Some(digits) => format!("{mantissa}e-{digits:0>2}"),
        None => format!("{mantissa}e+{exponent:0>2}"),
    }
}

/// Go's `%q`.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\u{b}' => out.push_str("\\v"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_are_those_of_an_api_server() {
        let table = [
            (FieldError::required("spec.image", ""), "spec.image: Required value"),
            (
                FieldError::invalid(
                    "spec.workers",
                    0,
                    "spec.workers in body should be greater than or equal to 1",
                ),
                "spec.workers: Invalid value: 0: spec.workers in body should be greater than or equal to 1",
            ),
            (
                FieldError::not_supported("spec.framework", "x", &["a", "b"]),
                r#"spec.framework: Unsupported value: "x": supported values: "a", "b""#,
            ),
            (
                FieldError::too_long("metadata.name", 63),
                "metadata.name: Too long: may not be more than 63 bytes",
            ),
            (FieldError::duplicate("spec.x[1]", json!({"a": 1})), r#"spec.x[1]: Duplicate value: {"a":1}"#),
            (FieldError::forbidden("spec", "no"), "spec: Forbidden: no"),
            (FieldError::invalid("a", "x\ny\"", ""), r#"a: Invalid value: "x\ny\"""#),
        ];
        for (error, expected) in table {
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn many_errors_are_joined_once_each() {
        let one = FieldError::required("a", "");
        let two = FieldError::required("b", "");
        assert_eq!(joined(std::slice::from_ref(&one)), "a: Required value");
        assert_eq!(joined(&[one.clone(), two, one]), "[a: Required value, b: Required value]");
    }
}
