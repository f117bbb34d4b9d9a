//! The desk at which all news arrive: it knows the pods of this node, decides which of those that wait may start, and
//! hands each to a task of its own. One task, so no locks; nothing slow happens here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, PodCondition, Service};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use crate::book::{Book, Entry, Held, State};
use crate::fit::{self, Amounts, Candidate, Capacity, Verdict};
use crate::names::{self, Host, Selected};
use crate::notices::Voice;
use crate::pod::{self, Assignment, News, Outcome};
use crate::ports::{self, Ports};
use crate::rewrite::Rewrites;
use crate::shared::Shared;
use crate::{claims, status, volumes};

/// What happens.
pub(crate) enum Message {
    Pod(Box<Pod>),
    PodGone(Box<Pod>),
    /// A list of all pods has begun, or is complete.
    PodListBegins,
    PodListEnds,
    Claim(Box<PersistentVolumeClaim>),
    ClaimGone(Box<PersistentVolumeClaim>),
    ClaimReady {
        key: (String, String),
        path: PathBuf,
    },
    /// It is there, or has changed.
    ConfigMap(Box<ConfigMap>),
    Service(Box<Service>),
    ServiceGone(Box<Service>),
    /// A pod's task has ended.
    Ended {
        uid: String,
        outcome: Outcome,
    },
    /// End all pods; the answer comes when they have ended.
    Stop {
        grace: Duration,
        done: oneshot::Sender<()>,
    },
}

pub(crate) struct Desk {
    shared: Arc<Shared>,
    messages: mpsc::UnboundedSender<Message>,
    capacity: Capacity,
    pods: Book,
    next_number: u64,
    claims: BTreeMap<(String, String), Option<PathBuf>>,
    /// Claims that were deleted, and whose directories a pod still has.
    deleted_claims: Vec<PersistentVolumeClaim>,
    services: BTreeMap<(String, String), Selected>,
    ports: Ports,
    addresses: Addresses,
    free_gpus: BTreeSet<u32>,
    machine_hosts: String,
    /// Namespaces whose hosts file is not what it should be.
    stale_names: BTreeSet<String>,
    /// Pods that a list in progress has not shown yet.
    unseen: Option<BTreeSet<String>>,
    /// Whether what a predecessor left has been cleared away.
    cleared: bool,
    /// Whether something has changed for those that wait.
    look_again: bool,
    stopping: Option<Duration>,
    waiting_for_end: Vec<oneshot::Sender<()>>,
}

/// Addresses in 127.77.0.0/16. They begin somewhere, so that two nodes on one machine seldom meet.
struct Addresses {
    used: BTreeSet<u16>,
    next: u16,
}

impl Addresses {
    fn take(&mut self) -> u16 {
        loop {
            self.next = self.next.wrapping_add(1);
            if !matches!(self.next & 0xff, 0 | 0xff) && self.used.insert(self.next) {
                return self.next;
            }
        }
    }

    fn text(address: u16) -> String {
        format!("127.77.{}.{}", address >> 8, address & 0xff)
    }
}

impl Desk {
    pub(crate) fn new(shared: Arc<Shared>, messages: mpsc::UnboundedSender<Message>) -> Self {
        let machine = &shared.machine;
        let mut allocatable = fit::amounts(Some(&machine.allocatable));
        allocatable.remove("pods");
        let capacity = Capacity {
            allocatable,
            max_pods: i64::from(shared.config.max_pods),
            labels: machine.labels.clone(),
            node: shared.config.name.clone(),
        };
        let seed = std::process::id().wrapping_mul(2_654_435_761) >> 16;
        Self {
            capacity,
            pods: Book::default(),
            next_number: 0,
            claims: BTreeMap::new(),
            deleted_claims: Vec::new(),
            services: BTreeMap::new(),
            ports: Ports::default(),
            addresses: Addresses { used: BTreeSet::new(), next: u16::try_from(seed).unwrap_or_default() },
            free_gpus: (0..machine.gpus).collect(),
            machine_hosts: fs::read_to_string("/etc/hosts").unwrap_or_default(),
            stale_names: BTreeSet::new(),
            unseen: None,
            cleared: false,
            look_again: false,
            stopping: None,
            waiting_for_end: Vec::new(),
            shared,
            messages,
        }
    }

