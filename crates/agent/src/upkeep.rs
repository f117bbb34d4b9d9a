//! What the agent does to storage: partial checkpoints out of the way, old ones away.
//!
//! Both are refused by storage now and then, which is a problem to be told and never a reason to stop.

use std::collections::BTreeSet;

use crate::layouts::{self, Candidate, is_written_last};
use crate::numbers::{self, Numbers};
use crate::scan::{Checkpoint, Place, Survey};
use crate::store::{Kind, QUARANTINE, Store, StoreError};
use crate::tree;

/// Moves partial checkpoints aside, so that programs that load the newest without a check do not trip over them.
///
/// Only to be called when nobody can be writing them.
pub fn quarantine(store: &dyn Store, survey: &Survey) -> Vec<String> {
    let mut problems = Vec::new();
    // What looks like a part of one and a part of another belongs to the one that is complete.
    let sound: BTreeSet<&str> = files_of(survey.complete.iter());
    let is_apart = |candidate: &Candidate| !candidate.files.iter().any(|file| sound.contains(file.as_str()));
    for (candidate, why) in survey.partial.iter().filter(|(candidate, _)| is_apart(candidate)) {
        let path = &candidate.path;
        // In this order: what is cut short here is found again, and done again, at the next look.
        let moved = repoint(store, survey, candidate).and_then(|()| move_aside(store, survey, candidate));
        match moved {
            Ok(()) | Err(StoreError::Vanished(_)) => {}
            Err(error) => {
                problems.push(format!("{path} is partial ({why}) and cannot be moved aside: {error}"));
            }
        }
    }
    problems
}

/// A program that is told by a file which checkpoint is the newest must not look for one that has been moved aside: it would
/// start afresh, or fail. Without another one, that file goes, too.
fn repoint(store: &dyn Store, survey: &Survey, moved: &Candidate) -> Result<(), StoreError> {
    // Of the same series: a layout may have several in one directory.
    let series = |it: &Candidate| it.name().chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    let is_beside = |it: &&Candidate| {
        it.layout == moved.layout
            && tree::parent(&it.path) == tree::parent(&moved.path)
            && series(it) == series(moved)
    };
    let next = survey.complete.iter().map(|checkpoint| &checkpoint.candidate).find(is_beside);
    match layouts::repointed(moved, next, &survey.tree, store) {
        Some((file, Some(content))) => store.write(&file, content.as_bytes()),
        Some((file, None)) => move_away(store, &file),
        None => Ok(()),
    }
}

fn files_of<'a>(checkpoints: impl Iterator<Item = &'a Checkpoint>) -> BTreeSet<&'a str> {
    checkpoints.flat_map(|checkpoint| checkpoint.candidate.files.iter().map(String::as_str)).collect()
}

fn move_aside(store: &dyn Store, survey: &Survey, candidate: &Candidate) -> Result<(), StoreError> {
    let leads_there =
        |kind: &Kind| matches!(kind, Kind::Link { target: Some(target) } if candidate.roots.contains(target));
    let links = survey.tree.entries().filter(|entry| leads_there(&entry.kind)).map(|entry| &entry.path);
    candidate.roots.iter().chain(links).try_for_each(|path| move_away(store, path))
}

fn move_away(store: &dyn Store, path: &str) -> Result<(), StoreError> {
    let mut to = format!("{QUARANTINE}/{path}");
    let mut number = 1;
    while store.exists(&to)? {
        number += 1;
        to = format!("{QUARANTINE}/{path}.{number}");
    }
    store.rename(path, &to)
}

/// Removes those of the complete checkpoints that may go.
pub fn retain(
    store: &dyn Store,
    newest_first: &[&Checkpoint],
    keep: usize,
    protected: &BTreeSet<String>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let surplus = surplus(newest_first.iter().copied(), keep, protected);
    let goes = |checkpoint: &Checkpoint| surplus.iter().any(|old| std::ptr::eq(*old, checkpoint));
    let stays = files_of(newest_first.iter().copied().filter(|checkpoint| !goes(checkpoint)));
    let is_apart =
        |checkpoint: &&Checkpoint| !checkpoint.candidate.files.iter().any(|it| stays.contains(it.as_str()));
    for checkpoint in surplus.iter().copied().filter(is_apart) {
        let path = &checkpoint.candidate.path;
        if let Err(error) = remove(store, &checkpoint.candidate)
            && !matches!(error, StoreError::Vanished(_))
        {
            problems.push(format!("the old checkpoint {path} cannot be removed: {error}"));
        }
    }
    problems
}

/// What may go, be it kept in a directory or in a bucket.
pub(crate) trait Kept {
    fn place(&self) -> Place;

    /// What is removed with it.
    fn roots(&self) -> &[String];
}

impl Kept for Checkpoint {
    fn place(&self) -> Place {
        Self::place(self)
    }

    fn roots(&self) -> &[String] {
        &self.candidate.roots
    }
}

/// Those of a row of complete checkpoints that are older than the newest `keep`, and so may go. None may if that is 0.
///
/// Ranks may save a file each, so what has the same step and epoch counts as one, and stays or goes together.
///
/// `protected` are paths that never may, such as that which this attempt resumed from.
pub(crate) fn surplus<'a, T: Kept>(
    newest_first: impl IntoIterator<Item = &'a T>,
    keep: usize,
    protected: &BTreeSet<String>,
) -> Vec<&'a T> {
    if keep == 0 {
        return Vec::new();
    }
    let row: Vec<(Place, &T)> = newest_first
        .into_iter()
        .map(|kept| (kept.place(), kept))
        .filter(|(place, _)| is_one_of_many(&place.path))
        .collect();
    let mut steps: Vec<(Numbers, usize)> = Vec::new();
    for (place, _) in &row {
        match steps.iter_mut().find(|(numbers, _)| *numbers == place.numbers) {
            Some((_, files)) => *files += 1,
            None => steps.push((place.numbers, 1)),
        }
    }
    // As long as the newest has fewer files than the one before, some ranks may still be writing theirs.
    let is_on_its_way = matches!(steps[..], [(_, newest), (_, before), ..] if newest < before);
    let keep = keep + usize::from(is_on_its_way);
    let mut stay: Vec<Numbers> = steps.iter().take(keep).map(|(numbers, _)| *numbers).collect();
    // Whoever resumed from an older checkpoint by hand writes lower steps now: what was written last is kept, too.
    // Of several that have the same time, that is the newest, which is kept anyway.
    stay.extend(row.iter().rev().max_by_key(|(place, _)| place.time).map(|(place, _)| place.numbers));
    let is_protected = |(place, kept): &&(Place, &T)| {
        protected.contains(&place.path) || kept.roots().iter().any(|root| protected.contains(root))
    };
    stay.extend(row.iter().filter(is_protected).map(|(place, _)| place.numbers));
    row.iter().filter(|(place, _)| !stay.contains(&place.numbers)).map(|(_, kept)| *kept).collect()
}

/// One of a row, by its name. `best.pt` and `final.pt` are kept for another reason than to resume from.
pub(crate) fn is_one_of_many(path: &str) -> bool {
    let name = tree::name(path).to_lowercase();
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
