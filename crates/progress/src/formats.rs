//! The formats, one file each. The first that understands a line has it.

mod json;

use crate::Reading;

/// What a line says about the training, if it says anything.
pub fn read(line: &str) -> Option<Reading> {
    json::read(unprefixed(line.trim()))
}

/// Without what torchrun puts in front of the lines of its children: `[default0]:`.
fn unprefixed(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("[default") else { return line };
    match rest.split_once("]:") {
        Some((rank, rest)) if rank.bytes().all(|byte| byte.is_ascii_digit()) => rest.trim_start(),
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_put_something_in_front() {
        assert!(read(r#"[default0]:{"epoch": 1}"#).is_some());
        assert!(read(r#"[default]{"epoch": 1}"#).is_none());
    }
}
