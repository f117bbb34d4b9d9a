//! Time passes, and operators do what they can meanwhile.

use std::time::{Duration, Instant};

use jiff::SignedDuration;
use trainyard_operator::Watched;

use super::{Fates, World};
use crate::check::Checker;
use crate::mishap::Mishap;
use crate::port::{Fate, lock};

/// More rounds than anything needs that comes to rest at all.
const ROUNDS: usize = 400;

impl World {
    /// Everything that operators can do without the time passing. All events are delivered.
    pub fn settle(&mut self) {
        self.settle_with(&mut |_| Some(Fate::Served));
    }

    /// The same, with the fate of every call as told; none means that the operator dies before it.
    pub fn settle_with(&mut self, fates: Fates<'_>) {
        for _ in 0..ROUNDS {
            if !self.round(fates) && !self.let_go() {
                return;
            }
        }
        // Two operators that remember different refusals may go on for ever; when one of them dies, there is rest.
        if self.operators.len() == 1 {
            self.fail("no rest");
        }
    }

    /// One round of every operator: deliver what may be delivered, look, write. Says whether anything happened.
    pub(super) fn round(&mut self, fates: Fates<'_>) -> bool {
        let mut busy = self.land_due();
        let mut operator = 0;
        while operator < self.operators.len() {
            busy |= self.deliver_all(operator);
            busy |= self.hears_of_nodes() && self.operators[operator].hear_notices();
            if self.begin(operator) {
                busy = true;
            }
            if self.operators[operator].waiting() > 0 {
                busy = true;
                let Some(fate) = fates(self.calls + 1) else {
                    self.replace_operator(operator);
                    continue;
                };
                let index = if self.backwards { self.operators[operator].waiting() - 1 } else { 0 };
                self.let_through(operator, index, fate);
                if self.dies_after.take_if(|call| *call <= self.calls).is_some() {
                    self.replace_operator(operator);
                    continue;
                }
            }
            operator += 1;
        }
        busy
    }

    /// One of several operators does what it can without the time passing, and sees events of these kinds.
    pub fn work_alone(&mut self, operator: usize, kinds: &[Watched]) {
        for _ in 0..ROUNDS {
            for kind in kinds {
                while self.deliver(operator, *kind) {}
            }
            let begun = self.begin(operator);
            let waits = self.operators[operator].waiting() > 0;
            if waits {
                self.let_through(operator, 0, Fate::Served);
            }
            if !begun && !waits {
                return;
            }
        }
    }

    pub(crate) fn instant(&self) -> Instant {
        lock(&self.house.clock).instant
    }

    /// When the next timer of an operator is due, or something lands that was on its way.
    fn next_timer(&self) -> Option<Instant> {
        let now = lock(&self.house.clock).instant;
        let timers = self.operators.iter().filter_map(|operator| operator.next);
        timers.chain(self.next_landing()).chain(self.next_delivery()).min().map(|at| at.max(now))
    }

    /// Time passes, and nobody does anything meanwhile.
    pub fn skip(&mut self, time: Duration) {
        let end = self.instant() + time;
        while let Some(at) = self.next_landing().filter(|at| *at <= end) {
            self.tick(at - self.instant());
            self.land_due();
        }
        self.tick(end - self.instant());
    }

    fn tick(&mut self, time: Duration) {
        let mut clock = lock(&self.house.clock);
        clock.instant += time;
        let passed = SignedDuration::try_from(time).unwrap_or_default();
        clock.wall += passed;
        drop(clock);
        self.server().now += passed;
    }

    /// Somebody sets the clock of the operators' machine.
    pub fn jump(&mut self, by: SignedDuration) {
        self.meets(Mishap::ClockSet);
        self.tell(|| format!("the clock of the operators is set by {} s", by.as_secs()));
        lock(&self.house.clock).wall += by;
        self.check.clock_set += 1;
    }

    /// Time passes, and whoever waits for a moment gets it.
    pub fn pass(&mut self, time: Duration) {
        self.pass_with(time, &mut |_| Some(Fate::Served));
    }

    pub fn pass_with(&mut self, time: Duration, fates: Fates<'_>) {
        let end = lock(&self.house.clock).instant + time;
        for _ in 0..ROUNDS {
            self.settle_with(fates);
            let now = lock(&self.house.clock).instant;
            let Some(at) = self.next_timer().filter(|at| *at <= end) else {
                self.skip(end - now);
                return self.settle_with(fates);
            };
            self.skip(at - now);
        }
        self.fail("time does not pass: a busy loop");
    }

    /// Operators do what they can until so many calls have been let through; others wait then.
    pub fn stop_after(&mut self, calls: usize) {
        self.pass_until(Duration::ZERO, &mut |next| next > calls);
    }

    /// Time passes until `is_over` says so of the number of the next call, at most so long.
    pub(crate) fn pass_until(&mut self, time: Duration, is_over: &mut dyn FnMut(usize) -> bool) {
        let end = lock(&self.house.clock).instant + time;
        for _ in 0..ROUNDS {
            if is_over(self.calls + 1) {
                return;
            }
            if self.round(&mut |_| Some(Fate::Served)) {
                continue;
            }
            let now = lock(&self.house.clock).instant;
            match self.next_timer().filter(|at| *at <= end) {
                Some(at) => self.skip(at - now),
                None => return self.skip(end - now),
            }
        }
    }

    /// Goes on until nothing happens any more, however long that takes. Pods that were told to go do go.
    pub fn run_out(&mut self) {
        for _ in 0..ROUNDS {
            self.settle();
            self.collect();
            if self.release() {
                continue;
            }
            let now = lock(&self.house.clock).instant;
            if let Some(at) = self.next_timer() {
                self.skip(at - now);
                continue;
            }
            let owed = Checker::owes_nothing(&self.server());
            if let Err(complaint) = owed {
                self.fail(&complaint);
            }
            return self.expect_order();
        }
        self.fail("never comes to rest");
    }

    /// When everything is at rest, what two did side by side, or what landed late, has been put right.
    fn expect_order(&mut self) {
        let order = Checker::at_rest(&self.server());
        if let Err(complaint) = order {
            self.fail(&complaint);
        }
    }

    /// Everything is at rest, and everybody knows everything: what is said is what is there.
    pub(crate) fn expect_truth(&mut self) {
        let truth = self.check.tells_what_is(&self.server()).and_then(|()| self.check.all_is_told());
        if let Err(complaint) = truth {
            self.fail(&complaint);
        }
    }

    /// How long nobody has anything to do, as far as they know.
    pub(crate) fn until_timer(&self) -> Option<Duration> {
        self.next_timer().map(|at| at.saturating_duration_since(self.instant()))
    }

    /// No claim is left of a job that wanted it gone.
    pub(crate) fn expect_no_claims(&mut self) {
        let left = self.check.claims_left(&self.server());
        if let Err(complaint) = left {
            self.fail(&complaint);
        }
    }

    /// When nothing changes, the API server is not asked for anything, however often the operators look.
    pub fn expect_quiet(&mut self) {
        let before = (self.server().version(), self.calls);
        self.look_at_all();
        self.settle();
        self.expect_order();
        if before != (self.server().version(), self.calls) {
            self.fail("something is written, or asked for, although nothing has changed");
        }
        if self.operators.len() == 1 && self.operators[0].misses_nothing() {
            self.expect_truth();
        }
    }
}
