//! How fast the simulator is. What is told in a second of a core's time is what CI can afford to tell.

use anyhow::{Context, bail};

use crate::test::cargo;

/// Histories that are told: some seconds' worth.
const HISTORIES: &str = "10000";

/// Builds the simulator as well as it can be, and lets it measure itself.
pub(crate) fn measure() -> anyhow::Result<()> {
    let sim = ["run", "--quiet", "--profile", "sim-bench", "--package", "trainyard-sim", "--"];
    let output = cargo(&sim).args(["--bench", "--histories", HISTORIES]).output()?;
    if !output.status.success() {
        bail!("the simulator failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let rate = String::from_utf8_lossy(&output.stdout);
    let rate: u64 = rate.trim().parse().context("the simulator does not say how fast it is")?;
    println!("simulator, histories per second and core:  {rate:>8}   (wanted: at least 2000)");
    Ok(())
}
