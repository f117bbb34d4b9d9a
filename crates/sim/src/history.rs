//! Random histories: a job, and anything that may happen to it, to its operator and to what they say to each other. When the world
//! becomes kind again, every job ends, nothing is left of it, and nothing is written any more.

mod jobs;
mod weather;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use jiff::SignedDuration;
use serde_json::json;
use trainyard_api::{SuccessPolicy, TrainingJob, TrainingJobSpec, names};
use trainyard_operator::Watched;
use trainyard_plan::TargetKind;

use self::weather::Weather;
use crate::mishap::Mishap;
use crate::world::{Make, World};

/// The job that everything happens to.
const NAME: &str = "bert";

/// Sometimes there is another beside it. The quota is for both.
const OTHER: &str = "gpt";

/// The ends of logs of programs that fail: nothing, an error, and a complaint about a peer.
const WORDS: [&str; 4] = ["", "", "RuntimeError: CUDA error", "RuntimeError: Connection closed by peer"];

/// Those of programs that fail again and again.
const LAST_WORDS: [&str; 3] = ["", "RuntimeError: CUDA error", "ValueError: bad batch 17"];

/// So many steps a history has.
const STEPS: Range<usize> = 5..14;

/// One history in so many writes statuses as JSON, as on the wire. Where time does not matter (tests without optimisation), all do.
const THOROUGH: u64 = 16;

/// A command that tells the history of this seed again, the same way: which histories speak JSON goes by how it was built.
pub fn replay(seed: u64) -> String {
    format!("{REPLAY} --seed {seed}")
}

/// Runs the simulator, built as this is.
pub(crate) const REPLAY: &str = if cfg!(debug_assertions) {
    "cargo run -q -p trainyard-sim --"
} else {
    "cargo run -q --profile sim -p trainyard-sim --"
};

/// Tells the history of this seed. Panics when a rule is broken.
pub fn tell(seed: u64, make: Make, traced: bool) -> World {
    let world = World::new(make, traced);
    world.server().speaks_json = cfg!(debug_assertions) || seed.is_multiple_of(THOROUGH);
    History::new(seed, world, false).begin_to_end()
}

/// The same, with nothing that only a broken or slow API server would let happen, and with a log of everything that was done to it.
pub fn tell_ordinary(seed: u64) -> World {
    let world = World::new(Make::default(), false);
    world.server().log = Some(Vec::new());
    History::new(seed, world, true).begin_to_end()
}

struct History {
    rng: Rng,
    world: World,
    /// The API server checks what it is given, and collects garbage at once.
    ordinary: bool,
    /// There are two jobs.
    company: bool,
    weather: Weather,
    /// Budgets of somebody else, under names of ours.
    budgets: Vec<String>,
}

impl History {
    fn new(seed: u64, world: World, ordinary: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let weather = Weather::drawn(&mut rng);
        Self { rng, world, ordinary, company: false, weather, budgets: Vec::new() }
    }

    fn begin_to_end(mut self) -> World {
        let weather = self.weather;
        self.world.tell(|| format!("{weather:?}"));
        self.begin();
        for _ in 0..self.rng.usize(STEPS) {
            self.step();
        }
        self.end();
        self.world
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    fn begin(&mut self) {
        if self.chance(20) {
            self.plant();
        }
        let mut spec = self.spec();
        let has_claim = self.world.server().all(TargetKind::Claim).contains_key(&names::claim(NAME));
        if has_claim && self.chance(60) {
            // Whoever removes its claim must not remove this one.
            spec.checkpoint_dir = Some("/checkpoints".into());
            spec.checkpoint = serde_json::from_value(json!({"deleteOnCompletion": true})).ok();
        }
        let quota = self.chance(5).then(|| self.rng.usize(0..2));
        if quota.is_some() {
            self.world.set_quota(quota);
        }
        self.world.submit(NAME, spec);
        if self.chance(70) {
            self.settle();
        }
        if quota.is_some() {
            self.rest();
        }
        if self.chance(12) {
            self.company = true;
            let spec = self.spec();
            self.world.submit(OTHER, spec);
        }
    }

    /// One of the jobs.
    fn some_name(&mut self) -> &'static str {
        if self.company && self.rng.bool() { OTHER } else { NAME }
    }

