//! Random moments. The seed that they come from is told when a test fails, and can be given again.

use std::time::Duration;

/// The environment variable with the seed; without it, every run has another.
const SEED: &str = "TRAINYARD_SEED";

pub struct Moments(pub fastrand::Rng);

impl Moments {
    pub fn new() -> Self {
        let seed = match std::env::var(SEED) {
            Ok(text) => text.parse().unwrap(),
            Err(_) => fastrand::u64(..),
        };
        println!("what is random here comes from {SEED}={seed}");
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Some time, but less than this.
    pub fn within(&mut self, time: Duration) -> Duration {
        time.mul_f64(self.0.f64())
    }

    /// Three times out of four.
    pub fn mostly(&mut self) -> bool {
        self.0.f64() < 0.75
    }
}
