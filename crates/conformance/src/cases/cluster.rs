//! Namespaces, events, leases, quotas and what else the operator and kubectl use.

use serde_json::{Value, json};

use super::cases;
use crate::fixtures::{JOBS, WIDGETS, allow_pods, config_map, pod, training_job, widget};
use crate::sandbox::Sandbox;

cases! { "cluster":
    "a new namespace is Active, with its name as a label" => namespace_active,
    "a namespace's name is a DNS label" => namespace_name,
    "deleting a namespace removes what is in it" => namespace_delete,
    "a namespace that is Terminating refuses new objects" => namespace_terminating,
    "a finalizer in a namespace keeps it Terminating" => namespace_held,
    "an event is kept, and found by the object it is about" => events_by_object,
    "an event of events.k8s.io is the core event" => events_two_groups,
    "an event must be in the namespace of its object" => event_namespace,
    "a lease is taken and renewed with optimistic concurrency" => lease,
    "a quota counts pods" => quota_pods,
    "a quota counts objects of any resource" => quota_count,
    "a quota is given back by a deletion" => quota_given_back,
    "a service gets its defaults" => service,
    "a headless service stays headless" => headless_service,
    "a pod gets its defaults" => pod_defaults,
    "a pod without containers is refused" => pod_no_containers,
    "a pod with two containers of one name is refused" => pod_duplicate_containers,
    "a pod with a bad restart policy is refused" => pod_restart_policy,
    "a pod is bound to a node once" => binding,
    "an eviction deletes the pod" => eviction,
    "a budget is made, changed and removed" => budget,
    "a budget keeps a pod that it needs from being evicted" => budget_keeps,
    "a Table of budgets has the columns that kubectl shows" => budget_table,
    "the log of a pod without a node is refused" => log_without_node,
    "self subject access reviews are answered" => access_review,
    "an access review tells yes to the administrator" => access_review_all,
    "a node has a status of its own" => node,
}

fn namespace_path(s: &Sandbox) -> String {
    format!("/api/v1/namespaces/{}", s.namespace)
}

async fn namespace_active(s: Sandbox) {
    s.get(&namespace_path(&s)).await.is(200).has(json!({
        "kind": "Namespace", "status": {"phase": "Active"}, "spec": {"finalizers": ["kubernetes"]},
        "metadata": {"labels": {"kubernetes.io/metadata.name": s.namespace}},
    }));
}

async fn namespace_name(s: Sandbox) {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "with.dots"}});
    s.post("/api/v1/namespaces", object).await.refused(422, "Invalid", "Namespace \"with.dots\" is invalid: metadata.name: Invalid value: \"with.dots\": must not contain dots");
}

async fn namespace_delete(s: Sandbox) {
    allow_pods(&s).await;
    s.post("configmaps", config_map("a")).await.is(201);
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    s.post("pods", pod("a")).await.is(201);
    s.delete(&namespace_path(&s))
        .await
        .is(200)
        .has(json!({"kind": "Namespace", "status": {"phase": "Terminating"}}));
    s.until_gone(&namespace_path(&s)).await;
    s.get(&format!("{WIDGETS}/a")).await.is(404);
    s.get("configmaps/a").await.is(404);
    s.post("configmaps", config_map("b")).await.is(404);
}

async fn namespace_terminating(s: Sandbox) {
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    s.post("configmaps", held).await.is(201);
    s.delete(&namespace_path(&s)).await.is(200);
    let message = format!(
        "configmaps \"new\" is forbidden: unable to create new content in namespace {} because it is being terminated",
        s.namespace
    );
    let start = std::time::Instant::now();
    // Admission may see the namespace's new phase a moment later.
    let answer = loop {
        let answer = s.post("configmaps?dryRun=All", config_map("new")).await;
        if answer.status() != 201 || start.elapsed() > crate::target::LIMIT {
            break answer;
        }
    };
    answer.refused(403, "Forbidden", &message).has(json!({
        "details": {"name": "new", "kind": "configmaps", "causes": [{
            "reason": "NamespaceTerminating", "field": "metadata.namespace",
            "message": format!("namespace {} is being terminated", s.namespace),
        }]},
    }));
    s.post(WIDGETS, widget("new", json!({}))).await.refused_about(
        403,
        "Forbidden",
        "because it is being terminated",
    );
    // What is there can be changed: that is how finalizers go.
    s.merge("configmaps/held", json!({"metadata": {"finalizers": null}})).await.is(200);
    s.until_gone(&namespace_path(&s)).await;
}

