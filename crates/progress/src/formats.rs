//! The formats, one file each. The first that understands a line has it.

mod json;

use crate::Reading;

/// What a line says about the training, if it says anything.
pub fn read(line: &str) -> Option<Reading> {
    json::read(line)
}
