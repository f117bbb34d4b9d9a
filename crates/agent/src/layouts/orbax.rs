//! Orbax: `<step>/`, which gets its name by a rename when it is complete. In buckets, where nothing can be renamed, a file
//! `commit_success.txt` is written last.

use crate::formats::{Wholeness, json};
use crate::numbers;
use crate::store::{Kind, StoreError};
use crate::tree::{self, Tree};

use super::{Candidate, Claimed, Layout, Reader, Verdict};

const METADATA: &str = "_CHECKPOINT_METADATA";
const COMMITTED: &str = "commit_success.txt";
const UNFINISHED: &str = ".orbax-checkpoint-tmp";

/// What is in a checkpoint of Orbax, or in one of its items.
const MARKS: [&str; 6] = [METADATA, COMMITTED, "_METADATA", "_sharding", "manifest.ocdbt", "array_metadatas"];

pub(super) fn claim(tree: &Tree, claimed: &mut Claimed) {
    let found: Vec<_> = tree.directories().filter(|path| is_orbax(tree, path)).map(str::to_owned).collect();
    for path in found {
        if !claimed.covers(&path) {
            claimed.take(Candidate::directory(Layout::Orbax, tree, &path));
        }
    }
}

fn is_orbax(tree: &Tree, path: &str) -> bool {
    let name = tree::name(path);
    if name.contains(UNFINISHED) {
        return true;
    }
    let has_mark = |path: &str| tree.names(path).any(|name| MARKS.contains(&name));
    let is_item = |entry: &&crate::store::Entry| entry.kind == Kind::Directory;
    numbers::of_name(name).step.is_some()
        && (has_mark(path) || tree.children(path).filter(is_item).any(|entry| has_mark(&entry.path)))
}

pub(super) fn judge(candidate: &Candidate, reader: &Reader<'_>) -> Result<Verdict, StoreError> {
    if let Some(unfinished) = candidate.files.iter().find(|path| path.contains(UNFINISHED)) {
        return Ok(Verdict::Partial(format!("{unfinished} was not finished")));
    }
    if candidate.path.contains(UNFINISHED) {
        return Ok(Verdict::Partial("it was not finished".to_owned()));
    }
    let numbers = numbers::of_name(candidate.name());
    if reader.size(&tree::join(&candidate.path, COMMITTED)).is_some() {
        return Ok(Verdict::proven(numbers));
    }
    if !reader.store.renames_at_once() {
        return Ok(Verdict::Partial(format!("{COMMITTED} is missing")));
    }
    let metadata = tree::join(&candidate.path, METADATA);
    let Some(size) = reader.size(&metadata) else {
        // Versions of long ago did not write it, and what has its name here was renamed when it was complete.
        return Ok(Verdict::Unclear(format!("{METADATA} is missing")));
    };
    Ok(match json::read(reader.store, &metadata, size)?.0 {
        Wholeness::Whole | Wholeness::Likely => Verdict::proven(numbers),
        Wholeness::Cut(why) => Verdict::Partial(format!("{METADATA}: {why}")),
        Wholeness::Other => Verdict::Partial(format!("{METADATA} does not read")),
    })
}
