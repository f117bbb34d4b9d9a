//! A directory of torch's distributed checkpoints: shards of all ranks, and `.metadata`, which rank 0 writes last.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::formats::READ_WHOLE;
use crate::formats::pickle::{self, Atom};
use crate::numbers;
use crate::scan::QUIET;
use crate::store::StoreError;
use crate::tree::{self, Tree};

use super::{Candidate, Claimed, Layout, Proof, Reader, Verdict};

const METADATA: &str = ".metadata";

pub(super) fn claim(tree: &Tree, claimed: &mut Claimed) {
    let found: Vec<_> = tree.directories().filter(|path| is_dcp(tree, path)).map(str::to_owned).collect();
    for path in found {
        if !claimed.covers(&path) {
            let mut candidate = Candidate::directory(Layout::Dcp, tree, &path);
            // A program that saves right into the place: only what is its own may be moved.
            if path.is_empty() {
                let is_its_own = |file: &String| file == METADATA || file.ends_with(".distcp");
                candidate.files.retain(is_its_own);
                candidate.roots.clone_from(&candidate.files);
            }
            claimed.take(candidate);
        }
    }
}

pub(super) fn is_dcp(tree: &Tree, path: &str) -> bool {
    tree.names(path).any(|name| name.ends_with(".distcp"))
}

pub(super) fn judge(candidate: &Candidate, reader: &Reader<'_>) -> Result<Verdict, StoreError> {
    let numbers = numbers::of_name(candidate.name());
    Ok(match shards_are_there(&candidate.path, reader)? {
        Shards::Whole => Verdict::proven(numbers),
        Shards::Believed => Verdict::Complete { numbers, proof: Proof::Quiet },
        Shards::Lacking(verdict) => verdict,
    })
}

pub(super) enum Shards {
    Whole,
    Believed,
    Lacking(Verdict),
}

/// Compares the shards with what `.metadata` says about them.
pub(super) fn shards_are_there(directory: &str, reader: &Reader<'_>) -> Result<Shards, StoreError> {
    let metadata = tree::join(directory, METADATA);
    let Some(size) = reader.size(&metadata) else {
        return Ok(Shards::Lacking(reader.lacking(&metadata, format!("{METADATA} is missing"))));
    };
    // Too large to be read: the shards are believed.
    if size > READ_WHOLE {
        return Ok(Shards::Believed);
    }
    let Some(ends) = ends_of_shards(&reader.store.read(&metadata, 0..size)?) else {
        return Ok(Shards::Lacking(Verdict::Partial(format!("{METADATA} is cut off"))));
    };
    // Copies in a bucket have the times at which they came; and nobody saves again what says how far it is.
    if reader.store.renames_at_once()
        && numbers::of_name(tree::name(directory)).is_empty()
        && let Some(name) = of_a_later_save(directory, &metadata, ends.keys(), reader)
    {
        return Ok(Shards::Lacking(Verdict::Unclear(format!(
            "{name} is newer than {METADATA}, which is written last, and others are not, as if it were of two saves (if it is whole and \
             was copied here, touch {METADATA})"
        ))));
    }
    for (name, end) in ends {
        let path = tree::join(directory, &name);
        let verdict = match reader.size(&path) {
            None => reader.lacking(&path, format!("{name} is missing")),
            Some(size) if size < end => Verdict::Partial(format!("{name} is cut off")),
            Some(_) => continue,
        };
        return Ok(Shards::Lacking(verdict));
    }
    Ok(Shards::Whole)
}

/// A shard of a later save than what is beside it: a program that saves into the same directory again was killed, or is at it. Where all
/// are newer than `.metadata`, they are of one save, or were copied.
fn of_a_later_save<'a>(
    directory: &str,
    metadata: &str,
    shards: impl Iterator<Item = &'a String>,
    reader: &Reader<'_>,
) -> Option<&'a String> {
    let time = |path: &str| reader.tree.get(path)?.modified;
    let written = time(metadata)?;
    let (newer, older): (Vec<_>, Vec<_>) = shards
        .filter_map(|name| Some((time(&tree::join(directory, name))?, name)))
        .partition(|(time, _)| *time > written);
    // Clocks differ a little.
    let is_clearly = |time: Timestamp| time.duration_since(written).unsigned_abs() > QUIET;
    let newest = newer.into_iter().max()?;
    (is_clearly(newest.0) && !older.is_empty()).then_some(newest.1)
}

/// How long each shard must be: the metadata has a record of `relative_path`, `offset` and `length` for each tensor.
fn ends_of_shards(metadata: &[u8]) -> Option<BTreeMap<String, u64>> {
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    let mut key = String::new();
    let mut shard = None;
    let mut offset = 0;
    pickle::walk(metadata, |_, atom| match (key.as_str(), atom) {
        ("relative_path", Atom::Text(path)) => {
            ends.entry(path.clone()).or_default();
            shard = Some(path.clone());
            key.clear();
        }
        ("offset", Atom::Integer(value)) => {
            offset = u64::try_from(*value).unwrap_or_default();
            key.clear();
        }
        ("length", Atom::Integer(value)) => {
            let end = offset.saturating_add(u64::try_from(*value).unwrap_or_default());
            if let Some(least) = shard.take().and_then(|shard| ends.get_mut(&shard)) {
                *least = end.max(*least);
            }
            key.clear();
        }
        (_, Atom::Text(text)) => key.clone_from(text),
        _ => key.clear(),
    })?;
    Some(ends)
}
