//! A job lowered into roles: which pods there are, and which place each has in the world of ranks.
//!
//! Nothing after this knows "workers": they are one role among others.

use trainyard_api::{Role, RoleOrder, RoleSuccess, TrainingJob, names};

/// A place in the world of ranks, counted in pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

/// All roles of a job. Ranked ones come first, in the order of their ranks.
#[derive(Clone, Debug)]
pub struct World<'a> {
    pub job: &'a str,
    pub roles: Vec<WorldRole<'a>>,
}

/// One role.
#[derive(Clone, Debug)]
pub struct WorldRole<'a> {
    pub name: &'a str,
    pub replicas: u32,
    /// Rank of its first pod, for a ranked role.
    pub first_rank: Option<Rank>,
    pub order: RoleOrder,
    pub success: RoleSuccess,
    pub gpus: i32,
    /// What the user wrote about it; none for the workers.
    pub spec: Option<&'a Role>,
}

/// One pod that should exist.
#[derive(Clone, Copy, Debug)]
pub struct Member<'w, 'a> {
    pub role: &'w WorldRole<'a>,
    pub index: u32,
    pub rank: Option<Rank>,
}

impl<'a> World<'a> {
    pub fn of(job: &'a TrainingJob) -> Self {
        let spec = &job.spec;
        let named = |role: &'a Role| WorldRole {
            name: &role.name,
            replicas: count(role.replicas()),
            first_rank: None,
            order: role.order.unwrap_or_default(),
            success: role.success(),
            gpus: role.gpus_per_replica.unwrap_or(0),
            spec: Some(role),
        };
        let workers = WorldRole {
            name: names::WORKERS,
            replicas: count(spec.worker_count()),
            first_rank: None,
            order: RoleOrder::WithWorkers,
            success: RoleSuccess::Required,
            gpus: spec.gpus_per_worker(),
            spec: None,
        };
        let (ranked, unranked): (Vec<_>, Vec<_>) = spec.roles().iter().partition(|role| role.ranked());
        let mut roles: Vec<WorldRole<'a>> = ranked.into_iter().map(named).chain([workers]).collect();
        let mut next = 0;
        for role in &mut roles {
            role.first_rank = Some(Rank(next));
            next += role.replicas;
        }
        roles.extend(unranked.into_iter().map(named));
        Self { job: job.metadata.name.as_deref().unwrap_or_default(), roles }
    }

    /// How many pods have a rank: `WORLD_SIZE`.
    pub fn size(&self) -> u32 {
        self.roles.iter().filter(|role| role.first_rank.is_some()).map(|role| role.replicas).sum()
    }

    pub fn members(&self) -> impl Iterator<Item = Member<'_, 'a>> {
        self.roles.iter().flat_map(WorldRole::members)
    }

    /// Name of the pod of rank 0.
    pub fn leader(&self) -> String {
        let leader = self.roles.iter().find(|role| role.first_rank.is_some() && role.replicas > 0);
        names::pod(self.job, leader.map_or(names::WORKERS, |role| role.name), 0)
    }

    /// How many pods of each role there are, in words: written on every pod, so that a change is seen.
    pub fn shape(&self) -> String {
        in_words(self.roles.iter())
    }

    /// Those of them that are made at the same time, if others are made before or after.
    pub fn made_with(&self, order: RoleOrder) -> Option<String> {
        let is_with = |role: &&WorldRole<'_>| role.order == order || role.replicas == 0;
        (!self.roles.iter().all(|role| is_with(&role))).then(|| in_words(self.roles.iter().filter(is_with)))
    }

    pub fn workers(&self) -> Option<&WorldRole<'a>> {
        self.roles.iter().find(|role| role.is_workers())
    }

    /// Whether a role decides success alone, so that the others are not waited for.
    pub fn has_decider(&self) -> bool {
        self.roles.iter().any(|role| role.success == RoleSuccess::Decides)
    }
}

impl<'a> WorldRole<'a> {
    pub fn is_workers(&self) -> bool {
        self.spec.is_none()
    }

    pub fn is_ranked(&self) -> bool {
        self.first_rank.is_some()
    }

    /// Whether the job is only Running when its pods are.
    pub fn is_required(&self) -> bool {
        self.is_ranked() || self.success != RoleSuccess::Ignored
    }

    /// The `component` label of its pods.
    pub fn component(&self) -> &'a str {
        if self.is_workers() { "worker" } else { self.name }
    }

    pub fn members<'w>(&'w self) -> impl Iterator<Item = Member<'w, 'a>> {
        (0..self.replicas).map(move |index| Member {
            role: self,
            index,
            rank: self.first_rank.map(|first| Rank(first.0 + index)),
        })
    }
}

impl Member<'_, '_> {
    pub fn pod_name(&self, job: &str) -> String {
        names::pod(job, self.role.name, self.index)
    }

    /// How people call it: "Worker 2", "master 0".
    pub fn title(&self) -> String {
        if self.role.is_workers() {
            format!("Worker {}", self.index)
        } else {
            format!("{} {}", self.role.name, self.index)
        }
    }
}

fn in_words<'r, 'a: 'r>(roles: impl Iterator<Item = &'r WorldRole<'a>>) -> String {
    let parts: Vec<String> = roles.map(|role| format!("{}={}", role.name, role.replicas)).collect();
    parts.join(",")
}

/// The names of the pods of a world of this shape. Of what is no shape (somebody edited it), there are none.
pub(crate) fn pods_of_shape<'s>(job: &'s str, shape: &'s str) -> impl Iterator<Item = String> + 's {
    let roles = shape.split(',').filter_map(|part| {
        let (role, replicas) = part.split_once('=')?;
        Some((role, count(replicas.parse().ok()?)))
    });
    roles.flat_map(move |(role, replicas)| (0..replicas).map(move |index| names::pod(job, role, index)))
}

/// Bounds are checked by validation; an absurd number from an unchecked object must not wrap.
fn count(replicas: i32) -> u32 {
    u32::try_from(replicas.clamp(0, names::REPLICAS_MAX)).unwrap_or(0)
}