    /// Takes news until the node has stopped.
    pub(crate) async fn work(mut self, mut inbox: mpsc::UnboundedReceiver<Message>) {
        let mut batch = Vec::new();
        while inbox.recv_many(&mut batch, 1024).await > 0 {
            for message in batch.drain(..) {
                self.take(message);
            }
            self.put_claims_aside();
            self.admit();
            self.write_names();
            if self.stopping.is_some() && self.pods.running().next().is_none() {
                for done in self.waiting_for_end.drain(..) {
                    let _ = done.send(());
                }
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Pod(pod) => self.pod(*pod),
            Message::PodGone(pod) => self.pod_gone(&pod.metadata.uid.unwrap_or_default()),
            Message::PodListBegins => self.unseen = Some(self.pods.uids()),
            Message::PodListEnds => {
                for uid in self.unseen.take().unwrap_or_default() {
                    self.pod_gone(&uid);
                }
                self.clear_leftovers();
            }
            Message::Claim(claim) => self.claim(*claim),
            Message::ClaimGone(claim) => {
                self.claims.remove(&key(&claim.metadata));
                self.deleted_claims.push(*claim);
            }
            Message::ClaimReady { key, path } => {
                self.look_again = true;
                self.claims.insert(key, Some(path));
            }
            Message::ConfigMap(map) => self.config_map(*map),
            Message::Service(service) => self.service(&service),
            Message::ServiceGone(service) => {
                if self.services.remove(&key(&service.metadata)).is_some() {
                    self.names_changed();
                }
            }
            Message::Ended { uid, outcome } => self.ended(&uid, outcome),
            Message::Stop { grace, done } => self.stop(grace, done),
        }
    }

    /// Pods that have it as files get the new ones.
    fn config_map(&self, map: ConfigMap) {
        let map = Arc::new(map);
        let has_it = |pod: &Pod| {
            let name = map.metadata.name.as_deref().unwrap_or_default();
            pod.metadata.namespace == map.metadata.namespace && volumes::are_made_of(pod, name)
        };
        for (pod, held) in self.pods.running_pods() {
            if has_it(pod) {
                let _ = held.task.send(News::ConfigMap(map.clone()));
            }
        }
    }

    fn pod(&mut self, mut pod: Pod) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(&uid);
        }
        let node =
            pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).filter(|node| !node.is_empty());
        let bound_here = node == Some(&self.shared.config.name);
        if node.is_some() && !bound_here {
            // Bound elsewhere before we could.
            if self.pods.get(&uid).is_some_and(|entry| matches!(entry.state, State::Waits { .. })) {
                self.pods.remove(&uid);
            }
            return;
        }
        pod.metadata.managed_fields = None;
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        let over = matches!(phase.as_str(), "Succeeded" | "Failed");
        let leaving = pod.metadata.deletion_timestamp.is_some();
        if let Some(entry) = self.pods.get(&uid) {
            let pod = Arc::new(pod);
            match &entry.state {
                State::Runs(held) => {
                    let _ = held.task.send(News::Changed(pod.clone()));
                    self.pods.set_pod(&uid, pod);
                }
                State::Waits { .. } => {
                    self.look_again = true;
                    self.pods.set_pod(&uid, pod);
                }
                State::Done if leaving => self.remove(pod),
                State::Done => {}
            }
            return;
        }
        self.next_number += 1;
        let (number, lost) = (self.next_number, phase == "Running");
        if over {
            let removed = Arc::new(pod);
            if leaving && bound_here {
                self.remove(removed.clone());
            }
            self.pods.insert(uid, Entry { pod: Arc::new(slim(&removed)), number, state: State::Done });
            return;
        }
        let entry = Entry { pod: Arc::new(pod), number, state: State::Waits { said: None } };
        self.pods.insert(uid.clone(), entry);
        self.look_again = true;
        if bound_here {
            self.start(&uid, false, lost);
        }
    }

    fn pod_gone(&mut self, uid: &str) {
        let Some(entry) = self.pods.get(uid) else { return };
        match &entry.state {
            // Its task ends at once, and says so.
            State::Runs(held) => {
                let _ = held.task.send(News::Gone);
            }
            State::Waits { .. } | State::Done => {
                self.pods.remove(uid);
                self.clear_away(uid);
            }
        }
    }

    /// A pod that has ended is on its way out: nothing is left to wait for.
    fn remove(&self, pod: Arc<Pod>) {
        let client = self.shared.client.clone();
        tokio::spawn(async move { pod::remove_object(&client, &pod).await });
    }

    fn clear_away(&self, uid: &str) {
        let (shared, uid) = (self.shared.clone(), uid.to_owned());
        tokio::task::spawn_blocking(move || shared.remove_pod(&uid));
    }

    /// The first time that all pods are known: directories of others are of no use any more.
    fn clear_leftovers(&mut self) {
        if std::mem::replace(&mut self.cleared, true) {
            return;
        }
        let directory = self.shared.config.state_dir.join("pods");
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if let Some(uid) = entry.file_name().to_str().filter(|uid| self.pods.get(uid).is_none()) {
                self.clear_away(uid);
            }
        }
    }

    fn ended(&mut self, uid: &str, outcome: Outcome) {
        let Some(entry) = self.pods.get(uid) else { return };
        let pod = entry.pod.clone();
        let Some(State::Runs(held)) = self.pods.set_state(uid, State::Done) else { return };
        self.pods.set_pod(uid, Arc::new(slim(&pod)));
        self.look_again = true;
        self.stale_names.insert(held.host.namespace.clone());
        self.addresses.used.remove(&held.address);
        self.free_gpus.extend(held.gpus);
        if !self.pods.running().any(|other| other.holder == held.holder) {
            self.ports.release(&held.holder);
        }
        match outcome {
            Outcome::Removed => {
                self.pods.remove(uid);
                self.clear_away(uid);
            }
            // It may have been asked to go while its last status was written.
            Outcome::Finished if pod.metadata.deletion_timestamp.is_some() => self.remove(pod),
            Outcome::Finished => {}
        }
    }

    fn stop(&mut self, grace: Duration, done: oneshot::Sender<()>) {
        self.stopping = Some(grace);
        self.waiting_for_end.push(done);
        for held in self.pods.running() {
            let _ = held.task.send(News::NodeStops(grace));
        }
    }

    /// Starts the pods that can start now, and says of the others why not.
    fn admit(&mut self) {
        if self.stopping.is_some() || self.unseen.is_some() || !std::mem::take(&mut self.look_again) {
            return;
        }
        let mut waiting: Vec<&Entry> = self.pods.waiting().collect();
        waiting.retain(|entry| {
            let gated = entry.pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
            gated.is_none_or(Vec::is_empty) && entry.pod.metadata.deletion_timestamp.is_none()
        });
        waiting.sort_by_key(|entry| {
            let created = entry.pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (created, entry.number)
        });
        let candidates: Vec<Candidate<'_>> = waiting
            .iter()
            .map(|entry| Candidate { pod: &entry.pod, claims: self.missing_claim(&entry.pod) })
            .collect();
        let running: Vec<Amounts> = self.pods.running().map(|held| held.requests.clone()).collect();
        let verdicts = fit::admit(&self.capacity, &running, &candidates, self.pods.waves());
        let uids: Vec<String> =
            waiting.iter().map(|entry| entry.pod.metadata.uid.clone().unwrap_or_default()).collect();
        let mut starting = Vec::new();
        for (uid, verdict) in uids.into_iter().zip(verdicts) {
            match verdict {
                Verdict::Start => starting.push(uid),
                Verdict::Unschedulable(message) => self.say_unschedulable(&uid, message),
                Verdict::WaitForGang => {}
            }
        }
        self.start_all(&starting);
    }

    fn missing_claim(&self, pod: &Pod) -> Option<String> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        claim_names(pod).into_iter().find_map(|name| {
            match self.claims.get(&(namespace.clone(), name.clone())) {
                Some(Some(_)) => None,
                Some(None) => Some("pod has unbound immediate PersistentVolumeClaims".to_owned()),
                None => Some(format!("persistentvolumeclaim {name:?} not found")),
            }
        })
    }

    fn say_unschedulable(&mut self, uid: &str, message: String) {
        let Some(entry) = self.pods.get(uid) else { return };
        if !matches!(&entry.state, State::Waits { said } if said.as_ref() != Some(&message)) {
            return;
        }
        let pod = entry.pod.clone();
        self.pods.set_state(uid, State::Waits { said: Some(message.clone()) });
        self.shared.notices.warning(&pod, Voice::Scheduler, "FailedScheduling", message.clone());
        let client = self.shared.client.clone();
        tokio::spawn(async move {
            let mut conditions =
                pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
            let condition = PodCondition {
                type_: "PodScheduled".to_owned(),
                status: "False".to_owned(),
                reason: Some("Unschedulable".to_owned()),
                message: Some(message),
                ..PodCondition::default()
            };
            status::set_condition(&mut conditions, condition, Timestamp::now());
            let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": conditions}});
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let api: Api<Pod> = Api::namespaced(client, namespace);
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            if let Err(error) = api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await {
                tracing::debug!(pod = name, "its condition was not written: {error}");
            }
        });
    }

    /// Gives everything to all of them first: they refer to each other by name and port.
    fn start_all(&mut self, uids: &[String]) {
        let mut receivers = Vec::new();
        for uid in uids {
            if let Some(news) = self.give(uid) {
                receivers.push((uid.clone(), news));
            }
        }
        self.write_names();
        for (uid, news) in receivers {
            self.hand_over(&uid, news, true, false);
        }
    }

    fn start(&mut self, uid: &str, bind: bool, lost: bool) {
        let Some(news) = self.give(uid) else { return };
        self.write_names();
        self.hand_over(uid, news, bind, lost);
    }

    /// Reserves what a pod needs.
    fn give(&mut self, uid: &str) -> Option<mpsc::UnboundedReceiver<News>> {
        let pod = self.pods.get(uid)?.pod.clone();
        let requests = fit::requests(&pod);
        let wanted = requests.get(&self.shared.config.gpu_resource).copied().unwrap_or_default() / 1000;
        let wanted = usize::try_from(wanted).unwrap_or_default();
        let gpus: Vec<u32> = self.free_gpus.iter().copied().take(wanted).collect();
        for gpu in &gpus {
            self.free_gpus.remove(gpu);
        }
        let address = self.addresses.take();
        let holder = match fit::gang(&pod) {
            Some((namespace, job, attempt)) => format!("{namespace}/{job}/{attempt}"),
            None => uid.to_owned(),
        };
        self.ports.take(&holder, &ports::declared(&pod), ports::reserve, ports::any_free);
        let host = Host::of(&pod, &Addresses::text(address));
        self.stale_names.insert(host.namespace.clone());
        let (task, news) = mpsc::unbounded_channel();
        self.pods.set_state(uid, State::Runs(Held { task, requests, host, address, gpus, holder }));
        Some(news)
    }

    /// Starts the task of a pod that has got what it needs.
    fn hand_over(&mut self, uid: &str, news: mpsc::UnboundedReceiver<News>, bind: bool, lost: bool) {
        let Some(entry) = self.pods.get(uid) else { return };
        let State::Runs(held) = &entry.state else { return };
        let namespace = entry.pod.metadata.namespace.clone().unwrap_or_default();
        let of_claim = |name: String| {
            let path = self.claims.get(&(namespace.clone(), name.clone()))?.clone()?;
            Some((name, path))
        };
        let assignment = Assignment {
            pod: entry.pod.clone(),
            bind,
            lost,
            address: held.host.address.clone(),
            gpus: held.gpus.clone(),
            rewrites: self.rewrites(held, &namespace),
            claims: claim_names(&entry.pod).into_iter().filter_map(of_claim).collect(),
        };
        let (shared, messages, uid) = (self.shared.clone(), self.messages.clone(), uid.to_owned());
        tokio::spawn(async move {
            let outcome = pod::run(shared, assignment, news).await;
            let _ = messages.send(Message::Ended { uid, outcome });
        });
    }

    fn rewrites(&self, held: &Held, namespace: &str) -> Rewrites {
        let ports = self.ports.replaced(&held.holder);
        let without_names = self.shared.walls == crate::isolate::orders::Walls::None;
        if ports.is_empty() && !without_names {
            return Rewrites::default();
        }
        let (mut names, mut addresses) = (Vec::new(), Vec::new());
        for other in self.pods.running() {
            let own = other.host.names(namespace);
            if other.holder == held.holder {
                names.extend(own.clone());
                names.push(other.host.address.clone());
            }
            if without_names {
                addresses.extend(own.into_iter().map(|name| (name, other.host.address.clone())));
            }
        }
        // The longest first, so that no name is replaced inside another.
        addresses.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        Rewrites { ports, names, paths: Vec::new(), addresses }
    }

    /// Takes directories of deleted claims out of the way, once no pod uses them any more.
    fn put_claims_aside(&mut self) {
        if self.deleted_claims.is_empty() {
            return;
        }
        let used: BTreeSet<(String, String)> = self
            .pods
            .running_pods()
            .flat_map(|(pod, _)| {
                let namespace = pod.metadata.namespace.clone().unwrap_or_default();
                claim_names(pod).into_iter().map(move |name| (namespace.clone(), name))
            })
            .collect();
        let (used, unused) = std::mem::take(&mut self.deleted_claims)
            .into_iter()
            .partition(|claim| used.contains(&key(&claim.metadata)));
        self.deleted_claims = used;
        self.put_aside(unused);
    }

    fn put_aside(&self, deleted: Vec<PersistentVolumeClaim>) {
        for claim in deleted {
            if let Err(error) = claims::put_aside(&self.shared.config.state_dir, &claim) {
                let (namespace, name) = key(&claim.metadata);
                tracing::warn!("the directory of the deleted claim {namespace}/{name} stays: {error}");
            }
        }
    }

    fn claim(&mut self, claim: PersistentVolumeClaim) {
        let key = key(&claim.metadata);
        // The next of its name starts empty. Pods that have the old directory keep it.
        let (same, others) = std::mem::take(&mut self.deleted_claims)
            .into_iter()
            .partition(|deleted| self::key(&deleted.metadata) == key);
        self.deleted_claims = others;
        self.put_aside(same);
        if claim.metadata.deletion_timestamp.is_some() || self.claims.get(&key).is_some_and(Option::is_some) {
            return;
        }
        let made = claims::make(&self.shared.config.state_dir, &claim);
        let (client, messages) = (self.shared.client.clone(), self.messages.clone());
        let ready = match made {
            Some(Ok(path)) => Some(path),
            Some(Err(error)) => {
                tracing::warn!("the claim {}/{} gets no directory: {error}", key.0, key.1);
                self.claims.insert(key, None);
                return;
            }
            None => None,
        };
        self.claims.insert(key.clone(), ready.clone());
        self.look_again = true;
        tokio::spawn(async move {
            let path = match ready {
                Some(path) => path,
                None => match claims::find(&client, &claim).await {
                    Some(path) => {
                        let _ = messages.send(Message::ClaimReady { key, path: path.clone() });
                        path
                    }
                    None => return,
                },
            };
            if !claims::is_bound(&claim)
                && let Err(error) = claims::bind(&client, &claim, &path).await
            {
                tracing::warn!("a claim was not bound: {error}");
            }
        });
    }

    fn service(&mut self, service: &Service) {
        let key = key(&service.metadata);
        let now = Selected::of(service);
        if self.services.get(&key) == now.as_ref() {
            return;
        }
        match now {
            Some(now) => self.services.insert(key, now),
            None => self.services.remove(&key),
        };
        self.names_changed();
    }

    /// All namespaces may refer to a service by its long name.
    fn names_changed(&mut self) {
        self.stale_names.extend(self.pods.running().map(|held| held.host.namespace.clone()));
    }

    /// Writes the hosts files that are not up to date.
    fn write_names(&mut self) {
        if self.stale_names.is_empty() || self.shared.walls == crate::isolate::orders::Walls::None {
            return;
        }
        let hosts: Vec<Host> = self.pods.running().map(|held| held.host.clone()).collect();
        let services: Vec<Selected> = self.services.values().cloned().collect();
        for namespace in std::mem::take(&mut self.stale_names) {
            let text = names::hosts_file(&self.machine_hosts, &namespace, &hosts, &services);
            let path = self.shared.hosts_path(&namespace);
            if let Err(error) = overwrite(&path, &text) {
                tracing::warn!("names of pods may not resolve: {}: {error}", path.display());
            }
        }
    }
}

/// Containers have the file itself mounted, so it must stay the same file. One write: readers see the old text or the new.
fn overwrite(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)
}

fn claim_names(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.clone())).collect()
}

/// What is still needed of a pod that has ended: to which gang it belonged.
fn slim(pod: &Pod) -> Pod {
    let mut slim = Pod { metadata: pod.metadata.clone(), ..Pod::default() };
    slim.metadata.owner_references = None;
    slim
}

fn key(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> (String, String) {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}
