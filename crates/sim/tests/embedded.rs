//! The model of the API server is held to the embedded API server (which is held to a real one by `crates/conformance`): what
//! histories and scenarios did to the model is done to the embedded server. Every answer must be of the same kind, every object must be
//! the same after every deed, and every watch must tell the same.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, Pod, ResourceQuota, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use trainyard_api::{TrainingJob, crd, names};
use trainyard_apiserver::ApiServer;
use trainyard_operator::{JobRef, KubePort, Metrics, Port as _, Refusal, Watched};
use trainyard_plan::{NewObject, Target, TargetKind};
use trainyard_sim::scenario::{library, tell_logged};
use trainyard_sim::{Deed, Logged, NAMESPACE, Told, World, history};

/// Every object, by kind and name.
type State = BTreeMap<(&'static str, String), Value>;

/// The embedded server, and what the model calls its objects.
struct Twin {
    client: Client,
    port: KubePort,
    uids: HashMap<String, String>,
    versions: HashMap<String, String>,
    /// The version before anything happened.
    began: String,
    /// What the metadata of objects has been, by kind and name.
    seen: HashSet<(&'static str, String, String)>,
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
        let jobs: Api<TrainingJob> = Api::namespaced(client.clone(), NAMESPACE);
        let began = jobs.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        let (uids, versions, seen) = (HashMap::new(), HashMap::new(), HashSet::new());
        Self { client, port, uids, versions, began, seen }
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
            Deed::ReadJob(job, answer) => (kind(answer), kind(&self.port.job(job).await)),
            Deed::Read(what, name, at, answer) => {
                let here = self.port.metadata(&any, *what, name, None).await;
                return self.read(*what, name, at.is_some(), answer, &here);
            }
            Deed::ReadPods(at, most, answer) => {
                let here = self.port.pods_beside(&any, None, *most).await;
                let (Ok(Some(model)), Ok(Some(found))) = (answer, &here) else {
                    return Some((kind(answer), kind(&here)));
                };
                let all = model.iter().chain(found).map(ResourceName::name_of).collect::<HashSet<_>>();
                let of = |list: &[ObjectMeta], name: &str| {
                    list.iter().find(|pod| pod.name_of() == name).cloned().ok_or(Refusal::NotFound)
                };
                for name in all {
                    let (model, here) = (of(model, &name), of(found, &name));
                    if let Some((model, here)) =
                        self.read(TargetKind::Pod, &name, at.is_some(), &model, &here)
                    {
                        assert_eq!(model, here, "{name} among all pods");
                    }
                }
                return None;
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
            Deed::RemoveStatus(name) => {
                let patch = Patch::Merge(json!({"status": null}));
                let jobs = self.api::<TrainingJob>();
                jobs.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
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
        if what == TargetKind::Service && old["spec"] != new["spec"] {
            let selector = &new["spec"]["selector"];
            let patch = json!([{"op": "replace", "path": "/spec/selector", "value": selector}]);
            let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
            self.api::<Service>().patch(name, &PatchParams::default(), &patch).await.unwrap();
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
                "initContainerStatuses": part("initContainerStatuses"), "conditions": part("conditions")});
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
            TargetKind::Claim => {
                value["spec"] =
                    json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
                let claim: PersistentVolumeClaim = serde_json::from_value(value).unwrap();
                self.api().create(&parameters, &claim).await.unwrap();
            }
        }
    }

    /// What the jobs are called here by now.
    async fn meet(&mut self, jobs: &[[String; 3]]) {
        for [name, uid, version] in jobs {
            if let Ok(Some(job)) = self.api::<TrainingJob>().get_opt(name).await {
                self.uids.insert(uid.clone(), job.uid().unwrap_or_default());
                self.versions.insert(version.clone(), job.resource_version().unwrap_or_default());
            }
        }
    }

    /// What objects are called here that somebody else made.
    async fn learn(&mut self, state: &BTreeMap<(&'static str, String), (bool, Value)>) {
        let any = JobRef { namespace: NAMESPACE.into(), name: String::new(), uid: String::new() };
        for ((kind, name), (_, value)) in state {
            let uid = value["metadata"]["uid"].as_str().unwrap_or_default();
            if self.uids.contains_key(uid) {
                continue;
            }
            let kinds = [TargetKind::Pod, TargetKind::Service, TargetKind::ConfigMap, TargetKind::Claim];
            let Some(kind) = kinds.into_iter().find(|one| one.as_str() == *kind) else { continue };
            if let Ok(metadata) = self.port.metadata(&any, kind, name, None).await {
                self.uids.insert(uid.to_owned(), metadata.uid.unwrap_or_default());
            }
        }
    }

    /// What both say about one object. Who reads what is old is told of something that has been so.
    fn read(
        &self,
        what: TargetKind,
        name: &str,
        old: bool,
        answer: &Result<ObjectMeta, Refusal>,
        here: &Result<ObjectMeta, Refusal>,
    ) -> Option<(&'static str, &'static str)> {
        let words = |metadata: &ObjectMeta| {
            let whole = json!({"metadata": metadata});
            essence(None, &self.translated(&whole)).to_string()
        };
        let Ok(model) = answer else {
            // Something that was not there yet, or not any more.
            return (!old).then(|| (kind(answer), kind(here)));
        };
        match here {
            Ok(here) if words(model) == words(here) => {}
            _ => {
                let known = self.seen.contains(&(what.as_str(), name.to_owned(), words(model)));
                assert!(old && known, "{} {name} was never {}", what.as_str(), words(model));
            }
        }
        None
    }

    /// Every object, as the model would tell of it.
    async fn state(&mut self) -> State {
        async fn all<K>(kind: &'static str, api: Api<K>, state: &mut BTreeMap<(&'static str, String), Value>)
        where
            K: Resource + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
        {
            let all = api.list(&ListParams::default()).await.unwrap();
            state.extend(
                all.items
                    .into_iter()
                    .map(|object| ((kind, object.name_any()), serde_json::to_value(&object).unwrap())),
            );
        }
        let mut state = State::new();
        all("pod", self.api::<Pod>(), &mut state).await;
        all("service", self.api::<Service>(), &mut state).await;
        all("config map", self.api::<ConfigMap>(), &mut state).await;
        all("claim", self.api::<PersistentVolumeClaim>(), &mut state).await;
        all("budget", self.api::<PodDisruptionBudget>(), &mut state).await;
        all("job", self.api::<TrainingJob>(), &mut state).await;
        // Every namespace has one.
        state.remove(&("config map", "kube-root-ca.crt".to_owned()));
        for ((kind, name), value) in &state {
            self.seen.insert((kind, name.clone(), essence(None, value).to_string()));
        }
        state
    }

    /// What a watch of this kind has told since the beginning, if it is so much.
    async fn watched<K>(&self, kind: Watched, expected: usize) -> Vec<(bool, String)>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug
            + Send
            + 'static,
    {
        let selector = format!("{}={}", names::MANAGED_BY_LABEL, names::MANAGED_BY);
        let parameters = match kind {
            Watched::Jobs => WatchParams::default(),
            _ => WatchParams::default().labels(&selector),
        };
        let mut stream = self.api::<K>().watch(&parameters, &self.began).await.unwrap().boxed();
        let mut told = Vec::new();
        loop {
            // One more than it should be would be there at once.
            let patience = Duration::from_millis(if told.len() < expected { 2000 } else { 1 });
            let Ok(Some(event)) = tokio::time::timeout(patience, stream.next()).await else { return told };
            match event.unwrap() {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    told.push((false, news(object.meta())));
                }
                WatchEvent::Deleted(object) => told.push((true, news(object.meta()))),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(error) => panic!("{error:?}"),
            }
            // What the model does at once may take several writes here: a pod gets its node, and then its status.
            told.dedup();
        }
    }
}

