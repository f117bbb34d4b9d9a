//! How operators fare in a history, and that nothing happens when nothing goes wrong.

use std::time::Duration;

use fastrand::Rng;
use trainyard_api::{State, condition};
use trainyard_operator::{JobKey, Watched};

use super::{History, NAME, OTHER};
use crate::mishap::Mishap;
use crate::port::Fate;
use crate::server::{Child, NAMESPACE};

/// More rounds than anything needs that comes to rest at all.
const ROUNDS: usize = 400;

/// Details are reported sooner than that.
const DETAILS: Duration = Duration::from_secs(6);

/// Longer than any deadline, and not so long that what failed before is forgotten.
const LONG: Duration = Duration::from_secs(410);

/// So long the echo of a write is waited for.
const ECHO: Duration = Duration::from_secs(30);

const SECOND: Duration = Duration::from_secs(1);

/// How much goes wrong in a history between operators and the API server: of a hundred calls or events, so many. Some histories are
/// calm, so that what users and the cluster do shows without it; in others everything comes together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// Calls are not answered as they should be.
    faults: u32,
    /// The operator dies before a call.
    crashes: u32,
    /// Events never come, wait until the next round, or come twice.
    lost: u32,
    late: u32,
    twice: u32,
}

impl Weather {
    pub(super) fn drawn(rng: &mut Rng) -> Self {
        let mut of = |rates: [u32; 4]| rates[rng.usize(0..rates.len())];
        Self {
            faults: of([0, 5, 30, 30]),
            crashes: of([0, 0, 1, 4]),
            lost: of([0, 0, 3, 3]),
            late: of([0, 0, 20, 50]),
            twice: of([0, 0, 0, 10]),
        }
    }
}

impl History {
    /// How the next call fares.
    pub(super) fn fate(&mut self) -> Fate {
        if self.chance(self.weather.faults) {
            Fate::FAULTS[self.rng.usize(0..Fate::FAULTS.len())]
        } else {
            Fate::Served
        }
    }

    pub(super) fn lose(&mut self, operator: usize, kind: Watched) {
        self.world.meets(Mishap::Lost);
        self.world.lose_event(operator, kind);
    }

    pub(super) fn repeat(&mut self, operator: usize, kind: Watched) {
        self.world.meets(Mishap::Twice);
        self.world.operators[operator].repeat(kind);
    }

    /// Everything that operators can do without the time passing, as the weather lets them.
    pub(super) fn settle(&mut self) {
        for _ in 0..ROUNDS {
            let mut busy = false;
            for operator in 0..self.world.operators.len() {
                busy |= self.round(operator);
            }
            if !busy {
                return;
            }
        }
        // Two that remember different refusals may go on for ever; when one of them dies, there is rest.
        let is_refused = {
            let server = self.world.server();
            server.quota.is_some() || server.children().any(|(_, child)| !child.ours)
        };
        if self.world.operators.len() == 1 || !is_refused {
            self.world.fail("no rest");
        }
    }

    /// One round of an operator: events, a look, a call. Says whether anything happened.
    fn round(&mut self, operator: usize) -> bool {
        let mut busy = self.world.operators[operator].is_behind();
        if busy {
            self.deliver(operator);
        }
        busy |= self.world.operators[operator].hear_notices();
        busy |= self.world.begin(operator);
        let waiting = self.world.operators[operator].waiting();
        if waiting == 0 {
            return busy;
        }
        if self.chance(self.weather.crashes) {
            self.replace(operator);
        } else {
            let (index, fate) = (self.rng.usize(0..waiting), self.fate());
            self.world.let_through(operator, index, fate);
        }
        true
    }

    /// Delivers events, as far as they come.
    fn deliver(&mut self, operator: usize) {
        let Weather { lost, late, twice, .. } = self.weather;
        for kind in Watched::ALL {
            while self.world.operators[operator].behind(kind) > 0 {
                if self.chance(late) {
                    self.world.meets(Mishap::Late);
                    break;
                }
                if self.chance(lost) {
                    self.lose(operator, kind);
                    continue;
                }
                self.world.deliver(operator, kind);
                if self.chance(twice) {
                    self.repeat(operator, kind);
                }
            }
        }
    }

    /// Everything is delivered and answered for a moment; then nothing is written any more, however often anybody looks.
    pub(super) fn rest(&mut self) {
        self.world.settle();
        // Who was not told of something asks for it at every look; two may remember different refusals.
        if self.world.operators.len() != 1 || !self.world.operators[0].misses_nothing() {
            return;
        }
        let quiet = self.stands();
        // What was put off after a fault is done when somebody looks.
        self.look_around();
        if self.stands() == quiet
            && let Some(quiet) = quiet
        {
            self.look_in_vain("something is written, or asked for, although nothing has changed");
            self.world.meets(quiet);
        }
        // Every other time is often enough, and takes half as long.
        if self.world.calls().is_multiple_of(2) {
            self.wait();
        }
    }

    /// Whoever has something to do at some time wakes then: until that, it finds nothing to do, whoever looks.
    fn wait(&mut self) {
        let left = self.world.until_timer().unwrap_or(LONG);
        // Who has details to report does so within a few seconds. Ends and beginnings are told in whole seconds.
        // The node of a pod that does not go is asked for.
        let is_disturbed = self.world.server().pods().any(Child::is_deleting);
        if left < DETAILS || is_disturbed {
            return;
        }
        if left > ECHO {
            self.world.expect_truth();
        }
        self.world.skip(left.min(LONG).saturating_sub(SECOND));
        self.look_in_vain("something is written, or asked for, and nobody would have looked by then");
    }

    fn look_in_vain(&mut self, otherwise: &str) {
        let before = (self.world.server().version(), self.world.calls());
        self.look_around();
        if before != (self.world.server().version(), self.world.calls()) {
            self.world.fail(otherwise);
        }
    }

    fn look_around(&mut self) {
        for name in [NAME, OTHER] {
            self.world.operators[0].turns.add(JobKey::new(NAMESPACE, name));
        }
        self.world.settle();
    }

    /// How the job stands, if it is in a state that lasts.
    fn stands(&self) -> Option<Mishap> {
        if self.world.exists(OTHER) && !self.world.is_over(OTHER) {
            return None;
        }
        let status = self.world.status(NAME)?;
        let created = status.condition(condition::RESOURCES_CREATED);
        let waits = status.backoff_until.as_ref().is_some_and(|until| until.0 > self.world.now());
        match status.state? {
            State::Running if !waits => Some(Mishap::QuietRunning),
            State::Suspended => Some(Mishap::QuietSuspended),
            State::Restarting if waits => Some(Mishap::QuietBackoff),
            _ if created.is_some_and(|created| created.reason == "QuotaExceeded") => Some(Mishap::QuietQuota),
            _ => None,
        }
    }
}
