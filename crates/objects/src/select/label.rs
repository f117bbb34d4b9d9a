//! Label selectors, as text (`a=b,c in (d,e),!f`) and as an object (`matchLabels`, `matchExpressions`).

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

use super::SelectorError;
use crate::error::quoted;
use crate::names;

/// Requirements that all must hold; none select everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    wanted: Wanted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// Reads `a=b, c!=d, e in (f,g), h notin (i), j, !k, l>1`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        Parser { tokens: tokens(text)?, at: 0 }.selector()
    }

    /// Selects everything.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Reads `{matchLabels: {…}, matchExpressions: […]}`. As everywhere in Kubernetes, no object at all selects
    /// nothing and an empty one everything.
    pub fn from_object(object: &Value) -> Result<Self, SelectorError> {
        let Some(object) = object.as_object() else {
            return Ok(Self { requirements: Vec::new(), nothing: true });
        };
        let mut requirements = Vec::new();
        for (key, value) in object.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            requirements.push(Requirement::new(key, Wanted::In(BTreeSet::from([value.to_owned()])))?);
        }
        for expression in object.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            requirements.push(Requirement::from_object(expression)?);
        }
        Ok(Self { requirements, nothing: false })
    }

    /// Whether an object with these labels (`metadata.labels`, absent for none) is selected.
    pub fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
        !self.nothing
            && self.requirements.iter().all(|requirement| requirement.holds(label(&requirement.key)))
    }

    /// Whether it selects everything, so that it need not be asked.
    pub fn is_empty(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Requirement { key, wanted }) in self.requirements.iter().enumerate() {
            if index > 0 {
                formatter.write_str(",")?;
            }
            let list = |values: &BTreeSet<String>| values.iter().cloned().collect::<Vec<_>>().join(",");
            match wanted {
                Wanted::In(values) if values.len() == 1 => write!(formatter, "{key}={}", list(values)),
                Wanted::NotIn(values) if values.len() == 1 => write!(formatter, "{key}!={}", list(values)),
                Wanted::In(values) => write!(formatter, "{key} in ({})", list(values)),
                Wanted::NotIn(values) => write!(formatter, "{key} notin ({})", list(values)),
                Wanted::Exists => formatter.write_str(key),
                Wanted::Absent => write!(formatter, "!{key}"),
                Wanted::Greater(than) => write!(formatter, "{key}>{than}"),
                Wanted::Less(than) => write!(formatter, "{key}<{than}"),
            }?;
        }
        Ok(())
    }
}

impl Requirement {
    fn new(key: &str, wanted: Wanted) -> Result<Self, SelectorError> {
        let complaints = names::label_key(key);
        if !complaints.is_empty() {
            return Err(SelectorError(format!(
                "<nil>: Invalid value: {}: {}",
                quoted(key),
                complaints.join("; ")
            )));
        }
        if let Wanted::In(values) | Wanted::NotIn(values) = &wanted {
            for (index, value) in values.iter().enumerate() {
                let complaints = names::label_value(value);
                if !complaints.is_empty() {
                    return Err(SelectorError(format!(
                        "values[{index}][{key}]: Invalid value: {}: {}",
                        quoted(value),
                        complaints.join("; ")
                    )));
                }
            }
        }
        Ok(Self { key: key.to_owned(), wanted })
    }

