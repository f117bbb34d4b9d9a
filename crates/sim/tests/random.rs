//! Some random histories for every day. `cargo xtask test` tells a hundred thousand, and others every time it is asked to.

use std::collections::BTreeMap;
use std::panic::catch_unwind;

use trainyard_sim::{Fate, Make, Mishap, history};

/// Of a thousand histories, at least so many meet this. Well below what was measured: a change that makes something rare shows here.
const SHARES: [(Mishap, u64); 31] = [
    (Mishap::Call(Fate::Conflict), 100),
    (Mishap::Call(Fate::TooMany), 100),
    (Mishap::Call(Fate::Broken), 100),
    (Mishap::Call(Fate::AnswerLost), 100),
    (Mishap::Call(Fate::LandsLate), 100),
    (Mishap::Landed, 120),
    (Mishap::Crash, 200),
    (Mishap::Lost, 60),
    (Mishap::Late, 200),
    (Mishap::Twice, 150),
    (Mishap::Rival, 50),
    (Mishap::LimitUsedUp, 20),
    (Mishap::SameFailure, 8),
    (Mishap::FailedAgain, 5),
    (Mishap::Stranger, 120),
    (Mishap::ClockSet, 40),
    (Mishap::NodeLost, 8),
    (Mishap::Announced, 8),
    (Mishap::PolicyChanged, 8),
    (Mishap::QuietRunning, 20),
    (Mishap::QuietSuspended, 20),
    (Mishap::QuietBackoff, 8),
    (Mishap::QuietQuota, 5),
    (Mishap::Ended("Application"), 150),
    (Mishap::Ended("OutOfMemory"), 10),
    (Mishap::Ended("Disruption"), 50),
    (Mishap::Ended("Stalled"), 20),
    (Mishap::Ended("Resume"), 5),
    (Mishap::Ended("Rescale"), 20),
    (Mishap::Ended("Update"), 20),
    (Mishap::Ended("Suspend"), 15),
];

/// The first of them are what goes wrong between operators and the API server.
const DISTURBANCES: usize = 11;

#[test]
fn random_histories_keep_every_rule() {
    for seed in 1..=300 {
        let told = catch_unwind(|| drop(history::tell(seed, Make::default(), false)));
        assert!(told.is_ok(), "history {seed} broke a rule: {}", history::replay(seed));
    }
}

#[test]
fn histories_meet_everything_that_can_go_wrong() {
    const HISTORIES: u64 = 1000;
    let mut met: BTreeMap<Mishap, u64> = BTreeMap::new();
    let (mut calm, mut mixed) = (0, 0);
    for seed in 1..=HISTORIES {
        let world = history::tell(seed, Make::default(), false);
        let kinds = world.mishaps();
        for mishap in kinds {
            *met.entry(*mishap).or_default() += 1;
        }
        let disturbed = SHARES[..DISTURBANCES].iter().filter(|(mishap, _)| kinds.contains(mishap)).count();
        calm += u64::from(disturbed == 0);
        mixed += u64::from(disturbed > 1);
    }
    println!("{met:#?}, {calm} calm, {mixed} mixed");
    for (mishap, least) in SHARES {
        let share = met.get(&mishap).copied().unwrap_or_default();
        assert!(share * 1000 >= HISTORIES * least, "{mishap:?} in {share} of {HISTORIES} histories");
    }
    assert!(calm * 100 < HISTORIES * 30, "{calm} of {HISTORIES} histories are undisturbed");
    assert!(mixed * 100 > HISTORIES * 50, "{mixed} of {HISTORIES} histories mix what goes wrong");
}

#[test]
fn a_history_is_the_same_every_time() {
    for seed in [1, 7, 42] {
        let (first, again) =
            (history::tell(seed, Make::default(), true), history::tell(seed, Make::default(), true));
        assert_eq!(first.trace(), again.trace());
        assert!(first.trace().len() > 20, "hardly anything happened");
    }
}
