//! Services: addresses that are given out, ports that are named.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};
use trainyard_objects::{At as _, FieldError, names};

use super::{default, each, items, object};
use crate::state::State;

/// Services get addresses from here on, as in a cluster with the usual range.
pub(crate) const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 0);

pub(super) fn prepare(state: &mut State, service: &mut Value, old: Option<&Value>) {
    let spec = object(service, "spec");
    default(spec, "type", "ClusterIP");
    default(spec, "sessionAffinity", "None");
    each(spec, "ports", |port| {
        default(port, "protocol", "TCP");
        let number = port["port"].clone();
        if port.get("targetPort").is_none_or(|target| target == 0 || target == "") && !number.is_null() {
            port["targetPort"] = number;
        }
    });
    if spec["type"] == "ExternalName" {
        default(&mut service["status"], "loadBalancer", json!({}));
        return;
    }
    default(spec, "internalTrafficPolicy", "Cluster");
    if let Some(address) = old.and_then(|old| old.at("/spec/clusterIP")) {
        default(spec, "clusterIP", address.clone());
    }
    if spec.text_at("/clusterIP").is_empty() {
        state.addresses += 1;
        let address = Ipv4Addr::from(u32::from(FIRST_ADDRESS) + state.addresses);
        spec["clusterIP"] = address.to_string().into();
    }
    let address = spec["clusterIP"].clone();
    default(spec, "clusterIPs", json!([address]));
    default(spec, "ipFamilies", json!(["IPv4"]));
    default(spec, "ipFamilyPolicy", "SingleStack");
    if !service["status"].is_object() {
        service["status"] = json!({"loadBalancer": {}});
    }
}

pub(super) fn validate(service: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &service["spec"];
    let mut errors = Vec::new();
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    let kind = spec.text_at("/type");
    if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported("spec.type", kind, &kinds));
    }
    let headless = spec.text_at("/clusterIP") == "None";
    let count = items(spec, "ports").count();
    if count == 0 && !headless && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    let mut taken = BTreeSet::new();
    for (index, port) in items(spec, "ports").enumerate() {
        let path = format!("spec.ports[{index}]");
        let name = port.text_at("/name");
        if name.is_empty() && count > 1 {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if !name.is_empty() {
            let wrong = names::dns_label(name);
            errors
                .extend(wrong.into_iter().map(|why| FieldError::invalid(format!("{path}.name"), name, why)));
            if !taken.insert(name.to_owned()) {
                errors.push(FieldError::duplicate(format!("{path}.name"), name));
            }
        }
        let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
        if !(1..=65535).contains(&number) {
            let detail = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(format!("{path}.port"), number, detail));
        }
        let protocols = ["SCTP", "TCP", "UDP"];
        if !protocols.contains(&port.text_at("/protocol")) {
            errors.push(FieldError::not_supported(
                format!("{path}.protocol"),
                port.text_at("/protocol"),
                &protocols,
            ));
        }
    }
    let address = spec.text_at("/clusterIP");
    if !headless && !address.is_empty() && address.parse::<std::net::IpAddr>().is_err() {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(FieldError::invalid("spec.clusterIPs[0]", address, detail));
    }
    if let Some(old) = old
        && kind != "ExternalName"
        && old.text_at("/spec/type") != "ExternalName"
        && old.text_at("/spec/clusterIP") != address
    {
        errors.push(FieldError::invalid("spec.clusterIPs[0]", json!([address]), "may not change once set"));
    }
    errors
}
