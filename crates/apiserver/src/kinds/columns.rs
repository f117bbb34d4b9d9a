//! The columns that `kubectl get` shows, one row per object.

use jiff::Timestamp;
use serde_json::{Value, json};
use trainyard_objects::At as _;

use super::Builtin;
use super::jsonpath::JsonPath;

/// One column of a table.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
    cell: Cell,
}

#[derive(Clone, Debug)]
enum Cell {
    Path(JsonPath),
    /// The number of the cell in what `row` makes.
    Builtin(Builtin, usize),
}

impl Column {
    /// One of the `additionalPrinterColumns` of a definition. `None` when its path cannot be understood.
    pub(crate) fn custom(column: &Value) -> Option<Self> {
        let text = |key: &str| column[key].as_str().unwrap_or_default().to_owned();
        Some(Self {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description: match text("description") {
                none if none.is_empty() => {
                    format!("Custom resource definition column (in JSONPath format): {}", text("jsonPath"))
                }
                given => given,
            },
            priority: column["priority"].as_i64().unwrap_or(0),
            cell: Cell::Path(JsonPath::parse(column["jsonPath"].as_str()?)?),
        })
    }

    /// How the column is announced.
    pub(crate) fn definition(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format,
            "description": self.description, "priority": self.priority,
        })
    }
}

/// What every table begins with.
pub(crate) fn name_column() -> Value {
    json!({
        "name": "Name", "type": "string", "format": "name", "priority": 0,
        "description": "Name must be unique within a namespace.",
    })
}

/// The cells of an object, after its name.
pub(crate) fn cells(columns: &[Column], object: &Value, now: Timestamp) -> Vec<Value> {
    let mut made: Option<Vec<Value>> = None;
    columns
        .iter()
        .map(|column| match &column.cell {
            Cell::Path(path) => custom_cell(&column.kind, path, object, now),
            Cell::Builtin(builtin, index) => {
                let row = made.get_or_insert_with(|| row(*builtin, object, now));
                row.get(*index).cloned().unwrap_or(Value::Null)
            }
        })
        .collect()
}