trait ResourceName {
    fn name_of(&self) -> String;
}

impl ResourceName for ObjectMeta {
    fn name_of(&self) -> String {
        self.name.clone().unwrap_or_default()
    }
}

/// What a watch tells of an object.
fn news(metadata: &ObjectMeta) -> String {
    let whole = json!({"metadata": metadata});
    format!("{} {}", metadata.name_of(), essence(None, &whole))
}

/// Of an object what the operator can notice: all of what the model has. Of what is not ours, only the metadata.
fn essence(kind: Option<&str>, whole: &Value) -> Value {
    fn typed<K: Serialize + DeserializeOwned>(whole: &Value) -> Value {
        serde_json::to_value(serde_json::from_value::<K>(whole.clone()).unwrap()).unwrap()
    }
    let whole = match kind {
        Some("pod") => &typed::<Pod>(whole),
        Some("job") => &typed::<TrainingJob>(whole),
        _ => whole,
    };
    let metadata = &whole["metadata"];
    let or_nothing =
        |value: &Value| if value.as_array().is_some_and(Vec::is_empty) { Value::Null } else { value.clone() };
    let mut essence = json!({
        "uid": metadata["uid"],
        "labels": metadata["labels"],
        "annotations": metadata["annotations"],
        "owners": or_nothing(&metadata["ownerReferences"]),
        "finalizers": or_nothing(&metadata["finalizers"]),
        "is going": metadata["deletionTimestamp"].is_string(),
        "grace": metadata["deletionGracePeriodSeconds"],
    });
    let more = match kind {
        Some("pod") => json!({
            "node": whole["spec"]["nodeName"],
            "own grace": whole["spec"]["terminationGracePeriodSeconds"],
            "phase": whole["status"]["phase"],
            "conditions": or_nothing(&whole["status"]["conditions"]),
            "containers": or_nothing(&whole["status"]["containerStatuses"]),
            "sidecars": or_nothing(&whole["status"]["initContainerStatuses"]),
        }),
        Some("service") => json!({"selector": whole["spec"]["selector"]}),
        Some("config map") => json!({"data": whole["data"]}),
        Some("claim") => json!({"modes": whole["spec"]["accessModes"], "size": whole["spec"]["resources"]}),
        Some("budget") => json!({"spec": whole["spec"]}),
        Some("job") => {
            json!({"spec": whole["spec"], "status": whole["status"], "generation": metadata["generation"]})
        }
        _ => Value::Null,
    };
    if !more.is_null() {
        essence["more"] = more;
    }
    if kind == Some("budget") {
        // Budgets are known by their names.
        essence["uid"] = Value::Null;
    }
    essence
}

