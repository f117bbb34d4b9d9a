//! TensorFlow: `ckpt-5.index`, `ckpt-5.data-00000-of-00002` and so on, and a file `checkpoint` that names the newest.

use std::collections::BTreeSet;

use crate::formats::bundle::{self, Index};
use crate::numbers;
use crate::store::StoreError;
use crate::tree::{self, Tree};

use super::{Candidate, Claimed, Layout, Proof, Reader, Verdict};

pub(super) fn claim(tree: &Tree, claimed: &mut Claimed) {
    let files = || tree.entries().filter(|entry| entry.is_file() && !claimed.covers(&entry.path));
    // A lone `.index` can be anybody's; shards are named like nothing else.
    let prefixes: BTreeSet<&str> =
        files().filter_map(|entry| shard(&entry.path).map(|(prefix, ..)| prefix)).collect();
    let mut found = Vec::new();
    for prefix in prefixes {
        // Shards are merged in a directory of their own, from which they are moved when they are complete.
        if tree::parent(prefix).ends_with("_temp") {
            continue;
        }
        let is_part = |path: &str| {
            path == format!("{prefix}.index") || shard(path).is_some_and(|(of, ..)| of == prefix)
        };
        let files: Vec<String> = tree
            .children(tree::parent(prefix))
            .filter(|entry| entry.is_file() && is_part(&entry.path))
            .map(|entry| entry.path.clone())
            .collect();
        found.push(Candidate {
            layout: Layout::TensorFlow,
            path: prefix.to_owned(),
            roots: files.clone(),
            files,
            witnesses: Vec::new(),
        });
    }
    for candidate in found {
        claimed.take(candidate);
    }
}

pub(super) fn judge(candidate: &Candidate, reader: &Reader<'_>) -> Result<Verdict, StoreError> {
    let index = format!("{}.index", candidate.path);
    let Some(size) = reader.size(&index) else {
        return Ok(Verdict::Partial(format!("{} is missing", tree::name(&index))));
    };
    let (shards, proof) = match bundle::read(reader.store, &index, size)? {
        Index::Shards(shards) => (shards, Proof::Content),
        // The names tell how many there are.
        Index::Huge => {
            let count = candidate.files.iter().filter_map(|path| shard(path)).map(|(.., count)| count).max();
            ((0..u64::from(count.unwrap_or_default())).map(|number| (number, 0)).collect(), Proof::Quiet)
        }
        Index::Cut => return Ok(Verdict::Partial(format!("{} is cut off", tree::name(&index)))),
    };
    let count = shards.len();
    for (number, least) in shards {
        let path = format!("{}.data-{number:05}-of-{count:05}", candidate.path);
        match reader.size(&path) {
            None => return Ok(Verdict::Partial(format!("{} is missing", tree::name(&path)))),
            Some(size) if size < least => {
                return Ok(Verdict::Partial(format!("{} is cut off", tree::name(&path))));
            }
            Some(_) => {}
        }
    }
    Ok(Verdict::Complete { numbers: numbers::of_name(candidate.name()), proof })
}

/// `a/ckpt-5`, 0 and 2 for `a/ckpt-5.data-00000-of-00002`.
fn shard(path: &str) -> Option<(&str, u32, u32)> {
    let (prefix, rest) = path.rsplit_once(".data-")?;
    let (number, count) = rest.split_once("-of-")?;
    let is_five_digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_five_digits(number) || !is_five_digits(count) {
        return None;
    }
    Some((prefix, number.parse().ok()?, count.parse().ok()?))
}

/// The prefix that the file `checkpoint` names, if it is in the same directory.
pub(super) fn named_as_latest(reader: &Reader<'_>, directory: &str) -> Option<String> {
    let text = reader.small_text(&tree::join(directory, "checkpoint"))?;
    let path = text.lines().find_map(|line| line.trim().strip_prefix("model_checkpoint_path:"))?;
    Some(tree::name(path.trim().trim_matches('"')).to_owned())
}
