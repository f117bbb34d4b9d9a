//! Runs pods as processes on this machine, reporting as a kubelet would.

mod isolate;

pub mod shim {
    //! The helper process that a container is started by.

    pub use crate::isolate::main;
}
