//! Objects whose names are no paths, such as `x//foo`.
//!
//! Other tools can make them below a job's place. The library fails for a whole listing over a single one, so they are taken
//! out of it before it reads it. They are none of ours: nobody can have saved such a file.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::path::Path as Key;

/// A listing names each object in one of these.
const OBJECT: (&str, &str) = ("<Contents>", "</Contents>");
const NAME: (&str, &str) = ("<Key>", "</Key>");

/// So many are remembered: one is told, and that there are more.
const MOST: usize = 2;

/// Those that the last listing had.
#[derive(Clone, Debug, Default)]
pub(super) struct Foreign(Arc<Mutex<BTreeSet<String>>>);

impl Foreign {
    pub(super) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(super) fn first(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).first().cloned()
    }

    fn note(&self, name: String) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() < MOST {
            names.insert(name);
        }
    }

    /// The listing without them.
    pub(super) fn taken_out(&self, listing: &str) -> String {
        let mut kept = String::with_capacity(listing.len());
        let mut rest = listing;
        while let Some(start) = rest.find(OBJECT.0) {
            let end = rest[start..].find(OBJECT.1).map_or(rest.len(), |end| start + end + OBJECT.1.len());
            kept.push_str(&rest[..start]);
            match name(&rest[start..end]).filter(|name| Key::parse(name).is_err()) {
                Some(name) => self.note(name),
                None => kept.push_str(&rest[start..end]),
            }
            rest = &rest[end..];
        }
        kept.push_str(rest);
        kept
    }
}

fn name(object: &str) -> Option<String> {
    let (_, name) = object.split_once(NAME.0)?;
    let (name, _) = name.split_once(NAME.1)?;
    Some(unescaped(name))
}

/// A text of XML as it is meant.
fn unescaped(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        plain.push_str(before);
        let Some((word, after)) = after.split_once(';') else { break };
        plain.extend(character(word));
        rest = after;
    }
    plain + rest
}

fn character(word: &str) -> Option<char> {
    match word {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = word.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => number.parse(),
            };
            code.ok().and_then(char::from_u32)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_paths_are_taken_out_and_all_others_stay() {
        let object = |name: &str| format!("<Contents><Key>{name}</Key><Size>1</Size></Contents>");
        let listing = |names: &[&str]| {
            let objects: String = names.iter().map(|name| object(name)).collect();
            format!(
                "<ListBucketResult><Name>b</Name>{objects}<IsTruncated>false</IsTruncated></ListBucketResult>"
            )
        };
        let foreign = Foreign::default();
        let good = ["ml/a.pt", "ml/a&amp;b.pt", "ml/&#233;.pt", "ml/directory/"];
        assert_eq!(foreign.taken_out(&listing(&good)), listing(&good));
        assert_eq!(foreign.first(), None);
        for bad in ["ml/x//foo", "ml/../foo", "ml/a&#10;b", "ml/&#x7;"] {
            foreign.forget();
            let listed = foreign.taken_out(&listing(&["ml/a.pt", bad, "ml/b.pt"]));
            assert_eq!(listed, listing(&["ml/a.pt", "ml/b.pt"]), "{bad}");
            assert_eq!(foreign.first(), Some(unescaped(bad)));
        }
        // One that is cut off is the library's to tell.
        let cut = "<ListBucketResult><Contents><Key>ml/a.pt</Key>";
        assert_eq!(foreign.taken_out(cut), cut);
    }
}