/// Where the uid stands in the news of an object, and in that of a pod with a uid of the model.
const UID: &str = ",\"uid\":\"";
const NOBODY_MET: &str = ",\"uid\":\"pod-";

/// Does everything once more that was done in this world, and compares.
async fn do_again(what: &str, world: &World, answers: &mut BTreeMap<&str, usize>) {
    let log: Vec<Logged> = world.server().log.take().unwrap_or_default();
    let told: Vec<Told> = std::mem::take(&mut world.server().told);
    let mut twin = Twin::new().await;
    for (number, Logged { deed, jobs, state }) in log.iter().enumerate() {
        if let Some((model, embedded)) = twin.again(deed).await {
            assert_eq!(model, embedded, "{what}, deed {number}: {deed:?}");
            *answers.entry(model).or_default() += 1;
        }
        if matches!(deed, Deed::ReadJob(..) | Deed::Read(..) | Deed::ReadPods(..)) {
            continue;
        }
        twin.meet(jobs).await;
        twin.learn(state).await;
        let here = twin.state().await;
        let names = |state: &State| state.keys().cloned().collect::<Vec<_>>();
        let expected: State =
            state.iter().map(|(key, (_, value))| (key.clone(), twin.translated(value))).collect();
        assert_eq!(names(&here), names(&expected), "{what}, deed {number}: {deed:?}");
        for (key, (ours, _)) in state {
            let kind = Some(key.0).filter(|kind| *ours || *kind == "job");
            let (here, expected) = (essence(kind, &here[key]), essence(kind, &expected[key]));
            assert_eq!(here, expected, "{what}, {key:?} after deed {number}: {deed:?}");
        }
    }
    for kind in Watched::ALL {
        let expected = told.iter().filter(|(told, ..)| *told == kind).map(|(_, gone, metadata)| {
            let metadata = twin.translated(&serde_json::to_value(&**metadata).unwrap());
            (*gone, news(&serde_json::from_value(metadata).unwrap()))
        });
        let mut expected: Vec<(bool, String)> = expected.collect();
        expected.dedup();
        let count = expected.len();
        let here = match kind {
            Watched::Jobs => twin.watched::<TrainingJob>(kind, count).await,
            Watched::Pods => twin.watched::<Pod>(kind, count).await,
            Watched::Services => twin.watched::<Service>(kind, count).await,
            Watched::ConfigMaps => twin.watched::<ConfigMap>(kind, count).await,
            Watched::Claims => twin.watched::<PersistentVolumeClaim>(kind, count).await,
        };
        for (number, (here, expected)) in here.iter().zip(&expected).enumerate() {
            // What was made for a job that is gone went at once: nobody has met it, so its uid has no translation.
            let (here, expected) = match expected.1.rsplit_once(NOBODY_MET) {
                Some((rest, _)) => (
                    (here.0, here.1.rsplit_once(UID).map(|(rest, _)| rest).unwrap_or_default()),
                    (expected.0, rest),
                ),
                None => ((here.0, here.1.as_str()), (expected.0, expected.1.as_str())),
            };
            assert_eq!(here, expected, "{what}, event {number} of {}", kind.plural());
        }
        assert_eq!(here.len(), count, "{what}, events of {}", kind.plural());
    }
}

#[tokio::test]
async fn both_servers_do_the_same_in_histories() {
    let mut answers: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 1..=50 {
        do_again(&format!("history {seed}"), &history::tell_ordinary(seed), &mut answers).await;
    }
    for kind in ["ok", "conflict", "already exists", "not found"] {
        assert!(answers.contains_key(kind), "no history was answered with {kind}: {answers:?}");
    }
}

/// Stories with jobs that no API server would let through: the rules of the CRD are not the model's.
const INVALID: [&str; 2] = ["invalid for a while", "delete while invalid"];

#[tokio::test]
async fn both_servers_do_the_same_in_scenarios() {
    let mut answers: BTreeMap<&str, usize> = BTreeMap::new();
    for scenario in library().iter().filter(|scenario| !INVALID.contains(&scenario.name)) {
        do_again(scenario.name, &tell_logged(scenario), &mut answers).await;
    }
}
