//! The API refuses what a real one refuses: bad requests, with the code, the reason and the message
//! that they get.
//!
//! Every row has the objects of [`prepare`] to work on. `{ns}` stands for the namespace.

use serde_json::json;

use super::Case;
use crate::fixtures::{JOBS, WIDGETS, allow_pods, config_map, pod, training_job, widget};
use crate::sandbox::{Sandbox, With};

/// One bad request.
struct Row {
    method: http::Method,
    path: &'static str,
    content_type: &'static str,
    body: &'static str,
    code: u16,
    reason: &'static str,
    /// A message that ends in `…` is the part of one that matters; the rest names parts of a program.
    message: &'static str,
}

/// `"what": METHOD "path" "content type" "body" => code "Reason" "message",`
macro_rules! rows {
    ($($name:literal: $method:ident $path:literal $content:literal $body:literal => $code:literal $reason:literal $message:literal,)*) => {
        pub(super) const CASES: &[Case] = &[$(Case {
            area: "refused",
            name: $name,
            run: |sandbox| Box::pin(check(sandbox, Row {
                method: http::Method::$method,
                path: $path,
                content_type: $content,
                body: $body,
                code: $code,
                reason: $reason,
                message: $message,
            })),
        },)*];
    };
}

async fn prepare(s: &Sandbox) {
    allow_pods(s).await;
    s.post("configmaps", config_map("here")).await.is(201);
    s.post(WIDGETS, widget("here", json!({"fixed": "x"}))).await.is(201);
    s.post(JOBS, training_job("here")).await.is(201);
    s.post("pods", pod("here")).await.is(201);
}

async fn check(s: Sandbox, row: Row) {
    prepare(&s).await;
    let fill = |text: &str| text.replace("{ns}", &s.namespace);
    let answer = s.ask(row.method, &fill(row.path), fill(row.body), With::content(row.content_type)).await;
    match row.message.strip_suffix('…') {
        None => answer.refused(row.code, row.reason, &fill(row.message)),
        Some(part) => answer.refused_about(row.code, row.reason, &fill(part)),
    };
}

