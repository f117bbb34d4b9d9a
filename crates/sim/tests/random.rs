//! Some random histories for every day. `cargo xtask test` tells a hundred thousand, and others every time it is asked to.

use trainyard_sim::{Make, history};

#[test]
fn random_histories_keep_every_rule() {
    for seed in 1..=300 {
        history::tell(seed, Make::default(), false);
    }
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