    fn step(&mut self) {
        self.world.server().reads_old = self.rng.bool();
        if !self.ordinary && self.chance(1) {
            let seconds = self.rng.i64(-7200..7200);
            return self.world.jump(SignedDuration::from_secs(seconds));
        }
        if self.world.operators.len() > 1 && self.chance(40) {
            return self.duel();
        }
        match self.rng.u32(0..100) {
            0..28 => self.stumble(),
            28..40 => self.settle(),
            40..47 => self.rest(),
            47..50 => self.fail_again(),
            50..51 => self.hang(),
            51..52 => self.come_back(),
            52..58 => {
                // So long a run makes up for earlier failures.
                let seconds = if self.chance(5) { 660 } else { self.rng.u64(1..90) };
                self.world.tell(|| format!("{seconds} s pass"));
                self.world.skip(Duration::from_secs(seconds));
            }
            58..86 => self.cluster(),
            86..95 => self.user(),
            _ => self.operators(),
        }
    }

    /// Some small steps of operators, in any order, some of which go wrong.
    fn stumble(&mut self) {
        for _ in 0..self.rng.usize(1..6) {
            if self.world.operators.is_empty() {
                return;
            }
            let operator = self.rng.usize(0..self.world.operators.len());
            let kind = Watched::ALL[self.rng.usize(0..Watched::ALL.len())];
            let waiting = self.world.operators[operator].waiting();
            let adrift = self.world.adrift();
            if adrift > 0 && self.chance(15) {
                let index = self.rng.usize(0..adrift);
                self.world.land(index);
            }
            match self.rng.u32(0..100) {
                0..45 if waiting > 0 => {
                    let index = self.rng.usize(0..waiting);
                    let fate = self.fate();
                    self.world.let_through(operator, index, fate);
                }
                0..60 => {
                    self.world.begin(operator);
                }
                60..90 => {
                    self.world.deliver(operator, kind);
                }
                90..93 => self.repeat(operator, kind),
                93..96 if self.world.operators[operator].behind(kind) > 0 => self.lose(operator, kind),
                96..98 => self.world.operators[operator].relist(kind),
                98 => drop(self.world.operators[operator].hear_notices()),
                99.. => self.replace(operator),
                _ => {}
            }
        }
    }

    /// One and the same worker fails again and again, with the same last words or with others.
    fn fail_again(&mut self) {
        let Some(pod) = self.some_pod() else { return };
        let code = self.rng.choice([1, 1, 2, 137]).unwrap_or(1);
        let words = LAST_WORDS[self.rng.usize(0..LAST_WORDS.len())];
        let varies = self.chance(30);
        for _ in 0..self.rng.usize(3..6) {
            self.world.run_all();
            self.settle();
            let words = if varies { LAST_WORDS[self.rng.usize(0..LAST_WORDS.len())] } else { words };
            self.world.fail_saying(&pod, code, words);
            self.settle();
            self.world.release();
            self.settle();
            if self.chance(15) {
                self.rest();
            }
            // The longest wait after so few failures is not much longer.
            self.world.skip(Duration::from_secs(90));
            self.settle();
        }
    }

    /// A program tells of progress and then says nothing for longer than its job allows, once or again and again.
    fn hang(&mut self) {
        let name = self.some_name();
        let is_heard = |job: &Arc<TrainingJob>| job.spec.reads_logs();
        if !self.world.server().job(name).is_some_and(is_heard) {
            return;
        }
        let limit = self.rng.u64(10..60);
        self.world.edit(name, |spec| spec.stall_timeout_seconds = i64::try_from(limit).ok());
        for _ in 0..self.rng.usize(1..4) {
            self.world.run_all();
            self.settle();
            self.world.progress(name);
            self.settle();
            self.world.skip(Duration::from_secs(limit + 1));
            self.settle();
            self.world.release();
            self.settle();
            self.world.skip(Duration::from_mins(1));
            self.settle();
        }
    }

