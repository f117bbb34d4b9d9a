//! The CEL rules of one place in a schema (`x-kubernetes-validations`), compiled.

use std::collections::BTreeMap;

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};
use kube_cel::cel::{IdedExpr as Expression, Program};
use serde_json::Value;

use crate::{FieldError, FieldReason};

/// The rules of one place, and what of `self` and `oldSelf` they look at.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) rules: Vec<Rule>,
    pub(super) needs: Needs,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) program: Program,
    pub(super) source: String,
    pub(super) message: Option<String>,
    pub(super) message_program: Option<Program>,
    pub(super) reason: FieldReason,
    pub(super) field_path: Option<String>,
    /// It looks at `oldSelf`, so it is about a change.
    pub(super) transition: bool,
    pub(super) optional_old: bool,
}

/// The part of a value that rules look at. Only this part is converted for CEL, which is most of the work.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    pub(super) whole: bool,
    pub(super) fields: BTreeMap<String, Needs>,
}

impl Rules {
    /// Compiles the rules of a schema; `path` is that of the schema, for errors.
    pub(super) fn compile(rules: &[Value], path: &str) -> Result<Self, Vec<FieldError>> {
        let mut compiled = Self::default();
        let mut errors = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            match Rule::compile(rule, &format!("{path}x-kubernetes-validations[{index}]")) {
                Ok(rule) => {
                    compiled.needs.collect(rule.program.expression());
                    if let Some(message) = &rule.message_program {
                        compiled.needs.collect(message.expression());
                    }
                    compiled.rules.push(rule);
                }
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(compiled) } else { Err(errors) }
    }
}

impl Rule {
    fn compile(rule: &Value, path: &str) -> Result<Self, FieldError> {
        let text = |field: &str| {
            rule.get(field).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty())
        };
        let Some(source) = text("rule") else {
            return Err(FieldError::required(format!("{path}.rule"), "rule is not specified"));
        };
        let compiled = |field: &str, source: &str| {
            Program::compile(source).map_err(|error| {
                let detail = format!("{}: {error}", failed_to_compile(field));
                FieldError::invalid(format!("{path}.{field}"), shown(rule), detail)
            })
        };
        let program = compiled("rule", source)?;
        let message_program =
            text("messageExpression").map(|source| compiled("messageExpression", source)).transpose()?;
        let reason = match text("reason") {
            None | Some("FieldValueInvalid") => FieldReason::Invalid,
            Some("FieldValueForbidden") => FieldReason::Forbidden,
            Some("FieldValueRequired") => FieldReason::Required,
            Some("FieldValueDuplicate") => FieldReason::Duplicate,
            Some(other) => {
                let supported =
                    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
                return Err(FieldError::not_supported(format!("{path}.reason"), other, &supported));
            }
        };
        let message = text("message");
        if message.is_some_and(|message| message.contains('\n')) {
            return Err(FieldError::invalid(
                format!("{path}.message"),
                message.unwrap_or_default(),
                "must not contain line breaks",
            ));
        }
        if source.contains('\n') && message.is_none() {
            return Err(FieldError::required(
                format!("{path}.message"),
                "message must be specified if rule contains line breaks",
            ));
        }
        let transition = program.references().has_variable("oldSelf");
        let field_path = text("fieldPath").map(|path| path.strip_prefix('.').unwrap_or(path).to_owned());
        Ok(Self {
            program,
            source: source.to_owned(),
            message: message.map(str::to_owned),
            message_program,
            reason,
            field_path,
            transition,
            optional_old: rule.get("optionalOldSelf") == Some(&Value::Bool(true)),
        })
    }

    /// The rule's programs, with the names of their fields.
    pub(super) fn programs(&self) -> impl Iterator<Item = (&'static str, &Program)> {
        let message = self.message_program.as_ref().map(|program| ("messageExpression", program));
        std::iter::once(("rule", &self.program)).chain(message)
    }

    /// What is said when the rule does not hold and has no message of its own making.
    pub(super) fn default_message(&self) -> String {
        self.message.clone().unwrap_or_else(|| format!("failed rule: {}", self.source))
    }

    /// How the rule is named when it cannot be evaluated.
    pub(super) fn name(&self) -> &str {
        self.message.as_deref().unwrap_or(&self.source)
    }
}

