//! torchrun always exits with 1: what its child exited with, and why, is in what it prints.

use crate::common::example::python_with_torch;
use crate::support::{Bench, job};

#[test]
fn a_child_of_torchrun_is_told_with_its_own_exit_code_and_error() {
    let Some(python) = python_with_torch() else { return };
    let bench = Bench::new();
    // The other one loses its peer and fails, too: torchrun waits for all of its kind before it exits.
    bench.write(
        "fail.py",
        "import sys, traceback\nfrom torch import distributed\n\
         distributed.init_process_group('gloo')\n\
         if distributed.get_rank() == 0:\n    distributed.barrier()\n\
         try:\n    raise ValueError('bad batch 7')\n\
         except ValueError:\n    traceback.print_exc()\n    sys.exit(17)\n",
    );
    let script = format!("exec {python} -m torch.distributed.run --nproc_per_node=1 fail.py MARK");
    // Without these two, torch 1.13 starts nothing on Python 3.11.
    let variables = "  env: [{name: PET_REDIRECTS, value: '1'}, {name: PET_TEE, value: '1'}]\n";
    let text = job("bert", 2, &script).replace("framework: custom", "framework: pytorch");
    bench.write("job.yaml", &format!("{text}{variables}  backoffLimit: 0\n"));
    let ended = bench.run(&["run", "job.yaml", "-o", "json"]);
    assert_eq!(ended.code, Some(1), "{ended}");
    let told: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended}"));
    let attempt = &told["jobs"][0]["attempts"][0];
    assert_eq!(attempt["exitCode"], 17, "{attempt:#}");
    assert_eq!(attempt["podName"], "bert-workers-1", "{attempt:#}");
    let error = attempt["error"].as_str().unwrap_or_default();
    assert!(error.ends_with("ValueError: bad batch 7"), "{attempt:#}");
}