    /// A job is deleted and made again under its name, and finds what the one before has saved.
    fn come_back(&mut self) {
        let name = self.some_name();
        self.world.run_all();
        self.settle();
        self.world.save(name);
        self.world.delete_job(name);
        self.settle();
        self.world.release();
        self.settle();
        if self.world.exists(name) {
            return;
        }
        let spec = TrainingJobSpec { checkpoint_dir: Some("/checkpoints".into()), ..self.spec() };
        self.world.submit(name, spec);
        self.settle();
        self.world.run_all();
        self.settle();
    }

    /// Two operators: one works as if it were alone, and then the other one, which has seen only a part of what happened meanwhile.
    fn duel(&mut self) {
        let first = self.rng.usize(0..2);
        self.world.work_alone(1 - first, &Watched::ALL);
        for _ in 0..self.rng.usize(1..5) {
            self.cluster();
            if self.chance(30) {
                // In all less than an operator waits for a watch that is late.
                let seconds = self.rng.u64(1..7);
                self.world.skip(Duration::from_secs(seconds));
            }
            self.world.work_alone(first, &Watched::ALL);
        }
        let seen = Watched::ALL.into_iter().filter(|_| self.rng.bool()).collect::<Vec<_>>();
        self.world.tell(|| format!("the other operator sees {seen:?}"));
        self.world.work_alone(1 - first, &seen);
    }

    fn some_pod(&mut self) -> Option<String> {
        let pods = self.world.pod_names();
        self.rng.choice(pods.into_iter().filter(|name| name != "bert-notebook").collect::<Vec<_>>())
    }

    fn cluster(&mut self) {
        let Some(pod) = self.some_pod() else { return };
        if self.chance(12) {
            let name = self.some_name();
            return if self.rng.bool() { self.world.save(name) } else { self.world.progress(name) };
        }
        match self.rng.u32(0..100) {
            0..4 => self.world.bind(&pod),
            4..20 => self.world.run(&pod),
            20..45 => self.world.run_all(),
            45..60 => self.world.succeed(&pod),
            60..62 => self.world.out_of_memory(&pod),
            62..75 => {
                let code = self.rng.choice([1, 2, 127, 137, 143]).unwrap_or(1);
                let words = WORDS[self.rng.usize(0..WORDS.len())];
                self.world.fail_saying(&pod, code, words);
            }
            75..79 => self.evict(&pod),
            79..82 => self.lose_node(&pod),
            82..84 => self.world.lose_pod(&pod),
            84..86 => self.world.cannot_be_placed(&pod),
            86..94 => {
                self.world.release();
            }
            94..96 => self.world.heal_nodes(),
            96..98 => self.announce(&pod),
            _ => self.world.collect(),
        }
    }

    /// A node does not answer any more; who may not look at nodes does not know whether it is dead.
    fn lose_node(&mut self, pod: &str) {
        if self.chance(40) {
            let hides = self.chance(60);
            self.world.hide_nodes(hides);
        }
        self.world.lose_node(pod);
        if self.rng.bool() {
            return;
        }
        // Long enough for it to be given up.
        self.settle();
        self.world.skip(Duration::from_secs(45));
        self.settle();
    }

    /// The cluster wants the place of a pod. A program that is told to go ends as it likes.
    fn evict(&mut self, pod: &str) {
        let code = self.rng.choice([0, 1, 2, 137, 143]).unwrap_or(1);
        match self.rng.u32(0..10) {
            0..3 => return self.world.evict_by_kubelet(pod, code),
            3 => return self.world.fill_its_disk(pod),
            _ => self.world.evict(pod),
        }
        if self.rng.bool() {
            return;
        }
        if self.rng.bool() {
            self.settle();
        }
        if code == 0 { self.world.succeed(pod) } else { self.world.fail_pod(pod, code) }
    }