fn custom_cell(kind: &str, path: &JsonPath, object: &Value, now: Timestamp) -> Value {
    let found = path.find(object);
    let Some(first) = found.first() else { return Value::Null };
    match kind {
        "integer" => first.as_i64().map_or_else(
            || first.as_str().and_then(|text| text.parse::<i64>().ok()).map_or(Value::Null, Into::into),
            Into::into,
        ),
        "number" => first.as_f64().map_or(Value::Null, Into::into),
        "boolean" => first.as_bool().map_or(Value::Null, Into::into),
        "date" => first.as_str().map_or(Value::Null, |text| age(Some(text), now).into()),
        // More than one is shown as one text.
        _ if found.len() > 1 => found.iter().map(|value| plain(value)).collect::<Vec<_>>().join(",").into(),
        _ => plain(first).into(),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The columns of a built-in kind.
pub(crate) fn builtin(builtin: Builtin) -> Vec<Column> {
    let all: &[(&str, &str, i64)] = match builtin {
        Builtin::Namespace => &[("Status", "string", 0), ("Age", "string", 0)],
        Builtin::Pod => &[
            ("Ready", "string", 0),
            ("Status", "string", 0),
            ("Restarts", "string", 0),
            ("Age", "string", 0),
            ("IP", "string", 1),
            ("Node", "string", 1),
            ("Nominated Node", "string", 1),
            ("Readiness Gates", "string", 1),
        ],
        Builtin::Service => &[
            ("Type", "string", 0),
            ("Cluster-IP", "string", 0),
            ("External-IP", "string", 0),
            ("Port(s)", "string", 0),
            ("Age", "string", 0),
            ("Selector", "string", 1),
        ],
        Builtin::ConfigMap => &[("Data", "string", 0), ("Age", "string", 0)],
        Builtin::Secret => &[("Type", "string", 0), ("Data", "string", 0), ("Age", "string", 0)],
        Builtin::ServiceAccount => &[("Secrets", "string", 0), ("Age", "string", 0)],
        Builtin::Claim => &[
            ("Status", "string", 0),
            ("Volume", "string", 0),
            ("Capacity", "string", 0),
            ("Access Modes", "string", 0),
            ("StorageClass", "string", 0),
            ("VolumeAttributesClass", "string", 0),
            ("Age", "string", 0),
            ("VolumeMode", "string", 1),
        ],
        Builtin::Volume => &[
            ("Capacity", "string", 0),
            ("Access Modes", "string", 0),
            ("Reclaim Policy", "string", 0),
            ("Status", "string", 0),
            ("Claim", "string", 0),
            ("StorageClass", "string", 0),
            ("Reason", "string", 0),
            ("Age", "string", 0),
        ],
        Builtin::Node => &[
            ("Status", "string", 0),
            ("Roles", "string", 0),
            ("Age", "string", 0),
            ("Version", "string", 0),
            ("Internal-IP", "string", 1),
            ("External-IP", "string", 1),
            ("OS-Image", "string", 1),
            ("Kernel-Version", "string", 1),
            ("Container-Runtime", "string", 1),
        ],
        Builtin::Event | Builtin::NewEvent => &[
            ("Last Seen", "string", 0),
            ("Type", "string", 0),
            ("Reason", "string", 0),
            ("Object", "string", 0),
            ("Subobject", "string", 1),
            ("Source", "string", 1),
            ("Message", "string", 0),
            ("First Seen", "string", 1),
            ("Count", "string", 1),
            ("Name", "string", 1),
        ],
        Builtin::Quota => &[("Request", "string", 0), ("Limit", "string", 0), ("Age", "string", 0)],
        Builtin::Lease => &[("Holder", "string", 0), ("Age", "string", 0)],
        Builtin::Budget => &[
            ("Min Available", "string", 0),
            ("Max Unavailable", "string", 0),
            ("Allowed Disruptions", "integer", 0),
            ("Age", "string", 0),
        ],
        Builtin::Definition => &[("Created At", "date", 0)],
        Builtin::PriorityClass => &[
            ("Value", "integer", 0),
            ("Global-Default", "boolean", 0),
            ("Age", "string", 0),
            ("PreemptionPolicy", "string", 0),
        ],
        Builtin::StorageClass => &[
            ("Provisioner", "string", 0),
            ("ReclaimPolicy", "string", 0),
            ("VolumeBindingMode", "string", 0),
            ("AllowVolumeExpansion", "boolean", 0),
            ("Age", "string", 0),
        ],
    };
    all.iter()
        .enumerate()
        .map(|(index, (name, kind, priority))| Column {
            name: (*name).to_owned(),
            kind: (*kind).to_owned(),
            format: String::new(),
            description: String::new(),
            priority: *priority,
            cell: Cell::Builtin(builtin, index),
        })
        .collect()
}

pub(super) fn or_none(text: &str) -> Value {
    if text.is_empty() { "<none>".into() } else { text.into() }
}

pub(super) fn length(object: &Value, path: &str) -> usize {
    match object.at(path) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(fields)) => fields.len(),
        _ => 0,
    }
}

pub(super) fn list<'a>(object: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    object.at(path).and_then(Value::as_array).into_iter().flatten()
}

