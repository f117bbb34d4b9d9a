//! What a disturbance may change of the end of a scenario, and why.

use super::{Disturbance, NEVER, PATIENCE, Scenario};
use crate::check::{Count, Tally};
use crate::port::Fate;
use crate::server::Asks;
use crate::world::Delivery;

/// How much of the end must be as without the disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sameness {
    /// Every word of the status, and every object.
    All,
    /// The state, and what was counted.
    Decisions,
    /// The state, and the failures that were counted.
    Failures,
    State,
    /// It ends as it should, unless it had no time to go wrong; and no more failures are counted.
    Late,
}

/// What a disturbance may change, and why.
pub(super) struct Allowance {
    pub(super) status: Sameness,
    /// So many more times every object may be made, and so many more times removed.
    pub(super) rounds: usize,
    /// So many more times it may be asked for, in vain or because nobody knows what came of the first time.
    pub(super) repeats: usize,
    /// So many more times, on top of that, it may be asked to go.
    pub(super) removals: usize,
    /// So many times less: whoever is refused asks again and again, and a fault takes the place of one of these tries.
    pub(super) fewer: usize,
    /// So many more restarts there may be that do not count.
    pub(super) disruptions: i64,
}

impl Disturbance {
    pub(super) fn allowance(self, scenario: &Scenario, missed_end: bool) -> Allowance {
        use Sameness::{All, Decisions, Late, State};
        let (status, rounds) = match self {
            // What happens goes by the clock, and does not wait for a cache that is so late: some of it finds nobody to happen to.
            Disturbance::Watch(Delivery::Slow { time, .. }) if time > PATIENCE => (Late, NEVER),
            Disturbance::Watch(_) if scenario.together => (Late, NEVER),
            // What was refused is remembered by the operator alone: another one, or one that is told late of the change that brought
            // the refusal, asks once more, and takes back what it made of the gang until it was refused.
            // It begins anew with the shortest wait between two tries, too.
            // What stood in the way may also have come before there was anything to lose.
            Disturbance::Rival(..) | Disturbance::Watch(Delivery::Across { .. }) if scenario.refused => {
                (State, 2 * TRIES_ANEW)
            }
            Disturbance::Watch(Delivery::Lost(_)) if scenario.refused => (Decisions, TRIES_ANEW),
            _ if scenario.refused => (All, TRIES_ANEW),
            // Each makes what the other one removes, for as long as both are there. The pod that one has just made for the next
            // attempt may look to the other like one that is left over.
            Disturbance::Rival(..) => (All, ROUNDS_OF_RIVALS),
            // What nobody saw cannot be told, if it is over by the time that the watch starts over: a pod that ended, which is made once
            // more, or a job whose deadline passed.
            Disturbance::Watch(Delivery::Lost(_))
                if missed_end || (scenario.spec)().active_deadline_seconds.is_some() =>
            {
                (Decisions, 1)
            }
            // Whoever was not seen to begin or to end may be made once more.
            Disturbance::Watch(Delivery::Across { .. }) => (Decisions, 1),
            // A job that waits goes on when its time has come, as long as nobody told that it is not to.
            Disturbance::Watch(Delivery::Slow { .. }) => (All, 1),
            // Everything else forces nothing: a crash, a call that fails or whose answer is lost, events late or twice.
            Disturbance::None
            | Disturbance::Crash(_)
            | Disturbance::CrashAfter(_)
            | Disturbance::CrashBackwards(_)
            | Disturbance::CrashLate(..)
            | Disturbance::Restart(_)
            | Disturbance::Absent(_)
            | Disturbance::Late(..)
            | Disturbance::OldReads(_)
            | Disturbance::Call(..)
            | Disturbance::Watch(_) => (All, 0),
        };
        Allowance {
            status,
            rounds,
            repeats: match self {
                // Without an effect, or with one that nobody sees before it is asked for again.
                Disturbance::Call(_, Fate::Conflict | Fate::TooMany | Fate::Broken | Fate::LandsLate)
                | Disturbance::Late(..)
                | Disturbance::CrashLate(..) => 1,
                // What nobody is told of is asked for at every look, until the watch starts over.
                Disturbance::Watch(Delivery::Lost(_)) => LOOKS_UNTIL_RESYNC,
                _ => 0,
            },
            // Whoever goes on with an old cache asks again at every look. That a pod has been marked is seen; that it was told to go at once is not, until it is gone.
            removals: match self {
                Disturbance::Watch(Delivery::Late { .. }) if scenario.forced => 1,
                Disturbance::Watch(_) if scenario.forced => FORCED_AGAIN,
                Disturbance::Watch(Delivery::Across { .. }) if scenario.refused => BLIND_TRIES,
                _ => 0,
            },
            fewer: match self {
                // What was over before anybody heard of it was never begun.
                Disturbance::Watch(Delivery::Across { .. }) if !scenario.refused => 1,
                _ if !scenario.refused => 0,
                // As long as it waits for what does not come, it does not try at all.
                Disturbance::Watch(Delivery::Lost(_) | Delivery::Across { .. }) => TRIES_ANEW,
                _ => 1,
            },
            disruptions: i64::from(match self {
                Disturbance::Rival(..) => true,
                // Half a gang is taken back without a word in the status: its end may come when the rest has been made.
                Disturbance::CrashLate(..)
                | Disturbance::Late(..)
                | Disturbance::Call(_, Fate::LandsLate) => scenario.refused,
                _ => false,
            }),
        }
    }
}

