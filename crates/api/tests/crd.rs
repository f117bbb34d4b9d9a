//! The generated CRD, looked at as a whole.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use trainyard_api::crd;

fn walk(schema: &JSONSchemaProps, path: &str, visit: &mut impl FnMut(&str, &JSONSchemaProps)) {
    visit(path, schema);
    for (name, property) in schema.properties.iter().flatten() {
        walk(property, &format!("{path}.{name}"), visit);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        walk(items, &format!("{path}[]"), visit);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        walk(values, &format!("{path}{{}}"), visit);
    }
}

#[test]
fn every_field_has_a_description() {
    let mut missing = Vec::new();
    walk(&crd::schema(), "", &mut |path, schema| {
        // The items of a list of strings have nothing to say that the list has not.
        // (Kubernetes allows no description on metadata.)
        let is_field = !path.starts_with(".metadata")
            && !path.is_empty()
            && !path.ends_with("[]")
            && !path.ends_with("{}");
        if is_field && schema.description.as_ref().is_none_or(String::is_empty) {
            missing.push(path.to_owned());
        }
    });
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn every_list_map_and_string_of_the_spec_is_bounded() {
    let schema = crd::schema();
    let mut unbounded = Vec::new();
    walk(&schema.properties.as_ref().unwrap()["spec"], "spec", &mut |path, schema| {
        // Inside env and envFrom the schema is Kubernetes' own, and no rule of ours looks there.
        if path.contains("env[]") || path.contains("envFrom[]") || path.ends_with("template") {
            return;
        }
        let bounded = match schema.type_.as_deref() {
            Some("array") => schema.max_items.is_some(),
            Some("string") => schema.max_length.is_some() || schema.enum_.is_some(),
            Some("object") if schema.properties.is_none() => schema.max_properties.is_some(),
            Some("integer") => schema.minimum.is_some() && schema.maximum.is_some(),
            _ => true,
        };
        if !bounded {
            unbounded.push(path.to_owned());
        }
    });
    assert_eq!(unbounded, Vec::<String>::new());
}

#[test]
fn two_versions_of_one_schema() {
    let crd = crd::training_job();
    let [v1, v1alpha1] = &crd.spec.versions[..] else { panic!("two versions") };
    assert_eq!((v1.name.as_str(), v1.storage, v1.served), ("v1", true, true));
    assert_eq!((v1alpha1.name.as_str(), v1alpha1.storage, v1alpha1.served), ("v1alpha1", false, true));
    assert_eq!(v1.schema, v1alpha1.schema);
    for version in [v1, v1alpha1] {
        let subresources = version.subresources.as_ref().unwrap();
        assert_eq!(
            subresources.status.as_ref().unwrap().0,
            serde_json::json!({}),
            "null would mean no status at all"
        );
        assert!(subresources.scale.is_some());
    }
    let names = |columns: &Option<Vec<_>>| {
        columns.iter().flatten().filter(|c: &&k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition| c.priority.is_none()).map(|c| c.name.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&v1.additional_printer_columns), "State Progress Epoch Workers Age");
    assert_eq!(names(&v1alpha1.additional_printer_columns), "Framework Workers Phase Age");
}
