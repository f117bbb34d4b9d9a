//! Megatron: `iter_0000100/`, and beside it `latest_checkpointed_iteration.txt`, which is written when it is complete.

use crate::formats::Wholeness;
use crate::numbers::Numbers;
use crate::store::{Kind, StoreError};
use crate::tree::{self, Tree};

use super::dcp::{self, Shards};
use super::{Candidate, Claimed, Layout, Pointer, Reader, Verdict, content};

pub(super) const TRACKER: &str = "latest_checkpointed_iteration.txt";

pub(super) fn claim(tree: &Tree, claimed: &mut Claimed, is_only: bool) {
    let is_named = |path: &&str| iteration(tree::name(path)).is_some();
    let is_megatrons = |path: &&str| is_named(path) && (is_only || is_megatron(tree, path));
    let found: Vec<_> = tree.directories().filter(is_megatrons).map(str::to_owned).collect();
    for path in found {
        if !claimed.covers(&path) {
            let tracker = tree::join(tree::parent(&path), TRACKER);
            claimed.take(Candidate::directory(Layout::Megatron, tree, &path).witnessed_by(tracker));
        }
    }
}

/// Any program may call its directories so.
fn is_megatron(tree: &Tree, path: &str) -> bool {
    let is_its_own = |name: &str| name.starts_with("mp_rank_") || name == "common.pt";
    tree.get(&tree::join(tree::parent(path), TRACKER)).is_some() || tree.names(path).any(is_its_own)
}

pub(super) fn judge(candidate: &Candidate, reader: &Reader<'_>) -> Result<Verdict, StoreError> {
    let step = iteration(candidate.name());
    let parent = tree::parent(&candidate.path);
    let pointer = reader.pointer(&tree::join(parent, TRACKER))?;
    let latest = match &pointer {
        Pointer::Names(text) => text.parse::<i64>().ok(),
        Pointer::Missing | Pointer::Unreadable => None,
    };
    // Whoever wrote that file came to the end of all saves before the last.
    let beside = reader.tree.children(parent).filter(|entry| entry.kind == Kind::Directory);
    let highest = beside.filter_map(|entry| iteration(tree::name(&entry.path))).max();
    let unknown = |what: &str| Some(format!("{TRACKER}, which would tell whether it is complete, {what}"));
    let doubt = match (pointer, latest) {
        (Pointer::Missing, _) => unknown("is missing"),
        (_, Some(latest)) if step > Some(latest) => {
            if let Some(missing) =
                reader.missing_beside(candidate, &tree::join(parent, &directory_of(latest)))
            {
                return Ok(Verdict::Partial(missing));
            }
            Some(format!("{TRACKER} has come to {latest} only"))
        }
        (_, None) if step >= highest => unknown("does not read"),
        _ => None,
    };
    // The older ones were complete once, but programs remove them, and a removal can be cut off, too.
    if dcp::is_dcp(reader.tree, &candidate.path)
        && let Shards::Lacking(verdict) = dcp::shards_are_there(&candidate.path, reader)?
    {
        return Ok(verdict);
    }
    if candidate.files.is_empty() {
        return Ok(Verdict::Partial("it is empty".to_owned()));
    }
    for path in candidate.files.iter().filter(|path| content::ending(path) == "pt") {
        if let Wholeness::Cut(why) = content::judge(reader, path)?.wholeness {
            return Ok(Verdict::Partial(format!("{}: {why}", tree::name(path))));
        }
    }
    // Somebody may have gone back by hand: what may be good is not moved aside.
    Ok(doubt.map_or(Verdict::proven(Numbers { step, epoch: None }), Verdict::Unclear))
}

/// 100 for `iter_0000100`.
fn iteration(name: &str) -> Option<i64> {
    let digits = name.strip_prefix("iter_").filter(|digits| digits.len() == 7)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn directory_of(iteration: i64) -> String {
    format!("iter_{iteration:07}")
}

/// The tracker as it is when this is the newest.
pub(super) fn pointer_to(path: &str) -> Option<(String, String)> {
    let iteration = iteration(tree::name(path))?;
    Some((tree::join(tree::parent(path), TRACKER), iteration.to_string()))
}

pub(super) fn named_as_latest(reader: &Reader<'_>, directory: &str) -> Option<String> {
    let text = reader.small_text(&tree::join(directory, TRACKER))?;
    text.parse().ok().map(directory_of)
}
