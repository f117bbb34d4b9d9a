//! The helper process by itself, for the tests of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    trainyard_node::shim::main(std::env::args_os().skip(1).collect())
}
