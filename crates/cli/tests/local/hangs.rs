//! A program that hangs says where before it is started again, in whichever of three ways it can.

use std::os::unix::fs::PermissionsExt;

use crate::support::{Bench, job};

/// Runs a job that hangs in its first attempt: rank 1 in a function of its own. `prelude` is run by its program first, and `start`
/// starts the whole. Says what the job told about where it hung.
///
/// The time without progress begins with what rank 0 prints, so it prints when rank 1 hangs: until then, that one may still be importing.
fn where_it_hung(bench: &Bench, prelude: &str, start: &[&str]) -> String {
    let program = r#"
import faulthandler, multiprocessing, os, pathlib, signal, time
PRELUDE
hangs = pathlib.Path("rank-1-hangs")
def wait_for_data():
    hangs.touch()
    while True:
        time.sleep(60)
def load():
    time.sleep(600)
multiprocessing.set_start_method("fork")
multiprocessing.Process(target=load, daemon=True).start()
if os.environ["TRAINYARD_ATTEMPT"] == "1" and os.environ["RANK"] == "1":
    wait_for_data()
while not hangs.exists():
    time.sleep(0.01)
print('{"epoch": 1, "epochs": 2}', flush=True)
if os.environ["TRAINYARD_ATTEMPT"] == "1":
    time.sleep(600)
"#;
    bench.write("hang.py", program.replace("PRELUDE", prelude).trim_start());
    bench.write("job.yaml", &(job("bert", 2, "exec python3 hang.py MARK") + "  stallTimeoutSeconds: 2\n"));
    let ended = bench.run_by(start, &["run", "job.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.stdout.contains("no progress was seen for 2 s"), "{ended}");
    let told = ended.stdout.lines().find_map(|line| Some(line.split_once("It hung: ")?.1));
    told.unwrap_or_else(|| panic!("it was not told where: {ended}")).to_owned()
}

/// Both hang in functions of the program; the helper processes of each are not asked.
const STACKS: &str = "Worker 0 in <module> (hang.py:18); Worker 1 in wait_for_data (hang.py:7), called from <module> (hang.py:13)";

#[test]
fn every_python_program_says_where_it_hangs() {
    let told = where_it_hung(&Bench::new(), "", &[]);
    assert!(told.contains(STACKS), "{told}");
}

#[test]
fn one_that_registers_a_signal_for_it_is_sent_that_one() {
    // Without the usual handler, the other signal would end it without a word.
    let prelude = "faulthandler.disable(); faulthandler.register(signal.SIGUSR1)";
    let told = where_it_hung(&Bench::new(), prelude, &[]);
    assert!(told.contains(STACKS), "{told}");
}

#[test]
fn a_debugger_is_asked_first() {
    let bench = Bench::new();
    // As py-spy prints it.
    let debugger = "#!/bin/sh\ntest \"$1 $2\" = 'dump --pid' || exit 1\n\
                    echo \"Process $3: python3 hang.py\"\necho\n\
                    echo \"Thread $3 (idle): \\\"MainThread\\\"\"\necho '    all_reduce (torch/distributed.py:2000)'\n";
    std::fs::create_dir(bench.path().join("bin")).unwrap();
    let file = bench.write("bin/py-spy", debugger);
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("PATH={}:{}", bench.path().join("bin").display(), std::env::var("PATH").unwrap());
    let told = where_it_hung(&bench, "", &["env", &path]);
    assert!(told.contains("Worker 0, Worker 1 in all_reduce (distributed.py:2000)"), "{told}");
}
