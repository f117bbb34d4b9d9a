//! The jobs of a history, and what stands in their way.

use serde_json::{Value, json};
use trainyard_api::{
    CleanPodPolicy, FailurePolicy, RestartPolicy, Role, RoleOrder, RoleSuccess, SuccessPolicy,
    TrainingJobSpec, names,
};
use trainyard_plan::TargetKind;

use super::{History, NAME, OTHER};
use crate::mishap::Mishap;

impl History {
    pub(super) fn spec(&mut self) -> TrainingJobSpec {
        let mut spec = TrainingJobSpec {
            image: Some("my/trainer:1".into()),
            num_workers: Some(self.rng.i32(1..=3)),
            ..TrainingJobSpec::default()
        };
        if self.chance(40) {
            spec.backoff_limit = Some(self.rng.i32(0..4));
        }
        if self.chance(30) {
            spec.checkpoint_dir = Some("/checkpoints".into());
        }
        if self.chance(20) {
            spec.clean_pod_policy =
                self.rng.choice([CleanPodPolicy::Running, CleanPodPolicy::All, CleanPodPolicy::None]);
        }
        if self.chance(20) {
            spec.restart_policy =
                self.rng.choice([RestartPolicy::OnFailure, RestartPolicy::Never, RestartPolicy::ExitCode]);
        }
        if self.chance(10) {
            spec.active_deadline_seconds = Some(self.rng.i64(1..400));
        }
        if self.chance(10) {
            spec.startup_timeout_seconds = Some(self.rng.i64(1..200));
        }
        if self.chance(10) {
            spec.ttl_seconds_after_finished = Some(self.rng.i64(0..60));
        }
        if self.chance(10) {
            spec.suspend = Some(true);
        }
        let checkpoint = match self.rng.u32(0..100) {
            0..10 => Some(json!({"deleteOnCompletion": true})),
            10..20 => Some(json!({"resume": "Never"})),
            _ => None,
        };
        if let Some(checkpoint) = checkpoint {
            spec.checkpoint = serde_json::from_value(checkpoint).ok();
        }
        if self.chance(10) {
            let order =
                self.rng.choice([RoleOrder::BeforeWorkers, RoleOrder::AfterWorkers, RoleOrder::WithWorkers]);
            spec.roles = Some(vec![Role {
                name: "store".into(),
                replicas: Some(1),
                order,
                ranked: self.chance(30).then_some(true),
                success: self
                    .rng
                    .choice([None, None, Some(RoleSuccess::Decides), Some(RoleSuccess::Required)])
                    .flatten(),
                ..Role::default()
            }]);
        }
        if self.chance(20) {
            spec.failure_policy = self.failure_policy();
        }
        if self.chance(8) {
            spec.success_policy = self.rng.choice([SuccessPolicy::Leader, SuccessPolicy::AnyWorker]);
        }
        if self.chance(12) {
            spec.stall_timeout_seconds = Some(self.rng.i64(10..200));
        } else if self.chance(5) {
            // Nobody reads what it says.
            spec.progress = serde_json::from_value(json!({"source": "None"})).ok();
        }
        spec
    }

    pub(super) fn failure_policy(&mut self) -> Option<Box<FailurePolicy>> {
        let actions = ["Restart", "RestartWithoutCounting", "Fail", "Ignore"];
        let mut rule = |codes: Value| {
            let action = self.rng.choice(actions);
            json!({"exitCodes": codes, "action": action})
        };
        let first = rule(json!([2]));
        // The first that matches counts. Whoever only lost a peer is no reason to fail for.
        let is_shared = first["action"] != "Fail";
        let rules = [first, rule(if is_shared { json!([2, 127, 143]) } else { json!([127, 143]) })];
        let taken =
            json!({"reasons": ["EvictionByEvictionAPI"], "action": self.rng.choice(["Restart", "Fail"])});
        let rules = if self.chance(30) { vec![taken] } else { rules.to_vec() };
        let scope = if self.chance(60) { "Worker" } else { "Gang" };
        let count = self.rng.usize(0..=rules.len());
        let policy = json!({"restartScope": scope, "rules": &rules[..count]});
        serde_json::from_value(policy).ok()
    }

    /// Something that is not ours, in the way or only looking like it.
    pub(super) fn plant(&mut self) {
        let ours = json!({names::MANAGED_BY_LABEL: names::MANAGED_BY, names::JOB_LABEL: NAME, names::ATTEMPT_LABEL: "1"});
        let theirs = json!({names::MANAGED_BY_LABEL: names::MANAGED_BY, names::APP_LABEL: names::APP, names::JOB_LABEL: OTHER});
        let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "other", "uid": "other-1", "controller": true}]);
        self.world.meets(Mishap::Stranger);
        let all = if self.ordinary { 5 } else { 9 };
        let (kind, name, metadata) = match self.rng.u32(0..all) {
            0 => (TargetKind::Service, format!("{NAME}-workers"), json!({})),
            1 => (TargetKind::ConfigMap, format!("{NAME}-config"), json!({})),
            2 => (TargetKind::Pod, format!("{NAME}-workers-1"), json!({"labels": {"app": "mine"}})),
            3 => (TargetKind::Pod, format!("{NAME}-workers-1"), json!({"labels": ours})),
            4 => (
                TargetKind::Pod,
                format!("{NAME}-notebook"),
                json!({"labels": ours, "ownerReferences": owner}),
            ),
            5 => (TargetKind::Claim, names::claim(NAME), json!({})),
            6 => (TargetKind::Claim, names::claim(NAME), json!({"labels": theirs})),
            7 => return self.world.audit(NAME, true),
            _ => {
                let name = names::budget(NAME);
                if self.world.server().plant_budget(&name) {
                    self.world.tell(|| format!("user makes budget {name}"));
                    self.budgets.push(name);
                }
                return;
            }
        };
        self.world.plant(kind, &name, json!({"metadata": metadata}));
    }
}