impl Needs {
    /// The need of a field, if it is looked at.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        self.fields.get(name)
    }

    /// Adds a path.
    pub(super) fn reach<'p>(&mut self, path: impl IntoIterator<Item = &'p str>) {
        let mut need = self;
        for field in path {
            need = need.fields.entry(field.to_owned()).or_default();
        }
        need.whole = true;
    }

    /// Adds what an expression looks at.
    pub(super) fn collect(&mut self, expression: &Expression) {
        if let Some(path) = path_of_self(expression) {
            return self.reach(path);
        }
        for child in children(expression) {
            self.collect(child);
        }
    }
}

/// How the server begins to tell that a rule or its message cannot be compiled.
pub(super) fn failed_to_compile(field: &str) -> String {
    let what = if field == "rule" { "" } else { "messageExpression " };
    format!("{what}compilation failed: ERROR")
}

/// A rule as the server shows it in errors: all fields of its own type.
pub(super) fn shown(rule: &Value) -> Value {
    let text = |field: &str| rule.get(field).cloned().unwrap_or_else(|| "".into());
    let other = |field: &str| rule.get(field).cloned().unwrap_or_default();
    serde_json::json!({
        "Rule": text("rule"),
        "Message": text("message"),
        "MessageExpression": text("messageExpression"),
        "Reason": other("reason"),
        "FieldPath": text("fieldPath"),
        "OptionalOldSelf": other("optionalOldSelf"),
    })
}

/// The fields of `self.a.b` or `oldSelf.a.b`, if the expression is that and nothing else.
fn path_of_self(expression: &IdedExpr) -> Option<Vec<&str>> {
    match &expression.expr {
        Expr::Ident(name) if name == "self" || name == "oldSelf" => Some(Vec::new()),
        Expr::Select(select) => {
            let mut path = path_of_self(&select.operand)?;
            path.push(&select.field);
            Some(path)
        }
        _ => None,
    }
}

fn children(expression: &IdedExpr) -> Vec<&IdedExpr> {
    match &expression.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
        Expr::Call(call) => call.target.iter().map(|target| &**target).chain(&call.args).collect(),
        Expr::Comprehension(comprehension) => vec![
            &comprehension.iter_range,
            &comprehension.accu_init,
            &comprehension.loop_cond,
            &comprehension.loop_step,
            &comprehension.result,
        ],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| entry_children(&entry.expr)).collect(),
        Expr::Struct(made) => made.entries.iter().flat_map(|entry| entry_children(&entry.expr)).collect(),
        Expr::Select(select) => vec![&select.operand],
    }
}

fn entry_children(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn needs(rule: &str) -> Needs {
        Rules::compile(&[json!({"rule": rule})], "").unwrap().needs
    }

    #[test]
    fn only_what_is_looked_at_is_needed() {
        let found = needs(
            "!has(self.spec.roles) || self.spec.roles.all(r, size(self.metadata.name) + size(r.name) < 9)",
        );
        assert!(!found.whole);
        assert_eq!(found.fields.keys().collect::<Vec<_>>(), ["metadata", "spec"]);
        let spec = found.field("spec").unwrap();
        assert!(!spec.whole && spec.field("roles").unwrap().whole);
        assert!(needs("self == oldSelf").whole);
        assert!(needs("size(self) > 1").whole);
        assert!(needs("self.a == oldSelf.a ? true : [self.b].exists(x, x == 1)").field("b").unwrap().whole);
        assert!(needs("self['x'] == 1").whole);
    }

    #[test]
    fn what_cannot_be_compiled_is_told() {
        let table = [
            (json!({"rule": "self.a ==="}), "x-kubernetes-validations[0].rule", FieldReason::Invalid),
            (json!({}), "x-kubernetes-validations[0].rule", FieldReason::Required),
            (
                json!({"rule": "true", "messageExpression": "("}),
                "x-kubernetes-validations[0].messageExpression",
                FieldReason::Invalid,
            ),
            (
                json!({"rule": "true", "reason": "x"}),
                "x-kubernetes-validations[0].reason",
                FieldReason::NotSupported,
            ),
            (json!({"rule": "true\n"}), "", FieldReason::Invalid),
            (json!({"rule": "true &&\ntrue"}), "x-kubernetes-validations[0].message", FieldReason::Required),
        ];
        for (rule, path, reason) in table {
            match Rules::compile(std::slice::from_ref(&rule), "") {
                Ok(_) => assert_eq!(path, "", "{rule}"),
                Err(errors) => {
                    assert_eq!((errors[0].path.as_str(), errors[0].reason), (path, reason), "{rule}");
                }
            }
        }
    }
}
