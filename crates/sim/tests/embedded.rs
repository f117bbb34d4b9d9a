//! The model of the API server is held to the embedded API server (which is held to a real one by `crates/conformance`): what
//! histories did to the model is done to the embedded server, and every answer must be of the same kind, and so must be what is left.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, Pod, ResourceQuota, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt as _};
use serde_json::{Value, json};
use trainyard_api::{TrainingJob, crd};
use trainyard_apiserver::ApiServer;
use trainyard_operator::{JobRef, KubePort, Metrics, Port as _, Refusal};
use trainyard_plan::{NewObject, Target, TargetKind};
use trainyard_sim::{Deed, Logged, NAMESPACE, Server, history};

/// The embedded server, and what the model calls its objects.
struct Twin {
    client: Client,
    port: KubePort,
    uids: HashMap<String, String>,
    versions: HashMap<String, String>,
}

/// The kind of an answer.
fn kind<T>(answer: &Result<T, Refusal>) -> &'static str {
    match answer {
        Ok(_) => "ok",
        Err(Refusal::NotFound) => "not found",
        Err(Refusal::AlreadyExists) => "already exists",
        Err(Refusal::Conflict) => "conflict",
        Err(Refusal::Quota(_)) => "quota",
        Err(Refusal::Forbidden(_)) => "forbidden",
        Err(Refusal::Invalid(_)) => "invalid",
        Err(Refusal::Passing(_)) => "passing",
    }
}

impl Twin {
    async fn new() -> Self {
        let server = ApiServer::builder().seed(1).build().unwrap();
        let client = server.client(NAMESPACE);
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        definitions.create(&PostParams::default(), &crd::training_job()).await.unwrap();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let port = KubePort::new(client.clone(), 16, "twin", &Metrics::new(NAMESPACE));
        Self { client, port, uids: HashMap::new(), versions: HashMap::new() }
    }

