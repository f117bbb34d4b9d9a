//! How restarts go: the flags that `operator`, `run` and `up` have in common. What none of them says is left as the settings
//! are, which differ: somebody sits in front of one machine.

use jiff::SignedDuration;
use trainyard_plan::Settings;

#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Restarts")]
pub(crate) struct Restarts {
    /// Seconds before the first restart after a failure; each further one doubles them [default: 10 in a cluster, 1 with run and up].
    #[arg(long, value_name = "SECONDS", env = "TRAINYARD_BACKOFF_SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    backoff_seconds: Option<f64>,

    /// The longest such wait [default: 360].
    #[arg(long, value_name = "SECONDS", env = "TRAINYARD_MAX_BACKOFF_SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    max_backoff_seconds: Option<f64>,

    /// Seconds that the workers of a broken gang get to end: without the one that failed they have nothing left to save [default: 2].
    #[arg(long, value_name = "SECONDS", env = "TRAINYARD_SURVIVOR_GRACE_SECONDS", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=3600))]
    survivor_grace_seconds: Option<u32>,

    /// The same error so many times (at most 10) without progress in between ends a job, whatever backoffLimit allows; 0: never [default: 3].
    #[arg(long, value_name = "N", env = "TRAINYARD_SAME_FAILURE_LIMIT", value_parser = clap::value_parser!(u32).range(0..=10))]
    same_failure_limit: Option<u32>,

    /// Whether the programs of an attempt that stalled are asked where they hang (py-spy, or a signal that they catch) [default: true].
    #[arg(long, value_name = "BOOL", env = "TRAINYARD_STALL_STACKS", action = clap::ArgAction::Set)]
    stall_stacks: Option<bool>,
}

impl Restarts {
    /// The settings, with what was said here instead.
    pub(crate) fn over(&self, settings: Settings) -> Settings {
        let Self {
            backoff_seconds,
            max_backoff_seconds,
            survivor_grace_seconds,
            same_failure_limit,
            stall_stacks,
        } = self;
        let duration = |seconds: &Option<f64>| seconds.map(SignedDuration::from_secs_f64);
        Settings {
            backoff_base: duration(backoff_seconds).unwrap_or(settings.backoff_base),
            backoff_max: duration(max_backoff_seconds).unwrap_or(settings.backoff_max),
            survivor_grace: survivor_grace_seconds.unwrap_or(settings.survivor_grace),
            same_failures: same_failure_limit.unwrap_or(settings.same_failures),
            ask_for_stacks: stall_stacks.unwrap_or(settings.ask_for_stacks),
            ..settings
        }
    }
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=31_536_000.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds from 0 to 31536000 are needed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The help says what holds without a flag.
    #[test]
    fn the_defaults_are_those_that_the_help_tells() {
        let Settings { backoff_base, backoff_max, survivor_grace, same_failures, ask_for_stacks, .. } =
            Restarts::default().over(Settings::default());
        assert_eq!(
            (backoff_base, backoff_max),
            (SignedDuration::from_secs(10), SignedDuration::from_secs(360))
        );
        assert_eq!((survivor_grace, same_failures, ask_for_stacks), (2, 3, true));
    }
}
