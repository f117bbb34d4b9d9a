//! `trainyard agent`: looks after the checkpoints of one job, beside its leading worker.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;
use trainyard_agent::crew::Workers;
use trainyard_agent::layouts::Layout;
use trainyard_agent::store::{Bucket, Directory, Store};
use trainyard_agent::{Agent, agent, run as watch};

/// Look after a job's checkpoints: find the newest complete one, move partial ones aside, remove old ones.
///
/// Started by the operator beside the leading worker. Prints a line of JSON when something has changed, and runs until it is
/// told to end. Exits with 0; with 1 when credentials are refused before the program has started, so that whoever starts it again
/// gives it others; with --is-ready, with 0 or 1; with 2 when it is told something that makes no sense.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where the checkpoints are: a directory, s3://bucket/prefix or gs://bucket/prefix.
    #[arg(long, value_name = "PLACE", env = "CHECKPOINT_DIR", required_unless_present = "is_ready")]
    directory: Option<String>,

    /// How checkpoints are laid out: auto, torch, huggingface, dcp, tensorflow, orbax, megatron, deepspeed, xgboost or files.
    #[arg(long, value_name = "LAYOUT", default_value = "auto")]
    layout: String,

    /// How many complete checkpoints to keep; 0 keeps all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep_last: usize,

    /// A file with that number. It is read at every look, so that another number takes effect at once.
    #[arg(long, value_name = "PATH")]
    keep_last_file: Option<PathBuf>,

    /// What this attempt was told to go on from, if anything.
    #[arg(long, value_name = "PATH", default_value = "")]
    resumed_from: String,

    /// Whether the job goes on from what is there.
    #[arg(long, value_enum, default_value_t = Resume::Auto, ignore_case = true)]
    resume: Resume,

    /// The file to make when the program may start.
    #[arg(long, value_name = "PATH")]
    ready_file: Option<PathBuf>,

    /// Which attempt this is: a text that differs from attempt to attempt and from job to job. An agent that is started again
    /// in the same attempt knows by it that the program runs already.
    #[arg(long, value_name = "ID")]
    attempt: Option<String>,

    /// How many workers the job has: after a change of it, checkpoints may have more or fewer files.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    workers: Option<u64>,

    /// How many processes run in each worker.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "workers", value_parser = clap::value_parser!(u64).range(1..))]
    processes: u64,

    /// What the workers run, as a text that changes with it: another program may save in fewer files.
    #[arg(long, value_name = "TEXT", requires = "workers")]
    inputs: Option<String>,

    /// Copy complete checkpoints from the directory to s3://bucket/prefix or gs://bucket/prefix.
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,

    /// Fetch the newest complete checkpoint from --mirror first, if the directory has none that is as new.
    #[arg(long, requires = "mirror")]
    restore: bool,

    /// How often to look: 2s unless told otherwise, 15s in a bucket, where every look costs.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    interval: Option<Duration>,

    /// Only fetch --resumed-from from --mirror into the directory, and end: what a worker needs that is not the leading one.
    /// Waits as long as the bucket cannot be read.
    #[arg(long, requires = "mirror", conflicts_with_all = ["restore", "ready_file"])]
    fetch: bool,

    /// Only tell, by the exit code, whether the ready file has been made.
    #[arg(long, requires = "ready_file")]
    is_ready: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Resume {
    Auto,
    Never,
}

fn duration(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration =
        text.parse().map_err(|error| format!("{error}: write, for example, 2s"))?;
    let time = Duration::try_from(span).map_err(|_| "it must not be negative".to_owned())?;
    if time.is_zero() { Err("it must not be zero".to_owned()) } else { Ok(time) }
}

pub(crate) fn run(options: Options) -> anyhow::Result<ExitCode> {
    let Options {
        directory,
        layout,
        keep_last,
        keep_last_file,
        resumed_from,
        resume,
        ready_file,
        attempt,
        workers,
        processes,
        inputs,
        mirror,
        restore,
        interval,
        fetch,
        is_ready,
    } = options;
    if is_ready {
        let is_there = ready_file.is_some_and(|path| path.exists());
        return Ok(if is_there { ExitCode::SUCCESS } else { ExitCode::from(1) });
    }
    let directory = directory.context("--directory is missing")?;
    let Some(layouts) = Layout::of_word(&layout) else {
        let known: Vec<_> = Layout::ALL.iter().map(ToString::to_string).collect();
        bail!("--layout {layout}: there is auto, {}", known.join(", "));
    };
    let is_bucket = Bucket::is_url(&directory);
    if is_bucket && mirror.is_some() {
        bail!("--mirror copies a directory, but --directory is a bucket: leave out one of them");
    }
    if let Some(url) = mirror.as_deref().filter(|url| !Bucket::is_url(url)) {
        bail!("--mirror {url}: write s3://bucket/prefix or gs://bucket/prefix");
    }
    if let Some(url) = mirror.as_deref().filter(|_| fetch) {
        if resumed_from.is_empty() {
            bail!("--fetch needs --resumed-from: what is to be fetched?");
        }
        let bucket = url.to_owned();
        let open = move || Bucket::open(&bucket, variables());
        watch::fetch((url, &open), &Directory::new(&directory), &resumed_from, &mut std::io::stdout())?;
        return Ok(ExitCode::SUCCESS);
    }
    let store: Box<dyn Store> = if is_bucket {
        Box::new(Bucket::open(&directory, variables())?)
    } else {
        Box::new(Directory::new(&directory))
    };
    let options = agent::Options {
        layouts,
        keep_last,
        resumed_from: Some(resumed_from),
        resume: match resume {
            Resume::Auto => agent::Resume::Auto,
            Resume::Never => agent::Resume::Never,
        },
        ready_file,
        attempt: attempt.filter(|attempt| !attempt.is_empty()),
    };
    let mut agent = Agent::new(store, options);
    if let Some(workers) = workers {
        agent = agent.with_workers(Workers { pods: workers, processes });
    }
    if let Some(inputs) = inputs.filter(|inputs| !inputs.is_empty()) {
        agent = agent.with_inputs(inputs);
    }
    if let Some(file) = keep_last_file {
        agent = agent.with_keep_last_in(file);
    }
    if let Some(url) = mirror {
        agent = agent.with_copy_in(&url, variables(), restore);
    }
    let interval = interval.unwrap_or(Duration::from_secs(if is_bucket { 15 } else { 2 }));
    Ok(match watch::run(agent, interval, &mut std::io::stdout())? {
        watch::End::Told => ExitCode::SUCCESS,
        watch::End::Refused => {
            eprintln!(
                "the credentials for the bucket have been refused for a minute: ending, to be started again with what the secret says \
                 then"
            );
            ExitCode::from(1)
        }
    })
}

/// The environment, without what is not text.
fn variables() -> Vec<(String, String)> {
    let text = |(key, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((key.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}
