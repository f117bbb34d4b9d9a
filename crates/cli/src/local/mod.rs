//! One machine, no cluster: the embedded control plane, the operator and the node in this process.

pub(crate) mod down;
mod jobs;
mod line;
mod outcome;
pub(crate) mod run;
mod screen;
mod signals;
mod state;
pub(crate) mod up;
mod view;
mod yard;
