//! What the agent does to storage: partial checkpoints out of the way, old ones away.
//!
//! Both are refused by storage now and then, which is a problem to be told and never a reason to stop.

use std::collections::BTreeSet;

use crate::layouts::{Candidate, is_written_last};
use crate::numbers;
use crate::scan::{Checkpoint, Survey};
use crate::store::{Kind, QUARANTINE, Store, StoreError};

/// Moves partial checkpoints aside, so that programs that load the newest without a check do not trip over them.
///
/// Only to be called when nobody can be writing them.
pub fn quarantine(store: &dyn Store, survey: &Survey) -> Vec<String> {
    let mut problems = Vec::new();
    for (candidate, why) in &survey.partial {
        match move_aside(store, survey, candidate) {
            Ok(()) | Err(StoreError::Vanished(_)) => {}
            Err(error) => {
                problems.push(format!(
                    "{} is partial ({why}) and cannot be moved aside: {error}",
                    candidate.path
                ));
            }
        }
    }
    problems
}

fn move_aside(store: &dyn Store, survey: &Survey, candidate: &Candidate) -> Result<(), StoreError> {
    let leads_there =
        |kind: &Kind| matches!(kind, Kind::Link { target: Some(target) } if candidate.roots.contains(target));
    let links = survey.tree.entries().filter(|entry| leads_there(&entry.kind)).map(|entry| &entry.path);
    for path in candidate.roots.iter().chain(links) {
        let mut to = format!("{QUARANTINE}/{path}");
        let mut number = 1;
        while store.exists(&to)? {
            number += 1;
            to = format!("{QUARANTINE}/{path}.{number}");
        }
        store.rename(path, &to)?;
    }
    Ok(())
}

/// Removes complete checkpoints that are older than the newest `keep`. All are kept if that is 0.
///
/// `protected` are paths that are never removed, such as that which this attempt resumed from.
pub fn retain(store: &dyn Store, survey: &Survey, keep: usize, protected: &BTreeSet<String>) -> Vec<String> {
    if keep == 0 {
        return Vec::new();
    }
    // Whoever resumed from an older checkpoint by hand writes lower steps now: what was written last is kept, too.
    // Of several that have the same time, that is the newest, which is kept anyway.
    let written_last = survey.complete.iter().rev().max_by_key(|checkpoint| checkpoint.time);
    let mut problems = Vec::new();
    for checkpoint in survey.complete.iter().filter(|checkpoint| is_one_of_many(checkpoint)).skip(keep) {
        let path = &checkpoint.candidate.path;
        let is_last = written_last.is_some_and(|last| last.candidate.path == *path);
        let is_protected = is_last || protected.contains(path);
        let is_protected =
            is_protected || checkpoint.candidate.roots.iter().any(|root| protected.contains(root));
        if is_protected {
            continue;
        }
        if let Err(error) = remove(store, &checkpoint.candidate)
            && !matches!(error, StoreError::Vanished(_))
        {
            problems.push(format!("the old checkpoint {path} cannot be removed: {error}"));
        }
    }
    problems
}

/// One of a row, by its name. `best.pt` and `final.pt` are kept for another reason than to resume from.
fn is_one_of_many(checkpoint: &Checkpoint) -> bool {
    let name = checkpoint.candidate.name().to_lowercase();
    let is_special =
        ["best", "final", "last", "latest", "pretrained", "initial"].iter().any(|word| name.contains(word));
    !numbers::of_name(&name).is_empty() && !is_special
}

pub(crate) fn remove(store: &dyn Store, candidate: &Candidate) -> Result<(), StoreError> {
    let mut roots: Vec<&String> = candidate.roots.iter().collect();
    roots.sort_by_key(|path| !is_written_last(path));
    for root in roots {
        let is_inside = |path: &&str| {
            *path == root || path.strip_prefix(root.as_str()).is_some_and(|p| p.starts_with('/'))
        };
        let mut files: Vec<&str> = candidate.files.iter().map(String::as_str).filter(is_inside).collect();
        files.sort_by_key(|path| !is_written_last(path));
        store.remove(root, &files)?;
    }
    Ok(())
}
