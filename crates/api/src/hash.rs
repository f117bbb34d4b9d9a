//! A small stable hash.
//!
//! Its results are written into the cluster (labels, event names), so it must give the same answer in every
//! version of Trainyard and on every machine: that rules out `std`'s hasher. FNV-1a is enough, since
//! nobody gains anything from a collision with their own job.

use serde::Serialize;

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1a over the parts, with a separator so that `["ab", "c"]` and `["a", "bc"]` differ.
pub fn of_parts(parts: &[&str]) -> u64 {
    let mut hash = OFFSET;
    for part in parts {
        for byte in part.bytes().chain(std::iter::once(0xff)) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(PRIME);
        }
    }
    hash
}

/// The hash of a value's JSON. Maps of our types are sorted, so equal values give equal text.
pub fn of_json(value: &impl Serialize) -> u64 {
    // Serialising plain data with string keys cannot fail; an empty text would still be a stable answer.
    let text = serde_json::to_string(value).unwrap_or_default();
    of_parts(&[&text])
}

/// As 16 hexadecimal digits: fits a label value and an object name.
pub fn hex(hash: u64) -> String {
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_published_fnv1a_and_separates_parts() {
        // Golden values: changing them would restart every job of every cluster on upgrade.
        assert_eq!(hex(of_parts(&[])), "cbf29ce484222325");
        assert_eq!(hex(of_parts(&["bert"])), hex(of_parts(&["bert"])));
        assert_ne!(of_parts(&["ab", "c"]), of_parts(&["a", "bc"]));
    }
}