rows! {
    "a config map with a key that is no file name": POST "configmaps" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a/b":"1"}}"#
        => 422 "Invalid" "ConfigMap \"a\" is invalid: data[a/b]: Invalid value: \"a/b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
    "a budget below nothing": POST "policy/v1/poddisruptionbudgets" "application/json"
        r#"{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"a"},"spec":{"minAvailable":-1}}"#
        => 422 "Invalid" "PodDisruptionBudget.policy \"a\" is invalid: spec.minAvailable: Invalid value: -1: must be greater than or equal to 0",
    "a budget of more than all": POST "policy/v1/poddisruptionbudgets" "application/json"
        r#"{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"a"},"spec":{"minAvailable":"101%"}}"#
        => 422 "Invalid" "PodDisruptionBudget.policy \"a\" is invalid: spec.minAvailable: Invalid value: \"101%\": must not be greater than 100%",
    "a budget with a policy that there is not": POST "policy/v1/poddisruptionbudgets" "application/json"
        r#"{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"a"},"spec":{"minAvailable":1,"unhealthyPodEvictionPolicy":"Sometimes"}}"#
        => 422 "Invalid" "PodDisruptionBudget.policy \"a\" is invalid: spec.unhealthyPodEvictionPolicy: Unsupported value: \"Sometimes\": supported values: \"AlwaysAllow\", \"IfHealthyBudget\"",
    "a config map with a number as a value": POST "configmaps" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":1}}"#
        => 400 "BadRequest" "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: …",
    "a config map whose data is a list": POST "configmaps" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":[1]}"#
        => 400 "BadRequest" "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: …",
    "a key in data and in binaryData": POST "configmaps" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"1"},"binaryData":{"a":"MQ=="}}"#
        => 422 "Invalid" "ConfigMap \"a\" is invalid: data[a]: Invalid value: \"a\": duplicate of key present in binaryData",
    "binaryData that is not base64": POST "configmaps" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"binaryData":{"a":"???"}}"#
        => 400 "BadRequest" "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: illegal base64 data at input byte 0",
    "a secret that is not base64": POST "secrets" "application/json"
        r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"a":"???"}}"#
        => 400 "BadRequest" "Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at input byte 0",
    "a secret with a bad key": POST "secrets" "application/json"
        r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"a b":"MQ=="}}"#
        => 422 "Invalid" "Secret \"a\" is invalid: data[a b]: Invalid value: \"a b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
    "metadata that is a list": POST "configmaps" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":[]}"#
        => 400 "BadRequest" "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: …",
    "a label that is a number": POST "configmaps" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"x":1}}}"#
        => 400 "BadRequest" "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: …",
    "a custom resource's label that is a number": POST "conformance.example.com/v1/widgets" "application/json"
        r#"{"apiVersion":"conformance.example.com/v1","kind":"Widget","metadata":{"name":"a","labels":{"x":1}},"spec":{"size":1}}"#
        => 400 "BadRequest" "Widget in version \"v1\" cannot be handled as a Widget: …",
    "a label that is too long": POST "configmaps" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"x":"1234567890123456789012345678901234567890123456789012345678901234"}}}"#
        => 422 "Invalid" "ConfigMap \"a\" is invalid: metadata.labels: Invalid value: \"1234567890123456789012345678901234567890123456789012345678901234\": must be no more than 63 bytes",
    "a label key with a bad prefix": POST "configmaps" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"Not.Ok/x":"1"}}}"#
        => 422 "Invalid" "ConfigMap \"a\" is invalid: metadata.labels: Invalid value: \"Not.Ok/x\": prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
    "an empty label key": POST "configmaps" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"":"1"}}}"#
        => 422 "Invalid" "ConfigMap \"a\" is invalid: [metadata.labels: Invalid value: \"\": name part must be non-empty, metadata.labels: Invalid value: \"\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')]",
    "a name that is too long": POST "configmaps" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}}"#
        => 422 "Invalid" "ConfigMap \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\" is invalid: metadata.name: Invalid value: \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\": must be no more than 253 characters",
    "a generateName that is no prefix of a name": POST "configmaps" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"Not_Ok-"}}"#
        => 422 "Invalid" "metadata.generateName: Invalid value: \"Not_Ok-\": a lowercase RFC 1123 subdomain must consist of…",
    "two controllers": POST "configmaps" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"1","controller":true},{"apiVersion":"v1","kind":"ConfigMap","name":"y","uid":"2","controller":true}]}}"#
        => 422 "Invalid" "Only one reference can have Controller set to true. Found \"true\" in references for ConfigMap/x and ConfigMap/y…",
    "an owner without a name and a kind": POST "configmaps" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","ownerReferences":[{"apiVersion":"v1","uid":"1"}]}}"#
        => 422 "Invalid" "ConfigMap \"a\" is invalid: [metadata.ownerReferences.kind: Invalid value: \"\": must not be empty, metadata.ownerReferences.name: Invalid value: \"\": must not be empty]",
    "an owner whose apiVersion is empty": POST "configmaps" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","ownerReferences":[{"kind":"ConfigMap","name":"x","uid":"1"}]}}"#
        => 422 "Invalid" "ConfigMap \"a\" is invalid: metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty",
    "a list as a body": POST "configmaps" "application/json"
        r#"[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}]"#
        => 400 "BadRequest" "the object provided is unrecognized (must be of type ConfigMap)…",
    "a text as a body": POST "configmaps" "application/json"
        r#""hello""#
        => 400 "BadRequest" "the object provided is unrecognized (must be of type ConfigMap)…",
    "a custom resource of another kind": POST "conformance.example.com/v1/widgets" "application/json"
        r#"{"apiVersion":"conformance.example.com/v1","kind":"Gadget","metadata":{"name":"a"},"spec":{"size":1}}"#
        => 422 "Invalid" "Gadget.conformance.example.com \"a\" is invalid: kind: Invalid value: \"Gadget\": must be Widget",
    "a custom resource of another version": POST "conformance.example.com/v1/widgets" "application/json"
        r#"{"apiVersion":"conformance.example.com/v1beta1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":1}}"#
        => 400 "BadRequest" "the API version in the data (conformance.example.com/v1beta1) does not match the expected API version (conformance.example.com/v1)",
    "a custom resource of another group": POST "conformance.example.com/v1/widgets" "application/json"
        r#"{"apiVersion":"v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":1}}"#
        => 400 "BadRequest" "the API version in the data (v1) does not match the expected API version (conformance.example.com/v1)",
    "a custom resource that is not JSON": POST "conformance.example.com/v1/widgets" "application/json"
        r#"{"apiVersion": oops"#
        => 400 "BadRequest" "the object provided is unrecognized (must be of type Widget)…",
    "a spec that is a text": POST "conformance.example.com/v1/widgets" "application/json"
        r#"{"apiVersion":"conformance.example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":"big"}"#
        => 422 "Invalid" "Widget.conformance.example.com \"a\" is invalid: [spec: Invalid value: \"string\": spec in body must be of type object: \"string\"…",
    "a spec that is null": POST "conformance.example.com/v1/widgets" "application/json"
        r#"{"apiVersion":"conformance.example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":null}"#
        => 422 "Invalid" "Widget.conformance.example.com \"a\" is invalid: [spec: Required value…",
    "a training job without an image": POST "ml.example.com/v1/trainingjobs" "application/json"
        r#"{"apiVersion":"ml.example.com/v1","kind":"TrainingJob","metadata":{"name":"a"},"spec":{}}"#
        => 422 "Invalid" "TrainingJob.ml.example.com \"a\" is invalid: spec: Invalid value: give image, or both model and dataset",
    "a training job with too many workers": POST "ml.example.com/v1/trainingjobs" "application/json"
        r#"{"apiVersion":"ml.example.com/v1","kind":"TrainingJob","metadata":{"name":"a"},"spec":{"image":"i","numWorkers":5000}}"#
        => 422 "Invalid" "TrainingJob.ml.example.com \"a\" is invalid: spec.numWorkers: Invalid value: 5000: spec.numWorkers in body should be less than or equal to 1024",
    "a training job with both names for its workers": POST "ml.example.com/v1/trainingjobs" "application/json"
        r#"{"apiVersion":"ml.example.com/v1","kind":"TrainingJob","metadata":{"name":"a"},"spec":{"image":"i","numWorkers":2,"workers":2}}"#
        => 422 "Invalid" "TrainingJob.ml.example.com \"a\" is invalid: spec: Invalid value: numWorkers and workers are two names of one field: keep one of them; to scale a job with numWorkers: kubectl scale tj/NAME --replicas=N; a job with workers: kubectl scale trainingjobs.v1alpha1.ml.example.com/NAME --replicas=N",
    "a training job with a name that makes no pods": POST "ml.example.com/v1/trainingjobs" "application/json"
        r#"{"apiVersion":"ml.example.com/v1","kind":"TrainingJob","metadata":{"name":"1a"},"spec":{"image":"i"}}"#
        => 422 "Invalid" "TrainingJob.ml.example.com \"1a\" is invalid: <nil>: Invalid value: metadata.name must be at most 50 characters of a-z, 0-9 and '-', starting with a letter and not ending with '-', so that the pod name {name}-workers-1023 is a DNS label",
    "a training job of an unknown framework": POST "ml.example.com/v1/trainingjobs" "application/json"
        r#"{"apiVersion":"ml.example.com/v1","kind":"TrainingJob","metadata":{"name":"a"},"spec":{"image":"i","framework":"abacus"}}"#
        => 422 "Invalid" "TrainingJob.ml.example.com \"a\" is invalid: [spec.framework: Unsupported value: \"abacus\": supported values: \"pytorch\", \"custom\"…",
    "a training job with a text for its workers": POST "ml.example.com/v1/trainingjobs" "application/json"
        r#"{"apiVersion":"ml.example.com/v1","kind":"TrainingJob","metadata":{"name":"a"},"spec":{"image":"i","numWorkers":"two"}}"#
        => 422 "Invalid" "TrainingJob.ml.example.com \"a\" is invalid: [spec.numWorkers: Invalid value: \"string\": spec.numWorkers in body must be of type integer: \"string\"…",
    "a training job with an unknown field, strictly": POST "ml.example.com/v1/trainingjobs?fieldValidation=Strict" "application/json"
        r#"{"apiVersion":"ml.example.com/v1","kind":"TrainingJob","metadata":{"name":"a"},"spec":{"image":"i","wrokers":2}}"#
        => 400 "BadRequest" "TrainingJob in version \"v1\" cannot be handled as a TrainingJob: strict decoding error: unknown field \"spec.wrokers\"",
    "a pod with a bad image": POST "pods" "application/json"
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"x"}]}}"#
        => 422 "Invalid" "Pod \"a\" is invalid: spec.containers[0].image: Required value",
    "a pod with a bad container name": POST "pods" "application/json"
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"X_Y","image":"i"}]}}"#
        => 422 "Invalid" "Pod \"a\" is invalid: spec.containers[0].name: Invalid value: \"X_Y\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
    "a pod with an environment variable without a name": POST "pods" "application/json"
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"x","image":"i","env":[{"value":"1"}]}]}}"#
        => 422 "Invalid" "Pod \"a\" is invalid: spec.containers[0].env[0].name: Required value",
    "a pod with a mount of no volume": POST "pods" "application/json"
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"x","image":"i","volumeMounts":[{"name":"v","mountPath":"/v"}]}]}}"#
        => 422 "Invalid" "Pod \"a\" is invalid: spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
    "a pod with a volume of two kinds": POST "pods" "application/json"
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"x","image":"i"}],"volumes":[{"name":"v","emptyDir":{},"hostPath":{"path":"/x"}}]}}"#
        => 422 "Invalid" "Pod \"a\" is invalid: spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
    "a pod with a quantity that is none": POST "pods" "application/json"
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"x","image":"i","resources":{"limits":{"memory":"lots"}}}]}}"#
        => 400 "BadRequest" "Pod in version \"v1\" cannot be handled as a Pod: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    "a pod that requests more than its limit": POST "pods" "application/json"
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"x","image":"i","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}}]}}"#
        => 422 "Invalid" "Pod \"a\" is invalid: spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
    "a pod with a port out of range": POST "pods" "application/json"
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"x","image":"i","ports":[{"containerPort":70000}]}]}}"#
        => 422 "Invalid" "Pod \"a\" is invalid: spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
    "a pod with a negative grace period": POST "pods" "application/json"
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"terminationGracePeriodSeconds":-1,"activeDeadlineSeconds":-5,"containers":[{"name":"x","image":"i"}]}}"#
        => 422 "Invalid" "Pod \"a\" is invalid: spec.activeDeadlineSeconds: Invalid value: -5: must be between 1 and 2147483647, inclusive",
    "a pod without a spec": POST "pods" "application/json"
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#
        => 422 "Invalid" "Pod \"a\" is invalid: spec.containers: Required value",
    "a service without ports": POST "services" "application/json"
        r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"},"spec":{"selector":{"x":"1"}}}"#
        => 422 "Invalid" "Service \"a\" is invalid: spec.ports: Required value",
    "a service with a name that is no DNS label": POST "services" "application/json"
        r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"a.b"},"spec":{"ports":[{"port":80}]}}"#
        => 422 "Invalid" "Service \"a.b\" is invalid: metadata.name: Invalid value: \"a.b\": must not contain dots",
    "a service with two ports without names": POST "services" "application/json"
        r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"},"spec":{"ports":[{"port":80},{"port":81}]}}"#
        => 422 "Invalid" "Service \"a\" is invalid: [spec.ports[0].name: Required value, spec.ports[1].name: Required value]",
    "a claim without a size": POST "persistentvolumeclaims" "application/json"
        r#"{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"a"},"spec":{"accessModes":["ReadWriteOnce"]}}"#
        => 422 "Invalid" "PersistentVolumeClaim \"a\" is invalid: spec.resources[storage]: Required value",
    "a claim without access modes": POST "persistentvolumeclaims" "application/json"
        r#"{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"a"},"spec":{"resources":{"requests":{"storage":"1Gi"}}}}"#
        => 422 "Invalid" "PersistentVolumeClaim \"a\" is invalid: spec.accessModes: Required value: at least 1 access mode is required",
    "an event without the object it is about": POST "events" "application/json"
        r#"{"apiVersion":"v1","kind":"Event","metadata":{"name":"a"}}"#
        => 422 "Invalid" "Event \"a\" is invalid: involvedObject.namespace: Invalid value: \"\": does not match event.namespace",
    "an event of events.k8s.io without a time": POST "events.k8s.io/v1/events" "application/json"
        r#"{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"a"},"regarding":{"kind":"ConfigMap","name":"x","namespace":"{ns}"}}"#
        => 422 "Invalid" "Event \"a\" is invalid: [eventTime: Required value, type: Invalid value: \"\": has invalid value: ]",
    "a namespace that exists": POST "/api/v1/namespaces" "application/json"
        r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"{ns}"}}"#
        => 409 "AlreadyExists" "namespaces \"{ns}\" already exists",
    "a namespace with a name that is too long": POST "/api/v1/namespaces" "application/json"
        r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x234567890123456789012345678901234567890123456789012345678901234"}}"#
        => 422 "Invalid" "Namespace \"x234567890123456789012345678901234567890123456789012345678901234\" is invalid: [metadata.name: Invalid value: \"x234567890123456789012345678901234567890123456789012345678901234\": must be no more than 63 characters, metadata.labels: Invalid value: \"x234567890123456789012345678901234567890123456789012345678901234\": must be no more than 63 bytes]",
    "PUT of an object without a name": PUT "configmaps/here" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}"#
        => 400 "BadRequest" "the name of the object (here based on URL) was undeterminable: name must be provided",
    "PUT of an object of another namespace": PUT "configmaps/here" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"here","namespace":"default"}}"#
        => 400 "BadRequest" "the namespace of the provided object does not match the namespace sent on the request",
    "PUT of a collection": PUT "configmaps" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"here"}}"#
        => 405 "MethodNotAllowed" "the server does not allow this method on the requested resource",
    "PATCH of a collection": PATCH "configmaps" "application/merge-patch+json"
        "{}"
        => 405 "MethodNotAllowed" "the server does not allow this method on the requested resource",
    "a patch that changes the kind": PATCH "configmaps/here" "application/merge-patch+json"
        r#"{"kind":"Secret"}"#
        => 422 "Invalid" "is invalid: patch: Invalid value: …",
    "a patch that changes the namespace": PATCH "configmaps/here" "application/merge-patch+json"
        r#"{"metadata":{"namespace":"default"}}"#
        => 400 "BadRequest" "the namespace of the provided object does not match the namespace sent on the request",
    "a patch with a value of the wrong type": PATCH "configmaps/here" "application/merge-patch+json"
        r#"{"data":{"a":{"b":1}}}"#
        => 422 "Invalid" "is invalid: patch: Invalid value: …",
    "a patch of a pod's containers": PATCH "pods/here" "application/json-patch+json"
        r#"[{"op":"add","path":"/spec/containers/-","value":{"name":"more","image":"i"}}]"#
        => 422 "Invalid" "Pod \"here\" is invalid: spec.containers: Forbidden: pod updates may not add or remove containers",
    "a patch of an immutable field": PATCH "conformance.example.com/v1/widgets/here" "application/merge-patch+json"
        r#"{"spec":{"fixed":"y"}}"#
        => 422 "Invalid" "Widget.conformance.example.com \"here\" is invalid: spec.fixed: Invalid value: \"y\": fixed cannot be changed",
    "a patch of another dry run": PATCH "configmaps/here?dryRun=Never" "application/merge-patch+json"
        "{}"
        => 422 "Invalid" "PatchOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Never\"]: supported values: \"All\"",
    "an update with another dry run": PUT "configmaps/here?dryRun=Never" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"here"}}"#
        => 422 "Invalid" "UpdateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Never\"]: supported values: \"All\"",
    "a deletion with another dry run": DELETE "configmaps/here?dryRun=Never" "application/json"
        ""
        => 422 "Invalid" "DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Never\"]: supported values: \"All\"",
    "a scale of a training job below zero": PATCH "ml.example.com/v1/trainingjobs/here/scale" "application/merge-patch+json"
        r#"{"spec":{"replicas":-1}}"#
        => 422 "Invalid" "TrainingJob.ml.example.com \"here\" is invalid: [spec.numWorkers: Invalid value: -1: spec.numWorkers in body should be greater than or equal to 0, .spec.numWorkers: Invalid value: -1: should be a non-negative integer, spec: Invalid value: at least one worker is needed (0 is allowed only beside a ranked role)]",
    "a scale of a training job that is a text": PATCH "ml.example.com/v1/trainingjobs/here/scale" "application/merge-patch+json"
        r#"{"spec":{"replicas":"two"}}"#
        => 422 "Invalid" "is invalid: patch: Invalid value: …",
    "a scale of another kind": PUT "ml.example.com/v1/trainingjobs/here/scale" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"here"}}"#
        => 400 "BadRequest" "…",
    "an apply without a name of the manager": PATCH "configmaps/here" "application/apply-patch+yaml"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"here"}}"#
        => 422 "Invalid" "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
    "an apply of something unreadable": PATCH "configmaps/here?fieldManager=me" "application/apply-patch+yaml"
        r#"{"apiVersion": [}"#
        => 400 "BadRequest" "error decoding YAML: …",
    "an apply of another kind": PATCH "configmaps/here?fieldManager=me" "application/apply-patch+yaml"
        r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"here"}}"#
        => 400 "BadRequest" "invalid object type: /v1, Kind=Secret",
    "an apply of another version": PATCH "conformance.example.com/v1/widgets/here?fieldManager=me" "application/apply-patch+yaml"
        r#"{"apiVersion":"conformance.example.com/v1beta1","kind":"Widget","metadata":{"name":"here"},"spec":{"size":1}}"#
        => 400 "BadRequest" "invalid object type: conformance.example.com/v1beta1, Kind=Widget",
    "a field manager with characters that cannot be printed": POST "configmaps?fieldManager=a%01b" "application/json"
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#
        => 422 "Invalid" "CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Invalid value: \"a\\x01b\": invalid character U+0001 (at position 1)",
    "a limit that is not a number": GET "configmaps?limit=many" "application/json"
        ""
        => 400 "BadRequest" "parsing \"many\": invalid syntax…",
    "a timeout that is not a number": GET "configmaps?watch=true&timeoutSeconds=long" "application/json"
        ""
        => 400 "BadRequest" "parsing \"long\": invalid syntax…",
    "a grace period that is not a number": DELETE "pods/here?gracePeriodSeconds=long" "application/json"
        ""
        => 400 "BadRequest" "parsing \"long\": invalid syntax…",
    "an access review without a question": POST "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" "application/json"
        r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{}}"#
        => 422 "Invalid" ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
    "a quota of something negative": POST "resourcequotas" "application/json"
        r#"{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"a"},"spec":{"hard":{"pods":"-1"}}}"#
        => 422 "Invalid" "ResourceQuota \"a\" is invalid: spec.hard[pods]: Invalid value: \"-1\": must be greater than or equal to 0",
    "exec into a pod that is not there": POST "pods/nobody/exec?command=ls" "application/json"
        ""
        => 404 "NotFound" "pods \"nobody\" not found",
    "exec without a command": POST "pods/here/exec" "application/json"
        ""
        => 400 "BadRequest" "pod here does not have a host assigned",
    "the log of a container that is not there": GET "pods/here/log?container=other" "application/json"
        ""
        => 400 "BadRequest" "container other is not valid for pod here",
    "the log with a negative tail": GET "pods/here/log?tailLines=-1" "application/json"
        ""
        => 422 "Invalid" "PodLogOptions \"here\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
}
