//! Orbax: `<step>/`, which gets its name by a rename when it is complete. In buckets, where nothing can be renamed, and where a
//! program asks for it, it has its name from the beginning, and a file `commit_success.txt` is written last. In both cases
//! the time of the commit is noted in `_CHECKPOINT_METADATA`, which is there from the beginning.

use crate::formats::json::{self, Sketch};
use crate::formats::{Wholeness, u64_at};
use crate::numbers;
use crate::store::{Kind, StoreError};
use crate::tree::{self, Tree};

use super::{Candidate, Claimed, Layout, Proof, Reader, Verdict};

const METADATA: &str = "_CHECKPOINT_METADATA";
const COMMITTED: &str = "commit_success.txt";
const MANIFEST: &str = "manifest.ocdbt";
const DATA: &str = "d";
const UNFINISHED: &str = ".orbax-checkpoint-tmp";

/// What is in a checkpoint of Orbax, or in one of its items.
const MARKS: [&str; 6] = [METADATA, COMMITTED, "_METADATA", "_sharding", MANIFEST, "array_metadatas"];

pub(super) fn claim(tree: &Tree, claimed: &mut Claimed) {
    let found: Vec<_> = tree.directories().filter(|path| is_orbax(tree, path)).map(str::to_owned).collect();
    for path in found {
        // What it has not finished is told by its name, and is moved aside: nobody renames it any more.
        let is_taken =
            if tree::name(&path).contains(UNFINISHED) { claimed.has(&path) } else { claimed.covers(&path) };
        if !is_taken {
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

pub(super) fn judge(
    candidate: &Candidate,
    reader: &Reader<'_>,
    is_only: bool,
) -> Result<Verdict, StoreError> {
    if let Some(unfinished) = candidate.files.iter().find(|path| path.contains(UNFINISHED)) {
        return Ok(Verdict::Partial(format!("{unfinished} was not finished")));
    }
    if candidate.path.contains(UNFINISHED) {
        return Ok(Verdict::Partial("it was not finished".to_owned()));
    }
    if let Some(damage) = damage(candidate, reader)? {
        return Ok(Verdict::Partial(damage));
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
        // Versions of long ago did not write it, and what has its name here was renamed when it was complete. Another program may not.
        return Ok(if is_only {
            Verdict::Complete { numbers, proof: Proof::Quiet }
        } else {
            Verdict::Unclear(format!("{METADATA} is missing"))
        });
    };
    let (wholeness, sketch) = json::read(reader.store, &metadata, size)?;
    let time = |key: &str| sketch.as_ref().and_then(|sketch| sketch.get(key)).and_then(Sketch::integer);
    Ok(match wholeness {
        Wholeness::Whole | Wholeness::Likely
            if time("init_timestamp_nsecs").is_some() && time("commit_timestamp_nsecs").is_none() =>
        {
            Verdict::Partial(format!("{METADATA} has no time of its commit"))
        }
        Wholeness::Whole | Wholeness::Likely => Verdict::proven(numbers),
        Wholeness::Cut(why) => Verdict::Partial(format!("{METADATA}: {why}")),
        Wholeness::Other => Verdict::Partial(format!("{METADATA} does not read")),
    })
}

/// What a machine that lost power has left of files that were committed, as far as it can be seen. The arrays are in files that
/// tell nothing about themselves.
fn damage(candidate: &Candidate, reader: &Reader<'_>) -> Result<Option<String>, StoreError> {
    for path in &candidate.files {
        let size = reader.size(path).unwrap_or_default();
        let name = tree::name(path);
        let wholeness = match name {
            "_METADATA" | "_sharding" | METADATA => json::read(reader.store, path, size)?.0,
            MANIFEST => manifest(reader, path, size)?,
            _ if size == 0 && is_data(tree::parent(path), reader.tree) => {
                Wholeness::Cut("it is empty".to_owned())
            }
            _ => Wholeness::Other,
        };
        if let Wholeness::Cut(why) = wholeness {
            return Ok(Some(format!("{path}: {why}")));
        }
    }
    // The arrays of an item are found by its manifest.
    let is_data =
        |entry: &&crate::store::Entry| entry.kind == Kind::Directory && is_data(&entry.path, reader.tree);
    let below = format!("{}/", candidate.path);
    let data = reader.tree.entries().filter(is_data).filter(|entry| entry.path.starts_with(&below));
    let mut manifests = data.map(|entry| tree::join(tree::parent(&entry.path), MANIFEST));
    Ok(manifests.find(|path| reader.size(path).is_none()).map(|path| format!("{path} is missing")))
}

/// Is it where the arrays of an item, or of one of its writers, are? An item may be called so itself.
fn is_data(path: &str, tree: &Tree) -> bool {
    const ITEMS: [&str; 3] = ["_METADATA", "_sharding", "array_metadatas"];
    let item = tree::parent(path);
    let is_item = tree.names(item).any(|name| ITEMS.contains(&name));
    tree::name(path) == DATA && (is_item || tree::name(item).starts_with("ocdbt.process_"))
}

/// OCDBT writes the length of its manifest into it, behind four bytes by which it is known.
fn manifest(reader: &Reader<'_>, path: &str, size: u64) -> Result<Wholeness, StoreError> {
    const KNOWN_BY: [u8; 4] = [0x0c, 0xdb, 0x3a, 0x2a];
    let head = reader.store.read(path, 0..size.min(12))?;
    if !head.starts_with(&KNOWN_BY[..head.len().min(4)]) {
        return Ok(Wholeness::Other);
    }
    let is_whole = u64_at(&head, 4) == Some(size);
    Ok(if is_whole { Wholeness::Whole } else { Wholeness::Cut("it is not as long as it says".to_owned()) })
}
