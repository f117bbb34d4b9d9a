//! Defaulting, and what goes with it: nulls that are not allowed are as good as absent, and whole numbers are whole.

use serde_json::{Map, Value};

use super::Schema;
use super::node::{Kind, NodeId};

pub(super) fn default(schema: &Schema, object: &mut Value) {
    fill(schema, object, schema.root);
}

fn fill(schema: &Schema, value: &mut Value, node: NodeId) {
    match value {
        Value::Object(fields) => fill_object(schema, fields, node),
        Value::Array(items) => {
            let Some(item_node) = schema.node(node).items else { return };
            let item_schema = schema.node(item_node);
            for item in items {
                if item.is_null()
                    && !item_schema.nullable
                    && let Some(default) = &item_schema.default
                {
                    item.clone_from(default);
                }
                fill(schema, item, item_node);
            }
        }
        Value::Number(number) => {
            // 2.0 for a whole number is 2, as it would be after the server has written it once.
            #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
            if schema.node(node).kind == Kind::Integer
                && let Some(float) = number.as_f64().filter(|_| number.is_f64())
                && float.fract() == 0.0
                && float.abs() < 9e15
            {
                *value = Value::from(float as i64);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn fill_object(schema: &Schema, fields: &mut Map<String, Value>, node: NodeId) {
    let node = schema.node(node);
    let child = |name: &str| node.properties.get(name).copied().or(node.additional.schema());
    if fields.values().any(Value::is_null) {
        fields.retain(|name, value| {
            let needless = |id: NodeId| !schema.node(id).nullable && schema.node(id).default.is_none();
            !(value.is_null() && child(name).is_some_and(needless))
        });
    }
    if node.defaults_below {
        for (name, property) in &node.properties {
            let property = schema.node(*property);
            let Some(default) = &property.default else { continue };
            match fields.get_mut(name) {
                None => {
                    fields.insert(name.clone(), (**default).clone());
                }
                Some(value) if value.is_null() && !property.nullable => value.clone_from(default),
                Some(_) => {}
            }
        }
    }
    for (name, value) in fields.iter_mut() {
        let Some(id) = child(name) else { continue };
        if value.is_null()
            && !schema.node(id).nullable
            && let Some(default) = &schema.node(id).default
        {
            value.clone_from(default);
        }
        fill(schema, value, id);
    }
}