    /// The node of this pod will be taken away; there may be no other, and then the next pod comes to the same one.
    fn announce(&mut self, pod: &str) {
        self.world.announce(pod);
        if self.rng.bool() {
            return;
        }
        self.settle();
        self.world.release();
        self.settle();
        self.world.run_all();
        self.settle();
    }

    fn user(&mut self) {
        let name = self.some_name();
        if !self.world.exists(name) {
            let spec = self.spec();
            return self.world.submit(name, spec);
        }
        match self.rng.u32(0..100) {
            0..18 => {
                let suspend = self.chance(65);
                self.world.edit(name, |spec| spec.suspend = Some(suspend));
            }
            18..36 => {
                let workers = self.rng.i32(1..4);
                self.world.edit(name, |spec| spec.num_workers = Some(workers));
            }
            36..49 => {
                let image = format!("my/trainer:{}", self.rng.u32(0..3));
                self.world.edit(name, |spec| spec.image = Some(image));
            }
            49..52 => {
                let limit = self.rng.i32(0..4);
                self.world.edit(name, |spec| spec.backoff_limit = Some(limit));
            }
            52..58 if !self.ordinary => {
                let broken = self.rng.bool();
                self.world.edit(name, |spec| spec.command = broken.then(Vec::new));
            }
            58..64 => {
                if let Some(pod) = self.some_pod() {
                    self.world.remove(TargetKind::Pod, &pod);
                }
            }
            64..68 => self.world.remove(TargetKind::Service, &format!("{name}-workers")),
            68..72 => {
                let map = format!("{name}-config");
                self.world.change(TargetKind::ConfigMap, &map, |map| map["data"] = json!({"edited": "yes"}));
            }
            72..78 => self.take_label(),
            78..82 => {
                let quota = self.rng.bool().then(|| self.rng.usize(0..4));
                self.world.set_quota(quota);
            }
            82..86 => self.change_policy(name),
            86..90 => self.plant(),
            90..92 => self.world.remove_status(name),
            92..93 if !self.ordinary => self.world.audit(name, false),
            95..97 if !self.ordinary => {
                let unreadable = self.rng.bool();
                self.world.set_unreadable(name, unreadable);
            }
            93..95 if !self.ordinary => {
                let collects = self.rng.bool();
                self.world.server().collects_at_once = collects;
            }
            _ => self.world.delete_job(name),
        }
    }

    /// What is to be done about what happens from now on.
    fn change_policy(&mut self, name: &str) {
        let has_begun = self.world.status(name).is_some_and(|status| !status.attempts.is_empty());
        if has_begun && !self.world.is_over(name) {
            self.world.meets(Mishap::PolicyChanged);
        }
        let is_taken_out = self.chance(30);
        match self.rng.u32(0..6) {
            0..2 => {
                let policy = if is_taken_out { None } else { self.failure_policy() };
                self.world.edit(name, |spec| spec.failure_policy = policy);
            }
            2 => {
                let policies = [SuccessPolicy::AllWorkers, SuccessPolicy::Leader, SuccessPolicy::AnyWorker];
                let policy = self.rng.choice(policies);
                self.world.edit(name, |spec| spec.success_policy = policy);
            }
            3 => {
                let seconds = (!is_taken_out).then(|| self.rng.i64(1..400));
                self.world.edit(name, |spec| spec.active_deadline_seconds = seconds);
            }
            4 => {
                let seconds = (!is_taken_out).then(|| self.rng.i64(1..200));
                self.world.edit(name, |spec| spec.startup_timeout_seconds = seconds);
            }
            _ => {
                let seconds = (!is_taken_out).then(|| self.rng.i64(0..60));
                self.world.edit(name, |spec| spec.ttl_seconds_after_finished = seconds);
            }
        }
    }

