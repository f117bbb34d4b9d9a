//! DeepSpeed: `global_step30/` or another tag, and beside it a file `latest` that names the newest complete one.

use crate::formats::Wholeness;
use crate::numbers;
use crate::store::StoreError;
use crate::tree::{self, Tree};

use super::{Candidate, Claimed, Layout, Pointer, Reader, Verdict, content, huggingface_parent};

pub(super) const LATEST: &str = "latest";

/// The tag of all that Lightning saves.
const LIGHTNINGS: &str = "checkpoint";

pub(super) fn claim(tree: &Tree, claimed: &mut Claimed) {
    let found: Vec<_> =
        tree.directories().filter(|path| is_deepspeed(tree, path)).map(str::to_owned).collect();
    for path in found {
        if !claimed.covers(&path) {
            let latest = tree::join(tree::parent(&path), LATEST);
            let whole = whole(tree, &path);
            claimed.take(Candidate::directory(Layout::DeepSpeed, tree, whole).witnessed_by(latest));
        }
    }
}

/// What a program is given for a directory of states. Lightning makes a directory of its own for each save, which is numbered, and has one of
/// them in it, always with the same tag: `epoch=2-step=300.ckpt/checkpoint/`.
fn whole<'a>(tree: &Tree, states: &'a str) -> &'a str {
    let above = tree::parent(states);
    let is_lightnings = tree::name(states) == LIGHTNINGS
        && !numbers::of_name(tree::name(above)).is_empty()
        && tree.children(above).filter(|entry| is_deepspeed(tree, &entry.path)).count() == 1;
    if is_lightnings { above } else { states }
}

/// Where the states of a candidate are.
fn states_of(candidate: &Candidate, tree: &Tree) -> String {
    let inside = tree::join(&candidate.path, LIGHTNINGS);
    if is_deepspeed(tree, &inside) { inside } else { candidate.path.clone() }
}

fn is_deepspeed(tree: &Tree, path: &str) -> bool {
    let has_states = tree.names(path).any(is_of_states);
    // Inside of a checkpoint of the Trainer it is a part of that.
    has_states && !path.is_empty() && !huggingface_parent(path)
}

/// Is this a name of one of its files?
pub(super) fn is_of_states(name: &str) -> bool {
    name.ends_with("_model_states.pt") || name.ends_with("_optim_states.pt")
}

/// The file `latest` as it is when this is the newest.
pub(super) fn pointer_to(path: &str) -> (String, String) {
    (tree::join(tree::parent(path), LATEST), tree::name(path).to_owned())
}

pub(super) fn judge(candidate: &Candidate, reader: &Reader<'_>) -> Result<Verdict, StoreError> {
    let numbers = numbers::of_name(candidate.name());
    let states = states_of(candidate, reader.tree);
    let (parent, tag) = (tree::parent(&states), tree::name(&states));
    let mut doubt = None;
    match reader.pointer(&tree::join(parent, LATEST))? {
        // A program may have asked not to have that file, and then nothing tells.
        Pointer::Missing => {
            return Ok(Verdict::Unclear(format!("the file `{LATEST}`, which would name it, is missing")));
        }
        Pointer::Names(latest) if latest == tag => {}
        Pointer::Names(latest) if !latest.contains('/') => {
            let reached = numbers::of_name(&latest).step;
            match (numbers.step, reached) {
                (Some(step), Some(reached)) if step > reached => {
                    if let Some(missing) = reader.missing_beside(candidate, &tree::join(parent, &latest)) {
                        return Ok(Verdict::Partial(missing));
                    }
                    doubt = Some(format!("the file `{LATEST}` names {latest}, which is older"));
                }
                (Some(_), Some(_)) => {}
                _ => return Ok(Verdict::Unclear(format!("the file `{LATEST}` names {latest}"))),
            }
        }
        Pointer::Names(_) | Pointer::Unreadable => {
            // Whoever wrote that file came to the end of all saves before the last.
            let beside = reader.tree.children(parent);
            let highest = beside
                .filter(|entry| is_deepspeed(reader.tree, &entry.path))
                .filter_map(|entry| numbers::of_name(tree::name(&entry.path)).step)
                .max();
            if numbers.step >= highest || numbers.step.is_none() {
                return Ok(Verdict::Unclear(format!(
                    "the file `{LATEST}`, which would name it, does not read"
                )));
            }
        }
    }
    for path in candidate.files.iter().filter(|path| content::ending(path) == "pt") {
        if let Wholeness::Cut(why) = content::judge(reader, path)?.wholeness {
            return Ok(Verdict::Partial(format!("{}: {why}", tree::name(path))));
        }
    }
    // Somebody may have gone back by hand: what may be good is not moved aside.
    Ok(doubt.map_or(Verdict::proven(numbers), Verdict::Unclear))
}

pub(super) fn named_as_latest(reader: &Reader<'_>, directory: &str) -> Option<String> {
    reader.small_text(&tree::join(directory, LATEST)).filter(|name| !name.contains('/'))
}