fn row(builtin: Builtin, object: &Value, now: Timestamp) -> Vec<Value> {
    let created = age(object.at("/metadata/creationTimestamp").and_then(Value::as_str), now);
    let terminating = object.at("/metadata/deletionTimestamp").is_some();
    match builtin {
        Builtin::Namespace => vec![object.text_at("/status/phase").into(), created.into()],
        Builtin::Pod => super::pod_columns::row(object, created, now),
        Builtin::Service => service(object, created),
        Builtin::ConfigMap => {
            vec![(length(object, "/data") + length(object, "/binaryData")).into(), created.into()]
        }
        Builtin::Secret => {
            vec![object.text_at("/type").into(), length(object, "/data").into(), created.into()]
        }
        Builtin::ServiceAccount => vec![length(object, "/secrets").into(), created.into()],
        Builtin::Claim => {
            let phase = if terminating { "Terminating" } else { object.text_at("/status/phase") };
            let bound = !object.text_at("/spec/volumeName").is_empty();
            vec![
                phase.into(),
                object.text_at("/spec/volumeName").into(),
                if bound { object.text_at("/status/capacity/storage").into() } else { "".into() },
                if bound { modes(object, "/status/accessModes").into() } else { "".into() },
                object.text_at("/spec/storageClassName").into(),
                match object.text_at("/spec/volumeAttributesClassName") {
                    "" => "<unset>".into(),
                    name => name.into(),
                },
                created.into(),
                object.text_at("/spec/volumeMode").into(),
            ]
        }
        Builtin::Volume => {
            let phase = if terminating { "Terminating" } else { object.text_at("/status/phase") };
            let claim = match object.text_at("/spec/claimRef/name") {
                "" => String::new(),
                name => format!("{}/{name}", object.text_at("/spec/claimRef/namespace")),
            };
            vec![
                object.text_at("/spec/capacity/storage").into(),
                modes(object, "/spec/accessModes").into(),
                object.text_at("/spec/persistentVolumeReclaimPolicy").into(),
                phase.into(),
                claim.into(),
                object.text_at("/spec/storageClassName").into(),
                object.text_at("/status/reason").into(),
                created.into(),
            ]
        }
        Builtin::Node => node(object, created),
        Builtin::Event | Builtin::NewEvent => event(object, now),
        Builtin::Quota => quota(object, created),
        Builtin::Lease => vec![object.text_at("/spec/holderIdentity").into(), created.into()],
        Builtin::Budget => {
            let amount = |key: &str| object["spec"].get(key).map_or_else(|| "N/A".to_owned(), plain);
            vec![
                amount("minAvailable").into(),
                amount("maxUnavailable").into(),
                object.at("/status/disruptionsAllowed").and_then(Value::as_i64).unwrap_or(0).into(),
                created.into(),
            ]
        }
        Builtin::Definition => vec![object.text_at("/metadata/creationTimestamp").into()],
        Builtin::PriorityClass => vec![
            object["value"].clone(),
            object["globalDefault"].as_bool().unwrap_or(false).into(),
            created.into(),
            object.text_at("/preemptionPolicy").into(),
        ],
        Builtin::StorageClass => vec![
            object.text_at("/provisioner").into(),
            object.text_at("/reclaimPolicy").into(),
            object.text_at("/volumeBindingMode").into(),
            object["allowVolumeExpansion"].as_bool().unwrap_or(false).into(),
            created.into(),
        ],
    }
}

fn modes(object: &Value, path: &str) -> String {
    let short = |mode: &Value| match mode.as_str().unwrap_or_default() {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        _ => "?",
    };
    list(object, path).map(short).collect::<Vec<_>>().join(",")
}

fn service(object: &Value, created: String) -> Vec<Value> {
    let ports = list(object, "/spec/ports")
        .map(|port| {
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            match port["nodePort"].as_i64() {
                Some(node) if node > 0 => format!("{}:{node}/{protocol}", port["port"]),
                _ => format!("{}/{protocol}", port["port"]),
            }
        })
        .collect::<Vec<_>>()
        .join(",");
    let mut selector: Vec<String> = object
        .at("/spec/selector")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    selector.sort_unstable();
    let external = match object.text_at("/spec/type") {
        "ExternalName" => object.text_at("/spec/externalName"),
        "LoadBalancer" => "<pending>",
        _ => "<none>",
    };
    vec![
        object.text_at("/spec/type").into(),
        or_none(object.text_at("/spec/clusterIP")),
        external.into(),
        or_none(&ports),
        created.into(),
        or_none(&selector.join(",")),
    ]
}

