//! What training programs print, read as progress.
//!
//! The way through: bytes of a log → [`Lines`] → [`read`] (one file per format) → [`Progress`]. Pure: whoever reads the
//! log says what time it is.

mod formats;
mod lines;
mod progress;

pub use formats::read;
pub use lines::Lines;
pub use progress::{Progress, Reading};
