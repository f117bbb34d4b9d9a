//! How far a training is, from what was read of it so far.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// What one line said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    pub epoch: Option<f64>,
    pub epochs: Option<f64>,
    pub step: Option<f64>,
    pub steps: Option<f64>,
    /// One that is no number has none any more.
    pub metrics: BTreeMap<String, f64>,
}

/// How far a training is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    pub epoch: Option<f64>,
    pub epochs: Option<f64>,
    pub step: Option<f64>,
    pub steps: Option<f64>,
    /// The newest value of each metric.
    pub metrics: BTreeMap<String, f64>,
    /// When something was read last.
    pub updated: Option<Timestamp>,
    /// Where the training was when it was first seen: after a resume that is not at the beginning.
    first: Option<First>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct First {
    at: Timestamp,
    epoch: Option<f64>,
    step: Option<f64>,
}

impl Progress {
    /// Takes in what was read at that time.
    pub fn take(&mut self, reading: Reading, at: Timestamp) {
        let newer = |old: &mut Option<f64>, new: Option<f64>| *old = new.or(*old);
        newer(&mut self.epoch, reading.epoch);
        newer(&mut self.epochs, reading.epochs);
        newer(&mut self.step, reading.step);
        newer(&mut self.steps, reading.steps);
        let shown = |(name, value)| (name, rounded(value));
        self.metrics.extend(reading.metrics.into_iter().map(shown));
        self.metrics.retain(|_, value| value.is_finite());
        self.updated = Some(at);
        self.first.get_or_insert(First { at, epoch: self.epoch, step: self.step });
    }

    /// How much is done, from 0 to 1. Steps are finer than epochs. `epochs` is what the job says about their number,
    /// for programs that do not.
    pub fn fraction(&self, epochs: Option<f64>) -> Option<f64> {
        self.share(self.step, self.epoch, epochs)
    }

    fn share(&self, step: Option<f64>, epoch: Option<f64>, epochs: Option<f64>) -> Option<f64> {
        let share = |done: Option<f64>, of: Option<f64>| {
            Some(done?).zip(of.filter(|of| *of > 0.0)).map(|(done, of)| (done / of).clamp(0.0, 1.0))
        };
        share(step, self.steps).or_else(|| share(epoch, self.epochs.or(epochs)))
    }

    /// When it will be done, if it goes on as fast as since it was first seen.
    pub fn estimate(&self, epochs: Option<f64>) -> Option<Timestamp> {
        let first = self.first?;
        let (now, fraction) = (self.updated?, self.fraction(epochs)?);
        let done = fraction - self.share(first.step, first.epoch, epochs)?;
        let gone = now.duration_since(first.at).as_secs_f64();
        if gone <= 0.0 || done <= 0.0 {
            return None;
        }
        let left = (gone / done * (1.0 - fraction)).min(10.0 * 365.0 * 86400.0);
        now.checked_add(SignedDuration::from_secs_f64(left)).ok()
    }
}

/// Six digits are enough for people, and come back from JSON as they went in.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap_or_default()
    }

    fn epoch(epoch: f64) -> Reading {
        Reading { epoch: Some(epoch), epochs: Some(10.0), ..Reading::default() }
    }

    #[test]
    fn steps_are_finer_than_epochs_and_old_values_stay() {
        let mut progress = Progress::default();
        progress.take(Reading { metrics: [("loss".into(), 0.5)].into(), ..epoch(2.0) }, at(0));
        assert_eq!(progress.fraction(None), Some(0.2));
        progress.take(Reading { step: Some(30.0), steps: Some(120.0), ..Reading::default() }, at(1));
        assert_eq!((progress.fraction(None), progress.epoch), (Some(0.25), Some(2.0)));
        assert_eq!(progress.metrics["loss"].to_bits(), 0.5f64.to_bits());
    }

    #[test]
    fn a_metric_that_is_no_number_any_more_is_not_shown() {
        let mut progress = Progress::default();
        progress.take(Reading { metrics: [("loss".into(), 0.5)].into(), ..epoch(2.0) }, at(0));
        progress.take(Reading { metrics: [("loss".into(), f64::NAN)].into(), ..epoch(3.0) }, at(1));
        assert_eq!((progress.epoch, progress.metrics.len()), (Some(3.0), 0));
    }

    #[test]
    fn the_jobs_own_number_of_epochs_helps_out() {
        let mut progress = Progress::default();
        progress.take(Reading { epoch: Some(3.0), ..Reading::default() }, at(0));
        assert_eq!((progress.fraction(None), progress.fraction(Some(4.0))), (None, Some(0.75)));
        progress.take(epoch(20.0), at(0));
        assert_eq!(progress.fraction(None), Some(1.0), "never more than all");
    }

    #[test]
    fn the_estimate_counts_from_where_it_resumed() {
        let mut progress = Progress::default();
        progress.take(epoch(8.0), at(1000));
        assert_eq!(progress.estimate(None), None, "one reading has no speed");
        progress.take(epoch(9.0), at(1060));
        assert_eq!(progress.estimate(None), Some(at(1120)));
    }
}