    fn from_object(expression: &Value) -> Result<Self, SelectorError> {
        let key = expression.get("key").and_then(Value::as_str).unwrap_or_default();
        let operator = expression.get("operator").and_then(Value::as_str).unwrap_or_default();
        let values: BTreeSet<String> = expression
            .get("values")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|value| value.as_str().map(str::to_owned))
            .collect();
        let given = !values.is_empty();
        let wanted = match operator {
            "In" | "NotIn" if !given => {
                return Err(SelectorError(
                    "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
                        .to_owned(),
                ));
            }
            "Exists" | "DoesNotExist" if given => {
                let values: Vec<String> = values.into_iter().collect();
                return Err(SelectorError(format!(
                    "values: Invalid value: {}: values set must be empty for exists and does not exist",
                    Value::from(values)
                )));
            }
            "In" => Wanted::In(values),
            "NotIn" => Wanted::NotIn(values),
            "Exists" => Wanted::Exists,
            "DoesNotExist" => Wanted::Absent,
            other => {
                return Err(SelectorError(format!(
                    "{} is not a valid label selector operator",
                    quoted(other)
                )));
            }
        };
        Self::new(key, wanted)
    }

    fn holds(&self, label: Option<&str>) -> bool {
        let number = || label.and_then(|label| label.parse::<i64>().ok());
        match &self.wanted {
            Wanted::In(values) => label.is_some_and(|label| values.contains(label)),
            Wanted::NotIn(values) => label.is_none_or(|label| !values.contains(label)),
            Wanted::Exists => label.is_some(),
            Wanted::Absent => label.is_none(),
            Wanted::Greater(than) => number().is_some_and(|number| number > *than),
            Wanted::Less(than) => number().is_some_and(|number| number < *than),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(&'static str),
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Symbol(symbol) => symbol,
        }
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, SelectorError> {
    const SYMBOLS: [&str; 8] = ["==", "!=", "=", "!", "(", ")", ",", ">"];
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let symbol = SYMBOLS.into_iter().chain(["<"]).find(|symbol| rest.starts_with(symbol));
        let length = if let Some(symbol) = symbol {
            tokens.push(Token::Symbol(symbol));
            symbol.len()
        } else {
            let end =
                rest.find(|c: char| "=!(),<>".contains(c) || c.is_ascii_whitespace()).unwrap_or(rest.len());
            if end == 0 {
                return Err(SelectorError(format!("error expected: keyword found '{first}'")));
            }
            tokens.push(Token::Word(rest[..end].to_owned()));
            end
        };
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self.peek(), Some(Token::Symbol(found)) if *found == symbol)
    }

    fn found<T>(token: Option<&Token>, expected: &str) -> Result<T, SelectorError> {
        Err(SelectorError(format!("found '{}', expected: {expected}", token.map_or("", Token::text))))
    }

    fn selector(mut self) -> Result<LabelSelector, SelectorError> {
        let mut requirements = Vec::new();
        if self.tokens.is_empty() {
            return Ok(LabelSelector::default());
        }
        loop {
            match self.peek() {
                Some(Token::Word(_) | Token::Symbol("!")) => {
                    let requirement = self
                        .requirement()
                        .map_err(|error| SelectorError(format!("unable to parse requirement: {error}")))?;
                    requirements.push(requirement);
                }
                other => return Self::found(other, "!, identifier, or 'end of string'"),
            }
            match self.next() {
                None => break,
                Some(Token::Symbol(",")) => {
                    if !matches!(self.peek(), Some(Token::Word(_) | Token::Symbol("!"))) {
                        return Self::found(self.peek(), "identifier after ','");
                    }
                }
                other => return Self::found(other.as_ref(), "',' or 'end of string'"),
            }
        }
        // The server's canonical order, in which it also shows them.
        requirements.sort_by(|left, right| left.key.cmp(&right.key));
        Ok(LabelSelector { requirements, nothing: false })
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let absent = self.is("!");
        if absent {
            self.at += 1;
        }
        let key = match self.next() {
            Some(Token::Word(word)) => word,
            other => return Self::found(other.as_ref(), "identifier"),
        };
        if absent {
            return Requirement::new(&key, Wanted::Absent);
        }
        if self.peek().is_none() || self.is(",") {
            return Requirement::new(&key, Wanted::Exists);
        }
        let operator = self.next();
        let wanted = match operator.as_ref().map(Token::text) {
            Some("in") => Wanted::In(self.values()?),
            Some("notin") => Wanted::NotIn(self.values()?),
            Some("=" | "==") => Wanted::In(BTreeSet::from([self.exact_value()?])),
            Some("!=") => Wanted::NotIn(BTreeSet::from([self.exact_value()?])),
            Some(sign @ (">" | "<")) => {
                let text = self.exact_value()?;
                let Ok(number) = text.parse::<i64>() else {
                    return Err(SelectorError(format!(
                        "values[0]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                        quoted(&text)
                    )));
                };
                if sign == ">" { Wanted::Greater(number) } else { Wanted::Less(number) }
            }
            _ => return Self::found(operator.as_ref(), "in, notin, =, ==, !=, gt, lt"),
        };
        Requirement::new(&key, wanted)
    }

    /// The word after a sign; nothing there is the empty value.
    fn exact_value(&mut self) -> Result<String, SelectorError> {
        match self.peek() {
            None | Some(Token::Symbol(",")) => Ok(String::new()),
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.at += 1;
                Ok(word)
            }
            other => Self::found(other, "identifier"),
        }
    }

    fn values(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        if !self.is("(") {
            let found = self.peek().map_or("", Token::text);
            return Err(SelectorError(format!("found '{found}' expected: '('")));
        }
        self.at += 1;
        let mut values = BTreeSet::new();
        loop {
            match self.next() {
                Some(Token::Word(word)) => {
                    values.insert(word);
                    match self.next() {
                        Some(Token::Symbol(")")) => break,
                        Some(Token::Symbol(",")) => {
                            // A comma at the end stands before one more, empty value.
                            if self.is(")") {
                                values.insert(String::new());
                            }
                        }
                        other => return Self::found(other.as_ref(), "',' or ')'"),
                    }
                }
                Some(Token::Symbol(",")) => {
                    values.insert(String::new());
                    if self.is(")") {
                        self.at += 1;
                        break;
                    }
                }
                Some(Token::Symbol(")")) => {
                    values.insert(String::new());
                    break;
                }
                other => return Self::found(other.as_ref(), "',', ')' or identifier"),
            }
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(selector: &str, labels: Value) -> bool {
        LabelSelector::parse(selector)
            .unwrap_or_else(|error| panic!("{selector}: {error}"))
            .matches(labels.as_object())
    }

    #[test]
    fn text_selectors() {
        let labels = || json!({"app": "web", "tier": "front", "n": "5", "empty": ""});
        let table = [
            ("", true),
            ("app=web", true),
            ("app==web,tier=front", true),
            (" app = web , tier != back ", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app in (web, db)", true),
            ("app notin (web,db)", false),
            ("app in (db)", false),
            ("other notin (x)", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("n>4,n<6", true),
            ("n>5", false),
            ("empty=", true),
            ("empty in ()", true),
            ("app in (,web)", true),
            ("app in (b,,web)", true),
            ("empty in (,)", true),
            ("in in (in)", false),
        ];
        for (selector, expected) in table {
            assert_eq!(selects(selector, labels()), expected, "{selector}");
        }
        assert!(LabelSelector::parse("").unwrap().matches(None));
        assert!(!LabelSelector::parse("a").unwrap().matches(None));
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let table = [
            ("app=web,", "found '', expected: identifier after ','"),
            ("app in", "unable to parse requirement: found '' expected: '('"),
            ("app in (a", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("app web", "unable to parse requirement: found 'web', expected: in, notin, =, ==, !=, gt, lt"),
            ("=x", "found '=', expected: !, identifier, or 'end of string'"),
            ("(a)", "found '(', expected: !, identifier, or 'end of string'"),
            (",a", "found ',', expected: !, identifier, or 'end of string'"),
            ("a=b=c", "found '=', expected: ',' or 'end of string'"),
            ("!a=b", "found '=', expected: ',' or 'end of string'"),
            ("a!b", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            (
                "n>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ];
        for (selector, expected) in table {
            assert_eq!(LabelSelector::parse(selector).unwrap_err().0, expected, "{selector}");
        }
        let bad_key = "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of";
        assert!(LabelSelector::parse("-a=b").unwrap_err().0.starts_with(bad_key));
        assert!(LabelSelector::parse("a=-b").unwrap_err().0.contains("a valid label must be"));
    }

    #[test]
    fn object_selectors() {
        let selector = LabelSelector::from_object(&json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["front", "back"]},
                {"key": "gone", "operator": "DoesNotExist"},
            ],
        }))
        .unwrap();
        assert!(selector.matches(json!({"app": "web", "tier": "back"}).as_object()));
        assert!(!selector.matches(json!({"app": "web", "tier": "back", "gone": ""}).as_object()));
        assert!(LabelSelector::from_object(&json!({})).unwrap().matches(None));
        assert!(!LabelSelector::from_object(&Value::Null).unwrap().matches(None));
        let error =
            LabelSelector::from_object(&json!({"matchExpressions": [{"key": "a", "operator": "Is"}]}));
        assert_eq!(error.unwrap_err().0, "\"Is\" is not a valid label selector operator");
    }

    #[test]
    fn shown_as_the_server_shows_it() {
        for (text, shown) in
            [("b in (y,x),a=1,!c", "a=1,b in (x,y),!c"), ("a!=1,b", "a!=1,b"), ("n > 3", "n>3")]
        {
            assert_eq!(LabelSelector::parse(text).unwrap().to_string(), shown);
        }
    }
}