fn node(object: &Value, created: String) -> Vec<Value> {
    let condition = list(object, "/status/conditions").find(|condition| condition["type"] == "Ready");
    let mut status = match condition.map(|ready| ready["status"] == "True") {
        Some(true) => "Ready".to_owned(),
        Some(false) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if object.at("/spec/unschedulable") == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let mut roles: Vec<&str> = object
        .at("/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    let address = |kind: &str| {
        let found = list(object, "/status/addresses").find(|address| address["type"] == kind);
        or_none(found.and_then(|address| address["address"].as_str()).unwrap_or_default())
    };
    let info = |key: &str| match object.text_at(&format!("/status/nodeInfo/{key}")) {
        "" => Value::from("<unknown>"),
        known => known.into(),
    };
    vec![
        status.into(),
        or_none(&roles.join(",")),
        created.into(),
        object.text_at("/status/nodeInfo/kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let moment = |paths: [&str; 3]| {
        let at = paths.iter().map(|path| object.text_at(path)).find(|at| !at.is_empty());
        age(at, now)
    };
    let involved = &object["involvedObject"];
    let field = |key: &str| involved[key].as_str().unwrap_or_default();
    let source = match (object.text_at("/source/component"), object.text_at("/source/host")) {
        ("", _) => object.text_at("/reportingComponent").to_owned(),
        (component, "") => component.to_owned(),
        (component, host) => format!("{component}, {host}"),
    };
    let count = object.at("/series/count").or(object.get("count")).and_then(Value::as_i64).unwrap_or(1);
    vec![
        moment(["/series/lastObservedTime", "/lastTimestamp", "/eventTime"]).into(),
        object.text_at("/type").into(),
        object.text_at("/reason").into(),
        format!("{}/{}", field("kind").to_lowercase(), field("name")).into(),
        field("fieldPath").into(),
        source.into(),
        object.text_at("/message").trim().into(),
        moment(["/firstTimestamp", "/eventTime", "/metadata/creationTimestamp"]).into(),
        count.max(1).into(),
        object.text_at("/metadata/name").into(),
    ]
}

fn quota(object: &Value, created: String) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (name, hard) in object.at("/status/hard").and_then(Value::as_object).into_iter().flatten() {
        let used = object.at("/status/used").and_then(|used| used.get(name));
        let line = format!(
            "{name}: {}/{}",
            used.and_then(Value::as_str).unwrap_or("0"),
            hard.as_str().unwrap_or_default()
        );
        if name.starts_with("limits") { limits.push(line) } else { requests.push(line) }
    }
    vec![requests.join(", ").into(), limits.join(", ").into(), created.into()]
}

/// How long ago a moment was, in the shortest words that still say something.
pub(crate) fn age(at: Option<&str>, now: Timestamp) -> String {
    let Some(at) = at.and_then(|text| text.parse::<Timestamp>().ok()) else { return "<unknown>".to_owned() };
    let seconds = now.as_second() - at.as_second();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let pair = |big: i64, unit: char, small: i64, small_unit: char| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{small_unit}") }
    };
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(hours / 24, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{}d", hours / 24),
        63_072_000..252_288_000 => pair(hours / 24 / 365, 'y', hours / 24 % 365, 'd'),
        _ => format!("{}y", hours / 24 / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_writes_them() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        for (at, shown) in [
            ("2026-01-01T11:59:30Z", "30s"),
            ("2026-01-01T11:55:00Z", "5m"),
            ("2026-01-01T11:55:30Z", "4m30s"),
            ("2026-01-01T11:00:00Z", "60m"),
            ("2026-01-01T07:30:00Z", "4h30m"),
            ("2025-12-31T11:00:00Z", "25h"),
            ("2025-12-28T11:00:00Z", "4d1h"),
        ] {
            assert_eq!(age(Some(at), now), shown);
        }
    }

    #[test]
    fn a_pod_says_how_it_is() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let mut object = json!({"metadata": {"creationTimestamp": "2026-01-01T11:59:00Z"},
            "spec": {"containers": [{"name": "a"}], "nodeName": "n"},
            "status": {"phase": "Running", "podIP": "127.0.0.2", "containerStatuses": [
                {"name": "a", "ready": true, "restartCount": 2, "state": {"running": {}},
                 "lastState": {"terminated": {"finishedAt": "2026-01-01T11:59:50Z"}}}]}});
        let shown = |object: &Value| {
            cells(&builtin(Builtin::Pod), object, now)
                .iter()
                .take(4)
                .map(plain)
                .collect::<Vec<_>>()
                .join(" | ")
        };
        assert_eq!(shown(&object), "1/1 | Running | 2 (10s ago) | 60s");
        object["status"]["containerStatuses"][0]["state"] =
            json!({"terminated": {"exitCode": 1, "reason": "Error"}});
        object["status"]["containerStatuses"][0]["restartCount"] = 0.into();
        assert_eq!(shown(&object), "0/1 | Error | 0 | 60s");
        object["status"] = json!({"phase": "Pending"});
        object["metadata"]["deletionTimestamp"] = "2026-01-01T11:59:50Z".into();
        assert_eq!(shown(&object), "0/1 | Terminating | 0 | 60s");
    }
}