async fn namespace_held(s: Sandbox) {
    let mut held = widget("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    s.post(WIDGETS, held).await.is(201);
    s.delete(&namespace_path(&s)).await.is(200);
    s.until(&format!("{WIDGETS}/held"), "a widget that is being deleted", |answer| {
        !answer.at("/metadata/deletionTimestamp").is_empty()
    })
    .await;
    s.get(&namespace_path(&s)).await.is(200).has(json!({"status": {"phase": "Terminating"}}));
    s.merge(&format!("{WIDGETS}/held"), json!({"metadata": {"finalizers": null}})).await.is(200);
    s.until_gone(&namespace_path(&s)).await;
}

fn event(s: &Sandbox, name: &str, about: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name},
        "involvedObject": {"apiVersion": "v1", "kind": "ConfigMap", "name": about, "namespace": s.namespace, "uid": format!("uid-of-{about}")},
        "reason": "Tested", "message": "it was tested", "type": kind, "source": {"component": "conformance"},
        "firstTimestamp": "2030-01-01T00:00:00Z", "lastTimestamp": "2030-01-01T00:00:00Z", "count": 1,
    })
}

async fn events_by_object(s: Sandbox) {
    s.post("events", event(&s, "one", "a", "Normal")).await.is(201);
    s.post("events", event(&s, "two", "b", "Warning")).await.is(201);
    let selector = format!(
        "involvedObject.name=a,involvedObject.namespace={},involvedObject.kind=ConfigMap,involvedObject.uid=uid-of-a",
        s.namespace
    );
    s.get(&format!("events?fieldSelector={selector}")).await.is(200).lists(&["one"]);
    s.get("events?fieldSelector=type!=Normal").await.is(200).lists(&["two"]);
    s.get("events?fieldSelector=reason=Tested").await.is(200).lists(&["one", "two"]);
}

async fn events_two_groups(s: Sandbox) {
    let object = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "one"},
        "regarding": {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "namespace": s.namespace},
        "eventTime": "2030-01-01T00:00:00.000000Z", "reportingController": "example.com/conformance", "reportingInstance": "me",
        "action": "Test", "reason": "Tested", "note": "it was tested", "type": "Normal",
    });
    s.post("events.k8s.io/v1/events", object)
        .await
        .is(201)
        .has(json!({"note": "it was tested", "regarding": {"name": "a"}}));
    s.get("events/one").await.is(200).has(json!({
        "apiVersion": "v1", "message": "it was tested", "involvedObject": {"name": "a"},
        "reportingComponent": "example.com/conformance", "action": "Test",
    }));
    s.post("events", event(&s, "two", "b", "Warning")).await.is(201);
    s.get("events.k8s.io/v1/events/two").await.is(200).has(json!({
        "apiVersion": "events.k8s.io/v1", "note": "it was tested", "regarding": {"name": "b"}, "deprecatedCount": 1,
        "deprecatedSource": {"component": "conformance"},
    }));
    s.get("events.k8s.io/v1/events?fieldSelector=regarding.name=b").await.is(200).lists(&["two"]);
}

async fn event_namespace(s: Sandbox) {
    let mut object = event(&s, "one", "a", "Normal");
    object["involvedObject"]["namespace"] = "default".into();
    s.post("events", object).await.refused(422, "Invalid", "Event \"one\" is invalid: involvedObject.namespace: Invalid value: \"default\": does not match event.namespace");
}

