//! Below the verbs: what is stored, and what watches are told of it.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::watcher::Event;
use serde_json::Value;
use trainyard_api::{TrainingJob, TrainingJobStatus};
use trainyard_operator::{Sighting, Watched, Written};
use trainyard_plan::{NewObject, TargetKind};

use super::past::Past;
use super::{Actor, Body, Change, Child, NAMESPACE, Server, watched};

pub(super) const READABLE: &str = "what the model stores can be read";

impl Server {
    pub(super) fn insert(
        &mut self,
        by: Actor,
        kind: TargetKind,
        name: &str,
        mut value: Body,
        ours: bool,
        made: Option<Arc<NewObject>>,
    ) -> Written {
        self.version += 1;
        self.uids += 1;
        let uid = format!("{}-{}", kind.as_str().replace(' ', "-"), self.uids);
        let metadata = value.metadata_mut();
        metadata.uid = Some(uid.clone());
        metadata.namespace = Some(NAMESPACE.to_owned());
        metadata.resource_version = Some(self.version.to_string());
        metadata.creation_timestamp = Some(Time(whole_seconds(self.now)));
        let child = Child {
            uid,
            version: self.version,
            value,
            ours,
            maker: by,
            born: self.version,
            made,
            told: self.journal[watched(kind) as usize].len(),
            first_told: self.journal[watched(kind) as usize].len(),
            image: None,
            resume: None,
            rank: None,
            avoids: Vec::new(),
        };
        if child.is_selected() {
            let sighting = told(self.speaks_json, kind, &child.value, None);
            self.journal[watched(kind) as usize].push(sighting);
            let metadata = child.value.metadata().clone();
            self.tells(watched(kind), false, || metadata);
        }
        self.children[kind as usize].insert(name.to_owned(), child);
        self.changes.push((by, Change::Created(kind, name.to_owned())));
        self.written()
    }

    pub(super) fn replace(&mut self, by: Actor, kind: TargetKind, name: &str, mut new: Body) -> Written {
        let version = self.version + 1;
        let Some(child) = self.children[kind as usize].get_mut(name) else { return Written::default() };
        if new == child.value {
            return Written { version: child.version, resource_version: child.version.to_string() };
        }
        self.version = version;
        new.metadata_mut().resource_version = Some(version.to_string());
        let was_selected = child.is_selected();
        let mut old = std::mem::replace(&mut child.value, new);
        let from = std::mem::replace(&mut child.version, version);
        let metadata = old.metadata().clone();
        let journal = &mut self.journal[watched(kind) as usize];
        let last = journal.get(child.told).filter(|_| was_selected);
        let sighting = match (was_selected, child.is_selected()) {
            (_, true) => {
                let last = last.filter(|_| child.value.has_rest_of(&old));
                Some(told(self.speaks_json, kind, &child.value, last))
            }
            (true, false) => {
                // Whoever watches by label is told that it is gone, as it was when it was last selected.
                old.metadata_mut().resource_version = Some(version.to_string());
                Some(told(self.speaks_json, kind, &old, last).gone())
            }
            (false, false) => None,
        };
        let told = match (was_selected, child.is_selected()) {
            (_, true) => Some((false, child.value.metadata().clone())),
            (true, false) => Some((true, old.metadata().clone())),
            (false, false) => None,
        };
        child.told = journal.len();
        if kind == TargetKind::Pod && child.has_ended() {
            self.ends.push(child.told);
        }
        journal.extend(sighting);
        if let Some((gone, metadata)) = told {
            self.tells(watched(kind), gone, || metadata);
        }
        self.past.push(Past { kind, name: name.to_owned(), from, until: version, metadata });
        self.changes.push((by, Change::Changed(kind, name.to_owned())));
        self.written()
    }

    /// What a watch tells of a job: that it is so now, or is gone. A job that nobody can read has a field of another type.
    pub(super) fn sighted(&self, job: &Arc<TrainingJob>, event: Event<()>) -> Sighting {
        if !job.metadata.uid.as_ref().is_some_and(|uid| self.unreadable.contains(uid)) {
            return Sighting::job(about(event, job.clone()));
        }
        let mut value = serde_json::to_value(&**job).unwrap_or_default();
        value["spec"]["numWorkers"] = "many".into();
        parse(Watched::Jobs, about(event, &value))
    }

    pub(super) fn put_job(&mut self, by: Actor, mut job: TrainingJob) -> Written {
        self.version += 1;
        job.metadata.resource_version = Some(self.version.to_string());
        let job = Arc::new(job);
        let sighting = self.sighted(&job, Event::Apply(()));
        self.journal[Watched::Jobs as usize].push(sighting);
        self.tells(Watched::Jobs, false, || Arc::new(job.metadata.clone()));
        if let Some(stored) = job.metadata.name.as_ref().and_then(|name| self.jobs.get_mut(name)) {
            let before = std::mem::replace(stored, job.clone());
            self.changes.push((by, Change::Job(before, job)));
        }
        self.written()
    }

    pub(super) fn erase_job(&mut self, by: Actor, mut job: TrainingJob) -> Written {
        self.version += 1;
        job.metadata.resource_version = Some(self.version.to_string());
        let name = job.metadata.name.clone().unwrap_or_default();
        self.jobs.remove(&name);
        let job = Arc::new(job);
        let sighting = self.sighted(&job, Event::Delete(()));
        self.journal[Watched::Jobs as usize].push(sighting);
        self.tells(Watched::Jobs, true, || Arc::new(job.metadata.clone()));
        let uid = job.metadata.uid.clone().unwrap_or_default();
        self.changes.push((by, Change::JobGone(job)));
        let written = self.written();
        if self.collects_at_once {
            self.collect_budgets();
        }
        if self.collects_at_once && self.children().any(|(_, child)| child.is_owned_by(&uid)) {
            self.collect();
        }
        written
    }

    fn written(&self) -> Written {
        Written { version: self.version, resource_version: self.version.to_string() }
    }
}

fn about<T>(event: Event<()>, object: T) -> Event<T> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(()) => Event::InitApply(object),
        Event::InitDone => Event::InitDone,
        Event::Apply(()) => Event::Apply(object),
        Event::Delete(()) => Event::Delete(object),
    }
}

/// What a watch tells of an object that is there. `last` is what it told before of one that differed in nothing but its metadata.
pub(super) fn told(speaks_json: bool, kind: TargetKind, value: &Body, last: Option<&Sighting>) -> Sighting {
    if speaks_json {
        let whole = value.to_json();
        let sighting = parse(watched(kind), Event::Apply(&whole));
        let read = Body::from_json(whole).expect(READABLE);
        assert_eq!(read, *value, "what is read back is not what was stored");
        return sighting;
    }
    let rest = || parse(watched(kind), Event::Apply(value.rest()));
    last.cloned().unwrap_or_else(rest).renewed(value.metadata().clone())
}

pub(super) fn parse(kind: Watched, event: Event<&Value>) -> Sighting {
    Sighting::parse(kind, event).expect(READABLE)
}

/// The same job with another status, without a copy of the old one.
pub(super) fn with_status(job: &TrainingJob, status: Option<TrainingJobStatus>) -> TrainingJob {
    TrainingJob { metadata: job.metadata.clone(), spec: job.spec.clone(), status }
}

pub(super) fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
