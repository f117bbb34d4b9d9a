//! `cargo run -p trainyard-sim`: many histories, or one with every line of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use trainyard_sim::{Make, history};

/// Tells random histories of a training job, its operator and everything that can go wrong.
#[derive(Parser)]
struct Args {
    /// Tell the history of this seed, line by line
    #[arg(long)]
    seed: Option<u64>,
    /// How many histories to tell
    #[arg(long, default_value_t = 10_000)]
    histories: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// How many threads tell histories, each its own; one for each core if not given
    #[arg(long)]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match args.seed {
        Some(seed) => one(seed),
        None => many(&args),
    }
}

fn one(seed: u64) -> ExitCode {
    let world = history::tell(seed, Make::default(), true);
    for line in world.trace() {
        println!("{line}");
    }
    println!("history {seed}: every rule was kept");
    ExitCode::SUCCESS
}

fn many(args: &Args) -> ExitCode {
    let threads = args.threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
    let threads = u64::try_from(threads.unwrap_or(1)).unwrap_or(1).max(1);
    let started = Instant::now();
    // The message of a broken rule is printed with its seed; the default hook would say it twice.
    std::panic::set_hook(Box::new(|_| {}));
    let failed: Vec<(u64, String)> = std::thread::scope(|scope| {
        let tellers: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || tell(args, thread, threads, started))).collect();
        tellers.into_iter().flat_map(|teller| teller.join().unwrap_or_default()).collect()
    });
    let seconds = started.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rate = args.histories as f64 / seconds / threads as f64;
    println!("{} histories in {seconds:.1} s: {rate:.0} per second and core", args.histories);
    for (seed, why) in &failed {
        println!("history {seed} broke a rule: {why}\n  cargo run -q -p trainyard-sim -- --seed {seed}");
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every `threads`th history. Stops after a few that break a rule.
fn tell(args: &Args, thread: u64, threads: u64, started: Instant) -> Vec<(u64, String)> {
    let mut failed = Vec::new();
    for seed in (args.from..args.from + args.histories).skip(usize::try_from(thread).unwrap_or(0)) {
        if (seed - args.from) % threads != thread {
            continue;
        }
        let done = seed - args.from;
        if done > 0 && done % 10_000 == 0 {
            println!("{done} histories, {:.0} s", started.elapsed().as_secs_f64());
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| history::tell(seed, Make::default(), false))) {
            let why = panic.downcast_ref::<String>().map(String::as_str);
            let why = why.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            failed.push((seed, why.to_owned()));
            if failed.len() >= 5 {
                break;
            }
        }
    }
    failed
}