async fn lease(s: Sandbox) {
    let path = "coordination.k8s.io/v1/leases";
    let object = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"},
        "spec": {"holderIdentity": "one", "leaseDurationSeconds": 15, "acquireTime": "2030-01-01T00:00:00.000000Z", "renewTime": "2030-01-01T00:00:00.000000Z"},
    });
    let made =
        s.post(path, object).await.is(201).has(json!({"spec": {"renewTime": "2030-01-01T00:00:00.000000Z"}}));
    let mut first = made.body().clone();
    first["spec"]["holderIdentity"] = "two".into();
    s.put(&format!("{path}/a"), first.clone()).await.is(200).has(json!({"spec": {"holderIdentity": "two"}}));
    first["spec"]["holderIdentity"] = "three".into();
    s.put(&format!("{path}/a"), first).await.refused_about(409, "Conflict", "the object has been modified");
    let mut bad = made.body().clone();
    bad["metadata"] = json!({"name": "b"});
    bad["spec"]["leaseDurationSeconds"] = 0.into();
    s.post(path, bad).await.refused(422, "Invalid", "Lease.coordination.k8s.io \"b\" is invalid: spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0");
}

/// A quota that is in force.
async fn quota(s: &Sandbox, hard: Value) {
    let object = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}});
    s.post("resourcequotas", object).await.is(201);
    s.until("resourcequotas/q", "a quota in force", |answer| answer.body()["status"]["used"].is_object())
        .await;
}

async fn quota_pods(s: Sandbox) {
    allow_pods(&s).await;
    quota(&s, json!({"pods": "1"})).await;
    s.post("pods", pod("a")).await.is(201);
    s.post("pods", pod("b"))
        .await
        .refused(
            403,
            "Forbidden",
            "pods \"b\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1",
        )
        .has(json!({"details": {"name": "b", "kind": "pods"}}));
    s.until("resourcequotas/q", "one used", |answer| answer.body()["status"]["used"]["pods"] == "1").await;
}

async fn quota_count(s: Sandbox) {
    quota(&s, json!({"count/secrets": "1", "count/trainingjobs.ml.example.com": "1"})).await;
    let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    s.post("secrets", secret("a")).await.is(201);
    s.post("secrets", secret("b")).await.refused(403, "Forbidden", "secrets \"b\" is forbidden: exceeded quota: q, requested: count/secrets=1, used: count/secrets=1, limited: count/secrets=1");
    s.post(JOBS, training_job("a")).await.is(201);
    // Quotas of custom resources are in force a moment after the quota is.
    s.post(JOBS, training_job("b")).await.refused(403, "Forbidden", "trainingjobs.ml.example.com \"b\" is forbidden: exceeded quota: q, requested: count/trainingjobs.ml.example.com=1, used: count/trainingjobs.ml.example.com=1, limited: count/trainingjobs.ml.example.com=1");
}

async fn quota_given_back(s: Sandbox) {
    quota(&s, json!({"count/secrets": "1"})).await;
    let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    s.post("secrets", secret("a")).await.is(201);
    s.post("secrets", secret("b")).await.is(403);
    s.delete("secrets/a").await.is(200);
    s.until("resourcequotas/q", "nothing used", |answer| {
        answer.body()["status"]["used"]["count/secrets"] == "0"
    })
    .await;
    s.post("secrets", secret("b")).await.is(201);
}

async fn service(s: Sandbox) {
    let object = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"selector": {"x": "1"}, "ports": [{"port": 80}]},
    });
    let made = s.post("services", object).await.is(201).has(json!({"spec": {
        "type": "ClusterIP", "sessionAffinity": "None", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
    }}));
    made.present("/spec/clusterIP");
}

async fn headless_service(s: Sandbox) {
    let object = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"clusterIP": "None", "selector": {"x": "1"}, "publishNotReadyAddresses": true},
    });
    s.post("services", object).await.is(201).has(
        json!({"spec": {"clusterIP": "None", "clusterIPs": ["None"], "publishNotReadyAddresses": true}}),
    );
    s.merge("services/a", json!({"spec": {"clusterIP": "10.96.1.1"}}))
        .await
        .refused_about(422, "Invalid", "");
}

