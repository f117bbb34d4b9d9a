//! `cargo run -p trainyard-sim`: many histories, or one with every line of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use clap::Parser;
use trainyard_sim::scenario::{Disturbance, compare, disturbances, library, tell};
use trainyard_sim::{Make, history, scenario};

/// A history is thousands of small allocations; this is a third of its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tells random histories of a training job, its operator and everything that can go wrong.
#[derive(Parser)]
struct Args {
    /// Tell the history of this seed, line by line
    #[arg(long)]
    seed: Option<u64>,
    /// Tell every scenario of the library, disturbed at every place
    #[arg(long)]
    scenarios: bool,
    /// Tell the scenario of this name with this disturbance, as a failure names them, line by line
    #[arg(long, num_args = 2, value_names = ["SCENARIO", "NUMBER"])]
    scenario: Option<Vec<String>>,
    /// How many histories to tell
    #[arg(long, default_value_t = 10_000)]
    histories: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Stop a thread after so many histories that break a rule
    #[arg(long, default_value_t = 5)]
    broken: usize,
    /// Print nothing but how many histories were told in a second of one core's time
    #[arg(long)]
    bench: bool,
    /// How many threads tell histories, each its own; one for each core if not given
    #[arg(long)]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(scenario) = &args.scenario {
        return one_scenario(&scenario[0], scenario[1].parse().unwrap_or(0));
    }
    if args.scenarios {
        return scenarios(threads(&args));
    }
    if args.bench {
        return bench(&args);
    }
    match args.seed {
        Some(seed) => one(seed),
        None => many(&args),
    }
}

/// One thread's rate, by the time that it really had: other programs on the machine do not count.
fn bench(args: &Args) -> ExitCode {
    // Caches and the allocator settle down first.
    for seed in args.from..args.from + args.histories / 10 {
        history::tell(seed, Make::default(), false);
    }
    let started = cpu_seconds();
    for seed in args.from..args.from + args.histories {
        history::tell(seed, Make::default(), false);
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rate = args.histories as f64 / (cpu_seconds() - started).max(f64::MIN_POSITIVE);
    println!("{rate:.0}");
    ExitCode::SUCCESS
}

/// How much time this thread has had on a core, as far as the system tells; else how much time has passed.
fn cpu_seconds() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let spent = told.and_then(|told| told.split(' ').next()?.parse().ok()).map(Duration::from_nanos);
    spent.unwrap_or_else(|| start.elapsed()).as_secs_f64()
}

fn threads(args: &Args) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    args.threads.unwrap_or_else(cores).max(1)
}

/// Every scenario with every disturbance.
fn scenarios(threads: usize) -> ExitCode {
    let started = Instant::now();
    std::panic::set_hook(Box::new(|_| {}));
    let library = library();
    let mut failures = 0;
    let mut count = 0;
    for scenario in &library {
        let calm = tell(scenario, Disturbance::None, Make::default(), false);
        if calm.state(scenario::NAME) != scenario.end {
            println!(
                "{}: ends as {:?}, and not {:?}",
                scenario.name,
                calm.state(scenario::NAME),
                scenario.end
            );
            failures += 1;
        }
        let all = disturbances(&calm);
        let all: Vec<(usize, Disturbance)> = all.into_iter().enumerate().collect();
        count += all.len();
        let broken: Vec<(usize, Disturbance, String)> = std::thread::scope(|scope| {
            let parts = all.chunks(all.len().div_ceil(threads)).map(|part| {
                scope.spawn(move || {
                    let calm = tell(scenario, Disturbance::None, Make::default(), false);
                    let broken = part.iter().filter_map(|(number, disturbance)| {
                        let why = compare(scenario, &calm, *disturbance, Make::default()).err()?;
                        Some((*number, *disturbance, why))
                    });
                    broken.collect::<Vec<_>>()
                })
            });
            let parts: Vec<_> = parts.collect();
            parts.into_iter().flat_map(joined).collect()
        });
        println!("{}: {} disturbances, {} broken", scenario.name, all.len(), broken.len());
        for (number, disturbance, why) in broken.iter().take(3) {
            let why: String = why.chars().take(2000).collect();
            println!("  {disturbance:?}: {why}\n  {}", scenario::replay(scenario.name, *number));
        }
        failures += broken.len();
    }
    println!("{count} disturbed scenarios in {:.0} s", started.elapsed().as_secs_f64());
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What a thread found. One that died has found nothing, which must not pass for good news.
fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| {
        eprintln!(
            "the simulator itself broke: {}",
            panic.downcast_ref::<String>().map_or("a panic", |why| why)
        );
        std::process::exit(101)
    })
}

fn one_scenario(name: &str, number: usize) -> ExitCode {
    let library = library();
    let Some(scenario) = library.iter().find(|scenario| scenario.name == name) else {
        eprintln!("there is no scenario of that name");
        return ExitCode::FAILURE;
    };
    let calm = tell(scenario, Disturbance::None, Make::default(), false);
    let Some(disturbance) = disturbances(&calm).get(number).copied() else {
        eprintln!("there is no disturbance of that number");
        return ExitCode::FAILURE;
    };
    println!("{name}, {disturbance:?}");
    let world = tell(scenario, disturbance, Make::default(), true);
    for line in world.trace() {
        println!("{line}");
    }
    match compare(scenario, &calm, disturbance, Make::default()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
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
    let threads = u64::try_from(threads(args)).unwrap_or(1);
    let started = Instant::now();
    // The message of a broken rule is printed with its seed; the default hook would say it twice.
    std::panic::set_hook(Box::new(|_| {}));
    let failed: Vec<(u64, String)> = std::thread::scope(|scope| {
        let tellers: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || some(args, thread, threads, started))).collect();
        tellers.into_iter().flat_map(joined).collect()
    });
    let seconds = started.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rate = args.histories as f64 / seconds / threads as f64;
    println!("{} histories in {seconds:.1} s: {rate:.0} per second and core", args.histories);
    for (seed, why) in &failed {
        println!("history {seed} broke a rule: {why}\n  {}", history::replay(*seed));
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every `threads`th history. Stops after a few that break a rule.
fn some(args: &Args, thread: u64, threads: u64, started: Instant) -> Vec<(u64, String)> {
    let mut failed = Vec::new();
    for seed in (args.from..args.from + args.histories).skip(usize::try_from(thread).unwrap_or(0)) {
        if (seed - args.from) % threads != thread {
            continue;
        }
        let done = seed - args.from;
        if done > 0 && done.is_multiple_of(10_000) {
            println!("{done} histories, {:.0} s", started.elapsed().as_secs_f64());
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| history::tell(seed, Make::default(), false))) {
            let why = panic.downcast_ref::<String>().map(String::as_str);
            let why = why.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            failed.push((seed, why.to_owned()));
            if failed.len() >= args.broken {
                break;
            }
        }
    }
    failed
}
