//! Pods that really run, on an API server in this process.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod containers;
mod exec;
mod life;
mod load;
mod machine;
mod place;
mod support;
mod unprivileged;