    /// Takes the label away by which a pod is seen.
    fn take_label(&mut self) {
        let Some(pod) = self.some_pod() else { return };
        self.world.change(TargetKind::Pod, &pod, |pod| {
            if let Some(labels) = pod["metadata"]["labels"].as_object_mut() {
                labels.remove(names::MANAGED_BY_LABEL);
            }
        });
    }

    /// An operator dies. Some of what it has asked for may be on its way already.
    fn kill(&mut self, index: usize) {
        self.world.meets(Mishap::Crash);
        let percent = self.rng.choice([0, 50, 100]).unwrap_or(0);
        let Self { rng, world, .. } = self;
        world.kill_operator_late(index, &mut || rng.u32(0..100) < percent);
    }

    fn replace(&mut self, index: usize) {
        self.kill(index);
        self.world.start_operator();
    }

    fn operators(&mut self) {
        match self.rng.u32(0..100) {
            0..40 => {
                let index = self.rng.usize(0..self.world.operators.len());
                self.replace(index);
            }
            40..60 if self.world.operators.len() < 2 => {
                self.world.start_rival();
            }
            60..80 if self.world.operators.len() > 1 => {
                let index = self.rng.usize(0..self.world.operators.len());
                self.kill(index);
            }
            _ => {
                let kind = Watched::ALL[self.rng.usize(0..Watched::ALL.len())];
                for operator in &mut self.world.operators {
                    operator.relist(kind);
                }
            }
        }
    }

    /// The world becomes kind: one operator that sees everything, room for all, and pods that do what they are told.
    fn mend(&mut self) {
        self.world.tell(|| "the world becomes kind".to_owned());
        while self.world.operators.len() > 1 {
            self.world.kill_operator(0);
        }
        self.world.set_quota(None);
        self.world.server().reads_old = false;
        self.world.server().collects_at_once = true;
        self.world.heal_nodes();
        self.world.hide_nodes(false);
        self.world.keep_nodes();
        let strangers: Vec<(TargetKind, String)> = {
            let server = self.world.server();
            let theirs = server.children().filter(|(_, child)| !child.ours);
            theirs.map(|(kind, child)| (kind, child.name().to_owned())).collect()
        };
        for (kind, name) in strangers {
            self.world.remove(kind, &name);
        }
        for name in std::mem::take(&mut self.budgets) {
            if !self.world.server().take_budget(&name) {
                self.world.fail(&format!("budget {name} is not ours, and was changed or removed"));
            }
        }
        for name in [NAME, OTHER] {
            self.world.audit(name, false);
            self.world.set_unreadable(name, false);
            self.world.edit(name, |spec| {
                spec.suspend = None;
                spec.command = None;
            });
        }
        for kind in Watched::ALL {
            self.world.operators[0].relist(kind);
        }
        self.world.collect();
    }

    fn end(&mut self) {
        self.mend();
        for _ in 0..8 {
            self.world.run_out();
            if [NAME, OTHER].into_iter().all(|name| self.world.is_over(name)) {
                break;
            }
            self.world.run_all();
            self.world.settle();
            self.world.succeed_all();
        }
        self.world.run_out();
        for name in [NAME, OTHER].into_iter().filter(|name| self.world.exists(name)).collect::<Vec<_>>() {
            if !self.world.is_over(name) {
                self.world.fail("the job never ends");
            }
            self.world.expect_quiet();
            self.world.delete_job(name);
            self.world.run_out();
        }
        self.world.expect_no_claims();
        let left: Vec<String> = {
            let server = self.world.server();
            let objects = server.children().filter(|(kind, _)| *kind != TargetKind::Claim);
            let objects = objects.map(|(kind, child)| format!("{} {}", kind.as_str(), child.name()));
            let budgets = server.budgets().keys().map(|name| format!("budget {name}"));
            objects.chain(budgets).chain(server.jobs().map(|_| "the job".to_owned())).collect()
        };
        if !left.is_empty() {
            self.world.fail(&format!("left after the end: {left:?}"));
        }
    }
}