    fn api<K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// In the words of this server: other uids, other versions.
    fn translated(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                self.uids.get(text).map_or_else(|| value.clone(), |uid| uid.as_str().into())
            }
            Value::Array(all) => all.iter().map(|one| self.translated(one)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| {
                    let known = value.as_str().and_then(|version| self.versions.get(version));
                    let value = match known.filter(|_| name == "resourceVersion") {
                        Some(version) => version.as_str().into(),
                        None => self.translated(value),
                    };
                    (name.clone(), value)
                })
                .collect(),
            _ => value.clone(),
        }
    }

    fn uid(&self, uid: &str) -> String {
        self.uids.get(uid).cloned().unwrap_or_else(|| uid.to_owned())
    }

    fn target(&self, target: &Target) -> Target {
        Target { uid: self.uid(&target.uid), ..target.clone() }
    }

    fn job(&self, job: &JobRef) -> JobRef {
        JobRef { uid: self.uid(&job.uid), ..job.clone() }
    }

    fn object(&self, object: &NewObject) -> NewObject {
        fn through<T: serde::Serialize + serde::de::DeserializeOwned>(twin: &Twin, object: &T) -> T {
            let value = serde_json::to_value(object).unwrap();
            serde_json::from_value(twin.translated(&value)).unwrap()
        }
        match object {
            NewObject::Pod(pod) => NewObject::Pod(Box::new(through(self, &**pod))),
            NewObject::Service(service) => NewObject::Service(Box::new(through(self, &**service))),
            NewObject::ConfigMap(map) => NewObject::ConfigMap(Box::new(through(self, &**map))),
            NewObject::Claim(claim) => NewObject::Claim(Box::new(through(self, &**claim))),
        }
    }

    /// Does it here, too. Gives both answers, where there is one.
    async fn again(&mut self, deed: &Deed) -> Option<(&'static str, &'static str)> {
        let any = JobRef { namespace: NAMESPACE.into(), name: String::new(), uid: String::new() };
        Some(match deed {
            Deed::Create(object, uid, answer) => {
                let here = self.port.create(&any, &self.object(object)).await;
                if let Ok(metadata) = self.port.metadata(&any, object.kind(), object.name(), None).await {
                    self.uids.insert(uid.clone(), metadata.uid.unwrap_or_default());
                }
                (kind(answer), kind(&here))
            }
            Deed::Delete(target, grace, answer) => {
                (kind(answer), kind(&self.port.delete(&any, &self.target(target), *grace).await))
            }
            Deed::Patch(target, patch, answer) => {
                let here = self.port.patch(&any, &self.target(target), &self.translated(patch)).await;
                (kind(answer), kind(&here))
            }
            Deed::PatchJob(job, patch, answer) => {
                (kind(answer), kind(&self.port.patch_job(&self.job(job), &self.translated(patch)).await))
            }
            Deed::PatchStatus(job, patch, answer) => {
                (kind(answer), kind(&self.port.patch_status(&self.job(job), &self.translated(patch)).await))
            }
            Deed::DeleteJob(job, answer) => (kind(answer), kind(&self.port.delete_job(&self.job(job)).await)),
            Deed::Budget(job, budget, answer) => {
                let value = self.translated(&serde_json::to_value(budget).unwrap());
                let budget = serde_json::from_value(value).unwrap();
                (kind(answer), kind(&self.port.set_budget(&self.job(job), &budget).await))
            }
            Deed::RemoveBudget(job, name, answer) => {
                (kind(answer), kind(&self.port.remove_budget(&self.job(job), name).await))
            }
            Deed::Record(event, answer) => {
                let mut event = event.clone();
                event.job = self.job(&event.job);
                (kind(answer), kind(&self.port.record_event(&event).await))
            }
            Deed::Submit(name, spec) => {
                let job = TrainingJob::new(name, (**spec).clone());
                self.api::<TrainingJob>().create(&PostParams::default(), &job).await.unwrap();
                return None;
            }
            Deed::Edit(name, spec) => {
                let jobs = self.api::<TrainingJob>();
                let mut job = jobs.get(name).await.unwrap();
                job.spec = (**spec).clone();
                jobs.replace(name, &PostParams::default(), &job).await.unwrap();
                return None;
            }
            Deed::UserDeletes(name) => {
                let _gone = self.api::<TrainingJob>().delete(name, &DeleteParams::background()).await;
                return None;
            }
            Deed::Quota(pods) => {
                self.quota(*pods).await;
                return None;
            }
            Deed::Change(what, name, old, new) => {
                self.change(*what, name, old, new).await;
                return None;
            }
            Deed::Remove(what, name, grace) => {
                self.remove(*what, name, *grace).await;
                return None;
            }
        })
    }

    async fn quota(&self, pods: Option<usize>) {
        let quotas = self.api::<ResourceQuota>();
        let _gone = quotas.delete("team", &DeleteParams::default()).await;
        if let Some(pods) = pods {
            let quota = json!({"metadata": {"name": "team"}, "spec": {"hard": {"pods": pods.to_string()}}});
            let quota = serde_json::from_value(quota).unwrap();
            quotas.create(&PostParams::default(), &quota).await.unwrap();
        }
    }

    async fn remove(&self, what: TargetKind, name: &str, grace: Option<i64>) {
        let parameters = DeleteParams {
            grace_period_seconds: grace.map(|grace| u32::try_from(grace).unwrap()),
            ..DeleteParams::background()
        };
        match what {
            TargetKind::Pod => drop(self.api::<Pod>().delete(name, &parameters).await),
            TargetKind::Service => drop(self.api::<Service>().delete(name, &parameters).await),
            TargetKind::ConfigMap => drop(self.api::<ConfigMap>().delete(name, &parameters).await),
            TargetKind::Claim => drop(self.api::<PersistentVolumeClaim>().delete(name, &parameters).await),
        }
    }

    async fn change(&self, what: TargetKind, name: &str, old: &Value, new: &Value) {
        if old.is_null() {
            return self.plant(what, name, new).await;
        }
        let labels = |value: &Value| value["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        let (before, after) = (labels(old), labels(new));
        if before != after {
            let mut patch = json!(after);
            for label in before.keys().filter(|label| !after.contains_key(*label)) {
                patch[label] = Value::Null;
            }
            let patch = Patch::Merge(json!({"metadata": {"labels": patch}}));
            self.api::<Pod>().patch(name, &PatchParams::default(), &patch).await.unwrap();
        }
        if what == TargetKind::ConfigMap && old["data"] != new["data"] {
            let patch = Patch::Json::<()>(
                serde_json::from_value(json!([{"op": "replace", "path": "/data", "value": new["data"]}]))
                    .unwrap(),
            );
            self.api::<ConfigMap>().patch(name, &PatchParams::default(), &patch).await.unwrap();
        }
        if what != TargetKind::Pod {
            return;
        }
        let pods = self.api::<Pod>();
        if let Some(node) = new["spec"].get("nodeName").filter(|_| old["spec"].get("nodeName").is_none()) {
            let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
            // A pod that is going is not bound any more: the model's kubelet is quicker than its scheduler.
            let _bound: Result<Value, _> =
                pods.create_subresource("binding", name, &PostParams::default(), &body).await;
        }
        if old["status"] != new["status"] {
            let part = |part: &str| new["status"].get(part).cloned().unwrap_or(Value::Null);
            let status = json!({"phase": part("phase"), "containerStatuses": part("containerStatuses"),
                "conditions": part("conditions")});
            let patch = Patch::Merge(json!({"status": status}));
            pods.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
        }
    }

    async fn plant(&self, what: TargetKind, name: &str, value: &Value) {
        let mut value = value.clone();
        value["metadata"]["name"] = name.into();
        let parameters = PostParams::default();
        match what {
            TargetKind::Pod => {
                value["spec"] = json!({"containers": [{"name": "theirs", "image": "theirs"}]});
                value.as_object_mut().unwrap().remove("status");
                let pod: Pod = serde_json::from_value(value).unwrap();
                let _refused_for_a_quota = self.api().create(&parameters, &pod).await;
            }
            TargetKind::Service => {
                value["spec"] = json!({"ports": [{"port": 80}]});
                let service: Service = serde_json::from_value(value).unwrap();
                self.api().create(&parameters, &service).await.unwrap();
            }
            TargetKind::ConfigMap => {
                let map: ConfigMap = serde_json::from_value(value).unwrap();
                self.api().create(&parameters, &map).await.unwrap();
            }
            TargetKind::Claim => unreachable!("nobody plants claims"),
        }
    }

    /// What the job is called here by now.
    async fn meet(&mut self, job: Option<&(String, String)>) {
        let Some((uid, version)) = job else { return };
        if let Ok(Some(job)) = self.api::<TrainingJob>().get_opt("bert").await {
            self.uids.insert(uid.clone(), job.uid().unwrap_or_default());
            self.versions.insert(version.clone(), job.resource_version().unwrap_or_default());
        }
    }

    /// Names, and whether they are going.
    async fn left(&self) -> BTreeMap<&'static str, BTreeMap<String, bool>> {
        async fn names<K>(api: Api<K>) -> BTreeMap<String, bool>
        where
            K: Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
        {
            let all = api.list(&ListParams::default()).await.unwrap();
            let one = |object: K| (object.name_any(), object.meta().deletion_timestamp.is_some());
            all.items.into_iter().map(one).collect()
        }
        let mut maps = names(self.api::<ConfigMap>()).await;
        // Every namespace has one.
        maps.remove("kube-root-ca.crt");
        BTreeMap::from([
            ("pod", names(self.api::<Pod>()).await),
            ("service", names(self.api::<Service>()).await),
            ("config map", maps),
            ("claim", names(self.api::<PersistentVolumeClaim>()).await),
            ("budget", names(self.api::<PodDisruptionBudget>()).await),
            ("job", names(self.api::<TrainingJob>()).await),
        ])
    }
}

