//! Plain files and directories of any program, known by their names only.
//!
//! A name has to say that it is a checkpoint and how far it is. Where the format can be checked it is; where not, a
//! file that does not change any more has to be believed.

use std::collections::HashSet;

use crate::formats::{Wholeness, json};
use crate::numbers::{self, Numbers};
use crate::store::{Entry, Kind, StoreError};
use crate::tree::{self, Tree};
use crate::upkeep;

use super::content::{self, ending};
use super::{Candidate, Claimed, Layout, Proof, Reader, Verdict, is_unfinished};

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
        let is_known =
            is_only || ENDINGS.contains(&ending.as_str()) || ending == LIGHTGBM || ending.is_empty();
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
    // Not beside what may be a note itself.
    let is_checkpoint = |candidate: &&Candidate| {
        let name = candidate.name();
        let ending = ending(name);
        let may_be_note = ending == LIGHTGBM || (ending.is_empty() && !is_flax(name));
        ending != "json" && !(candidate.is_one_file() && may_be_note)
    };
    let others: HashSet<_> = claimed.candidates.iter().filter(is_checkpoint).map(key).collect();
    let has_other = |candidate: &&Candidate| is_loose_json(candidate) && others.contains(&key(candidate));
    claimed.candidates.iter().filter(has_other).map(|candidate| shape(&candidate.path)).collect()
}

fn is_loose_json(candidate: &Candidate) -> bool {
    candidate.layout == Layout::Files && ending(&candidate.path) == "json" && candidate.is_one_file()
}

/// A path with its numbers left out of the name.
fn shape(path: &str) -> String {
    tree::join(tree::parent(path), &numbers::shape(tree::name(path)).series)
}

pub(super) fn may_be_state(path: &str) -> bool {
    ENDINGS.contains(&ending(path).as_str())
}

/// A directory that is named like a checkpoint, with files in it that could be parts of one, or a directory for each rank: none says by
/// itself how far it is.
fn is_bundle(tree: &Tree, path: &str) -> bool {
    let name = tree::name(path);
    if !is_numbered(name) || numbers::is_setting(name) {
        return false;
    }
    let inside = |entry: &Entry| entry.path.get(path.len() + 1..).unwrap_or_default().to_owned();
    let files: Vec<String> = tree.files_below(path).iter().map(|entry| inside(entry)).collect();
    let is_of_ranks = |directory: &str| {
        directory.is_empty() || directory.split('/').all(|name| !numbers::shape(name).ranks.is_empty())
    };
    // What is no state, and notes about it, may be called anything.
    let states: Vec<&String> = files
        .iter()
        .filter(|file| may_be_state(file) && (ending(file) != "json" || numbers::is_part(tree::name(file))))
        .collect();
    // A number alone may be that of a run, which keeps its best.
    if !numbers::is_explicit(name) && states.iter().any(|file| upkeep::is_special(file)) {
        return false;
    }
    // `model_1.pt` and `model_2.pt` may be parts of what is in a row of such directories, or a row themselves.
    let is_plain = |name: &str| !is_numbered(name);
    let may_have_parts = numbers::is_explicit(name) && (numbers::is_pure(name) || has_siblings(tree, path));
    let is_part = if may_have_parts { numbers::is_part } else { is_plain };
    states.iter().any(|file| is_of_ranks(tree::parent(file)))
        && states.iter().all(|file| file.split('/').all(is_part))
}

/// Is it one of a row of directories?
fn has_siblings(tree: &Tree, path: &str) -> bool {
    let row = numbers::row(path);
    let is_sibling = |entry: &Entry| {
        entry.kind == Kind::Directory && entry.path != path && numbers::row(&entry.path) == row
    };
    tree.children(tree::parent(path)).any(is_sibling)
}

/// What `flax.training.checkpoints` saved before it used Orbax: msgpack in a file without an ending, which gets its name by a
/// rename.
fn is_flax(name: &str) -> bool {
    let digits = name.strip_prefix("checkpoint_").unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_numbered(name: &str) -> bool {
    !numbers::of_name(name).is_empty() && !is_unfinished(name)
}

/// Is there another file in the same directory that may be as good without this one?
fn is_one_of_several(candidate: &Candidate, path: &str) -> bool {
    let is_numbered = is_numbered(tree::name(path));
    let may_stand_alone = |other: &&String| {
        let is_alike = is_numbered && shape(other) == shape(path);
        *other != path && (is_alike || upkeep::is_special(other) && may_be_state(other))
    };
    candidate.files.iter().any(|other| may_stand_alone(&other))
}

pub(super) fn judge(
    candidate: &Candidate,
    reader: &Reader<'_>,
    is_only: bool,
) -> Result<Verdict, StoreError> {
    let mut inside = Numbers::default();
    let mut proof = Proof::Content;
    let is_directory = !candidate.is_one_file();
    let is_nameless = !is_directory && ending(candidate.name()).is_empty();
    for path in &candidate.files {
        let judged = content::judge(reader, path)?;
        match judged.wholeness {
            Wholeness::Whole => {}
            Wholeness::Other if !is_directory && ending(path) == LIGHTGBM => return Ok(Verdict::Foreign),
            Wholeness::Other if is_only => proof = Proof::Quiet,
            Wholeness::Other if ending(path) == "json" && json::is_lines(reader.store, path)? => {
                proof = Proof::Quiet;
            }
            Wholeness::Other if let Some(promised) = content::promised(path) => {
                let which = if is_directory { tree::name(path) } else { "it" };
                return Ok(Verdict::Unclear(format!("{which} is not {promised}")));
            }
            Wholeness::Cut(_) | Wholeness::Other if is_nameless && content::is_note(reader, path)? => {
                return Ok(Verdict::Foreign);
            }
            Wholeness::Other if is_nameless && !is_flax(candidate.name()) => {
                return Ok(Verdict::Unclear("its name does not say of what kind".to_owned()));
            }
            Wholeness::Likely | Wholeness::Other => proof = Proof::Quiet,
            // An empty file among others can be a mark of its program's.
            Wholeness::Cut(_) if is_directory && reader.size(path) == Some(0) && !may_be_state(path) => {
                proof = Proof::Quiet;
            }
            // Of several that are numbered, or kept for another reason, the others may be good by themselves.
            Wholeness::Cut(why) if is_directory && is_one_of_several(candidate, path) => {
                return Ok(Verdict::Unclear(format!(
                    "of what is in it, {} is partial ({why})",
                    tree::name(path)
                )));
            }
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
    Ok(Verdict::Complete { numbers: numbers::of_path(&candidate.path).or(inside), proof })
}
