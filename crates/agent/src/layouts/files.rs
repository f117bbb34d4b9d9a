//! Plain files and directories of any program, known by their names only.
//!
//! A name has to say that it is a checkpoint and how far it is. Where the format can be checked it is; where not, a
//! file that does not change any more has to be believed.

use std::collections::HashSet;

use crate::formats::Wholeness;
use crate::numbers::{self, Numbers};
use crate::store::{Entry, StoreError};
use crate::tree::{self, Tree};

use super::content::{self, ending};
use super::{Candidate, Claimed, Layout, Proof, Reader, Verdict, is_unfinished_name};

/// Endings of what programs save their state in.
const ENDINGS: [&str; 20] = [
    "json",
    "npz",
    "npy",
    "pkl",
    "pickle",
    "h5",
    "hdf5",
    "keras",
    "safetensors",
    "msgpack",
    "joblib",
    "params",
    "pdparams",
    "pdopt",
    "model",
    "ckpt",
    "pt",
    "pth",
    "bin",
    "ubj",
];

/// What LightGBM saves its models as, and others their notes.
const LIGHTGBM: &str = "txt";

pub(super) fn claim_directories(tree: &Tree, claimed: &mut Claimed) {
    let directories: Vec<_> =
        tree.directories().filter(|path| is_bundle(tree, path)).map(str::to_owned).collect();
    for path in directories {
        if !claimed.covers(&path) {
            claimed.take(Candidate::directory(Layout::Files, tree, &path));
        }
    }
}

pub(super) fn claim_files(tree: &Tree, claimed: &mut Claimed, is_only: bool) {
    for entry in tree.entries().filter(|entry| entry.is_file()) {
        let name = tree::name(&entry.path);
        let ending = ending(name);
        let is_known = is_only || ENDINGS.contains(&ending.as_str()) || ending == LIGHTGBM || is_flax(name);
        if is_known && is_numbered(name) && !name.starts_with('.') && !claimed.covers(&entry.path) {
            claimed.take(Candidate::file(Layout::Files, &entry.path));
        }
    }
    let notes = notes(claimed);
    let is_note = |candidate: &Candidate| is_loose_json(candidate) && notes.contains(&shape(&candidate.path));
    claimed.candidates.retain(|candidate| !is_note(candidate));
}

/// What programs write about their checkpoints: `metrics-epoch-3.json` beside `epoch-3.pt`. Once one is seen beside its
/// checkpoint, others of its kind are known, also when theirs is not there yet, or not any more.
fn notes(claimed: &Claimed) -> HashSet<String> {
    let key = |candidate: &Candidate| {
        (tree::parent(&candidate.path).to_owned(), numbers::of_name(candidate.name()))
    };
    let others: HashSet<_> =
        claimed.candidates.iter().filter(|candidate| ending(candidate.name()) != "json").map(key).collect();
    let has_other = |candidate: &&Candidate| is_loose_json(candidate) && others.contains(&key(candidate));
    claimed.candidates.iter().filter(has_other).map(|candidate| shape(&candidate.path)).collect()
}

fn is_loose_json(candidate: &Candidate) -> bool {
    candidate.layout == Layout::Files
        && ending(&candidate.path) == "json"
        && candidate.files.as_slice() == [candidate.path.as_str()]
}

/// A path with its numbers left out of the name.
fn shape(path: &str) -> String {
    let name: Vec<&str> =
        tree::name(path).split(|c: char| c.is_ascii_digit()).filter(|s| !s.is_empty()).collect();
    tree::join(tree::parent(path), &name.join("0"))
}

/// A directory that is named like a checkpoint, with files in it that could be parts of one: they have no numbers of their
/// own, and nothing else is in it.
fn is_bundle(tree: &Tree, path: &str) -> bool {
    let is_part = |entry: &Entry| {
        let is_known = ENDINGS.contains(&ending(&entry.path).as_str());
        entry.is_file() && is_known && !is_numbered(tree::name(&entry.path))
    };
    is_numbered(tree::name(path))
        && tree.children(path).any(is_part)
        && !tree.files_below(path).iter().any(|entry| is_numbered(tree::name(&entry.path)))
}

/// What `flax.training.checkpoints` saved before it used Orbax: msgpack in a file without an ending, which gets its name by a
/// rename.
fn is_flax(name: &str) -> bool {
    let digits = name.strip_prefix("checkpoint_").unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_numbered(name: &str) -> bool {
    !numbers::of_name(name).is_empty() && !is_unfinished_name(name)
}

pub(super) fn judge(candidate: &Candidate, reader: &Reader<'_>) -> Result<Verdict, StoreError> {
    let mut inside = Numbers::default();
    let mut proof = Proof::Content;
    let is_directory = candidate.files.len() != 1 || candidate.files[0] != candidate.path;
    for path in &candidate.files {
        let judged = content::judge(reader, path)?;
        match judged.wholeness {
            Wholeness::Whole => {}
            Wholeness::Other if !is_directory && ending(path) == LIGHTGBM => return Ok(Verdict::Foreign),
            Wholeness::Likely | Wholeness::Other => proof = Proof::Quiet,
            // An empty file among others can be a mark of its program's.
            Wholeness::Cut(_) if is_directory && reader.size(path) == Some(0) => proof = Proof::Quiet,
            Wholeness::Cut(why) if is_directory => {
                return Ok(Verdict::Partial(format!("{}: {why}", tree::name(path))));
            }
            Wholeness::Cut(why) => return Ok(Verdict::Partial(why)),
        }
        inside = inside.or(judged.numbers);
    }
    // More files may be to come.
    if is_directory {
        proof = Proof::Quiet;
    }
    Ok(Verdict::Complete { numbers: numbers::of_name(candidate.name()).or(inside), proof })
}