fn left(server: &Server) -> BTreeMap<&'static str, BTreeMap<String, bool>> {
    let mut left: BTreeMap<&'static str, BTreeMap<String, bool>> =
        ["pod", "service", "config map", "claim", "budget", "job"]
            .into_iter()
            .map(|kind| (kind, BTreeMap::new()))
            .collect();
    for (kind, child) in server.children() {
        left.entry(kind.as_str()).or_default().insert(child.name().to_owned(), child.is_deleting());
    }
    for name in server.budgets().keys() {
        left.entry("budget").or_default().insert(name.clone(), false);
    }
    for job in server.jobs() {
        left.entry("job").or_default().insert(job.name_any(), job.metadata.deletion_timestamp.is_some());
    }
    left
}

#[tokio::test]
async fn both_servers_give_the_same_answers() {
    let mut answers: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 1..=150 {
        let world = history::tell_ordinary(seed);
        let log: Vec<Logged> = world.server().log.take().unwrap_or_default();
        let mut twin = Twin::new().await;
        for (number, (deed, job)) in log.iter().enumerate() {
            if let Some((model, embedded)) = twin.again(deed).await {
                assert_eq!(model, embedded, "history {seed}, deed {number}: {deed:?}");
                *answers.entry(model).or_default() += 1;
            }
            twin.meet(job.as_ref()).await;
        }
        let expected = left(&world.server());
        assert_eq!(twin.left().await, expected, "history {seed}");
    }
    for kind in ["ok", "conflict", "already exists", "not found"] {
        assert!(answers.contains_key(kind), "no history was answered with {kind}: {answers:?}");
    }
}