async fn pod_defaults(s: Sandbox) {
    allow_pods(&s).await;
    let mut object = pod("a");
    object["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80}]);
    object["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1"}});
    s.post("pods", object).await.is(201).has(json!({
        "spec": {
            "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 30,
            "serviceAccountName": "default", "enableServiceLinks": true, "securityContext": {},
            "containers": [{
                "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
            }],
        },
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    }));
    let mut latest = pod("b");
    latest["spec"]["containers"][0]["image"] = "example.com/train".into();
    s.post("pods", latest)
        .await
        .is(201)
        .has(json!({"spec": {"containers": [{"imagePullPolicy": "Always"}]}}));
}

async fn pod_no_containers(s: Sandbox) {
    allow_pods(&s).await;
    let mut object = pod("a");
    object["spec"]["containers"] = json!([]);
    s.post("pods", object).await.refused(
        422,
        "Invalid",
        "Pod \"a\" is invalid: spec.containers: Required value",
    );
}

async fn pod_duplicate_containers(s: Sandbox) {
    allow_pods(&s).await;
    let mut object = pod("a");
    object["spec"]["containers"] = json!([{"name": "x", "image": "i"}, {"name": "x", "image": "i"}]);
    s.post("pods", object).await.refused(
        422,
        "Invalid",
        "Pod \"a\" is invalid: spec.containers[1].name: Duplicate value: \"x\"",
    );
}

async fn pod_restart_policy(s: Sandbox) {
    allow_pods(&s).await;
    let mut object = pod("a");
    object["spec"]["restartPolicy"] = "Sometimes".into();
    s.post("pods", object).await.refused(422, "Invalid", "Pod \"a\" is invalid: spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"");
}

async fn binding(s: Sandbox) {
    allow_pods(&s).await;
    s.post("pods", pod("a")).await.is(201);
    let object = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"apiVersion": "v1", "kind": "Node", "name": "some-node"}});
    s.post("pods/a/binding", object.clone())
        .await
        .is(201)
        .has(json!({"kind": "Status", "status": "Success"}));
    let bound = s.get("pods/a").await.is(200).has(json!({"spec": {"nodeName": "some-node"}}));
    let conditions = bound.body()["status"]["conditions"].as_array().cloned().unwrap_or_default();
    assert!(
        conditions.iter().any(|c| c["type"] == "PodScheduled" && c["status"] == "True"),
        "{}",
        bound.text()
    );
    s.post("pods/a/binding", object).await.refused(409, "Conflict", "Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"some-node\"");
}

async fn eviction(s: Sandbox) {
    allow_pods(&s).await;
    s.post("pods", pod("a")).await.is(201);
    let object = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}});
    s.post("pods/a/eviction", object).await.is(201).has(json!({"kind": "Status", "status": "Success"}));
    s.until_gone("pods/a").await;
}

const BUDGETS: &str = "policy/v1/poddisruptionbudgets";

fn a_budget(least: Value) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": "a"}}}})
}

async fn budget(s: Sandbox) {
    let status =
        json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
    s.post(BUDGETS, a_budget(json!(1)))
        .await
        .is(201)
        .has(json!({"metadata": {"generation": 1}, "status": status}));
    let one = format!("{BUDGETS}/a");
    let change = json!([{"op": "add", "path": "/spec", "value": a_budget(json!("50%"))["spec"]}]);
    let changed = s.json_patch(&one, change.clone()).await.is(200);
    changed.has(json!({"metadata": {"generation": 2}, "spec": {"minAvailable": "50%"}}));
    s.json_patch(&one, change).await.is(200).has(json!({"metadata": {"generation": 2}}));
    let both = json!({"spec": {"maxUnavailable": 1}});
    s.merge(&one, both).await.refused_about(
        422,
        "Invalid",
        "minAvailable and maxUnavailable cannot be both set",
    );
    let owner = json!([{"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": "x"}]);
    s.json_patch(&one, owner).await.refused(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
    );
    s.delete(&one).await.is(200).has(json!({"kind": "Status", "status": "Success"}));
    s.until_gone(&one).await;
}