/// At once, and after 2 s, 4 s and 8 s, instead of the longest wait of 15 s.
const TRIES_ANEW: usize = 4;

/// What follows from one act takes no more looks than this.
const LOOKS_UNTIL_RESYNC: usize = 3;

/// A minute's worth: whoever is told to go at once is told again whenever its node is asked how it is.
const FORCED_AGAIN: usize = 7;

/// Half a minute's worth: whoever has waited in vain for the echo of its own writes goes on without, every two seconds.
const BLIND_TRIES: usize = 15;

/// Two operators are side by side for at most eight calls.
const ROUNDS_OF_RIVALS: usize = 2;

/// Nobody asked more often for anything than there was a reason to.
pub(super) fn asked(is: &Asks, should: &Asks, allowance: &Allowance) -> Result<(), String> {
    for (object, is) in is {
        let should = should.get(object).unwrap_or(&[0; 2]);
        let more = allowance.rounds.saturating_add(allowance.repeats);
        let most = [more, more.saturating_add(allowance.removals)];
        if is.iter().zip(should).zip(most).any(|((is, should), most)| *is > should.saturating_add(most)) {
            return Err(format!(
                "{object:?} was asked for (made, removed) {is:?} times, and it should be {should:?}, at most {most:?} times more"
            ));
        }
    }
    Ok(())
}

/// Every object was made and removed as often as it should, within what is allowed.
pub(super) fn tallied(is: &Tally, should: &Tally, allowance: &Allowance) -> Result<(), String> {
    let nothing = Count::default();
    for object in is.keys().chain(should.keys()) {
        let (is, should) = (is.get(object).unwrap_or(&nothing), should.get(object).unwrap_or(&nothing));
        let within = |is: usize, should: usize| {
            (should.saturating_sub(allowance.fewer)..=should.saturating_add(allowance.rounds)).contains(&is)
        };
        // What landed late, beside what was made in its place, comes on top, and goes again.
        let strays = is.late.min(is.creates.saturating_sub(should.creates));
        if !within(is.creates - strays, should.creates)
            || !(within(is.deletes, should.deletes)
                || within(is.deletes.saturating_sub(strays), should.deletes))
        {
            return Err(format!(
                "{object:?}: {is:?}, and it should be {should:?}, at most {} times more and {} less",
                allowance.rounds, allowance.fewer
            ));
        }
    }
    Ok(())
}
