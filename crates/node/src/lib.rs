//! Runs pods as processes on this machine, reporting as a kubelet would.

mod isolate;
mod logs;
mod process;

pub use logs::LogLimits;

pub mod shim {
    //! The helper process that a container is started by.

    pub use crate::isolate::main;
}