async fn budget_keeps(s: Sandbox) {
    allow_pods(&s).await;
    for name in ["a", "b"] {
        let mut object = pod(name);
        object["metadata"]["labels"] = json!({"app": "a"});
        s.post("pods", object).await.is(201);
    }
    s.post(BUDGETS, a_budget(json!(2))).await.is(201);
    let eviction =
        |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    // A pod that does not run yet is not missed.
    s.post("pods/b/eviction", eviction("b")).await.is(201);
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    s.merge("pods/a/status", ready).await.is(200);
    let why = "Cannot evict pod as it would violate the pod's disruption budget.";
    let refused = s.post("pods/a/eviction", eviction("a")).await;
    refused.refused(429, "TooManyRequests", why);
    s.json_patch(
        &format!("{BUDGETS}/a"),
        json!([{"op": "replace", "path": "/spec/minAvailable", "value": 0}]),
    )
    .await
    .is(200);
    s.post_until_allowed("pods/a/eviction", eviction("a")).await.is(201);
}

async fn budget_table(s: Sandbox) {
    s.post(BUDGETS, a_budget(json!("50%"))).await.is(201);
    let table =
        s.get_as(BUDGETS, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json").await.is(200);
    let columns = table.body()["columnDefinitions"].as_array().cloned().unwrap_or_default();
    let columns: Vec<(&str, &str)> = columns
        .iter()
        .map(|column| {
            (column["name"].as_str().unwrap_or_default(), column["type"].as_str().unwrap_or_default())
        })
        .collect();
    let expected = [
        ("Name", "string"),
        ("Min Available", "string"),
        ("Max Unavailable", "string"),
        ("Allowed Disruptions", "integer"),
        ("Age", "string"),
    ];
    assert_eq!(columns, expected);
    assert_eq!(
        table.body()["rows"][0]["cells"].as_array().map(|cells| cells[..4].to_vec()),
        Some(vec![json!("a"), json!("50%"), json!("N/A"), json!(0)])
    );
}

async fn log_without_node(s: Sandbox) {
    allow_pods(&s).await;
    s.post("pods", pod("a")).await.is(201);
    let answer = s.get_as("pods/a/log", "*/*").await;
    // There is nothing yet: an empty log, or a refusal in words.
    let empty = [200, 204].contains(&answer.status()) && answer.text().is_empty();
    assert!(
        empty || answer.status() == 400 && answer.at("/kind") == "Status",
        "{} {}",
        answer.status(),
        answer.text()
    );
    s.get("pods/b/log").await.refused(404, "NotFound", "pods \"b\" not found");
    s.get("pods/a/log?container=nobody").await.refused(
        400,
        "BadRequest",
        "container nobody is not valid for pod a",
    );
}

async fn access_review(s: Sandbox) {
    let object = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "create", "group": "ml.example.com", "resource": "trainingjobs", "namespace": s.namespace}},
    });
    s.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", object).await.is(201).has(json!({
        "kind": "SelfSubjectAccessReview", "status": {"allowed": true},
    }));
}

async fn access_review_all(s: Sandbox) {
    let object = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"nonResourceAttributes": {"verb": "get", "path": "/version"}},
    });
    s.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", object)
        .await
        .is(201)
        .has(json!({"status": {"allowed": true}}));
}

async fn node(s: Sandbox) {
    let name = format!("node-{}", s.namespace);
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"unschedulable": true}});
    s.post("/api/v1/nodes", object).await.is(201).lacks("/metadata/namespace");
    let path = format!("/api/v1/nodes/{name}");
    let status = json!({"status": {"capacity": {"cpu": "4", "memory": "8Gi"}, "conditions": [{"type": "Ready", "status": "True"}]}});
    s.strategic(&format!("{path}/status"), status)
        .await
        .is(200)
        .has(json!({"status": {"capacity": {"cpu": "4", "memory": "8Gi"}}}));
    s.get(&path)
        .await
        .is(200)
        .has(json!({"status": {"capacity": {"cpu": "4"}}, "spec": {"unschedulable": true}}));
    s.delete(&path).await.is(200);
    s.get(&path).await.refused(404, "NotFound", &format!("nodes \"{name}\" not found"));
}
