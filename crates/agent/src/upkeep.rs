//! What the agent does to storage: partial checkpoints out of the way, old ones away.
//!
//! Both are refused by storage now and then, which is a problem to be told and never a reason to stop.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::layouts::{self, Candidate, Layout, is_written_last};
use crate::numbers::{self, Numbers};
use crate::scan::{self, Checkpoint, Place, Survey};
use crate::store::{Kind, QUARANTINE, Store, StoreError};
use crate::tree;

/// What became of partial checkpoints.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Quarantine {
    /// The path of each that was moved, and why.
    pub moved: Vec<(String, String)>,
    pub problems: Vec<String>,
}

impl Quarantine {
    pub fn add(&mut self, other: Self) {
        self.moved.extend(other.moved);
        self.problems.extend(other.problems);
    }

    /// The first few that were moved, for people.
    pub fn words(&self) -> Option<String> {
        const MOST: usize = 3;
        let moved = self.moved.iter().take(MOST).map(|(path, why)| format!("{path} ({why})"));
        let more = self.moved.len().saturating_sub(MOST);
        let more = (more > 0).then(|| format!("and {more} more"));
        let words: Vec<String> = moved.chain(more).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// Moves partial checkpoints aside, so that programs that load the newest without a check do not trip over them.
///
/// Only to be called when nobody can be writing them.
pub fn quarantine(store: &dyn Store, survey: &Survey) -> Quarantine {
    let mut quarantine = Quarantine::default();
    // What looks like a part of one and a part of another belongs to the one that is complete.
    let sound: BTreeSet<&str> = files_of(survey.complete.iter());
    let is_apart = |candidate: &Candidate| !candidate.files.iter().any(|file| sound.contains(file.as_str()));
    for (candidate, why) in survey.partial.iter().filter(|(candidate, _)| is_apart(candidate)) {
        let path = &candidate.path;
        // In this order: what is cut short here is found again, and done again, at the next look.
        let moved = repoint(store, survey, candidate).and_then(|()| move_aside(store, survey, candidate));
        match moved {
            Ok(()) => {
                let others = match candidate.roots.len().saturating_sub(1) {
                    0 => String::new(),
                    1 => " and the other file of it".to_owned(),
                    others => format!(" and the {others} other files of it"),
                };
                quarantine.moved.push((format!("{path}{others}"), why.clone()));
            }
            Err(StoreError::Vanished(_)) => {}
            Err(error) => {
                let problem = format!("{path} is partial ({why}) and cannot be moved aside: {error}");
                quarantine.problems.push(problem);
            }
        }
    }
    quarantine
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

    /// All files that are removed with it.
    fn files(&self) -> Vec<&str>;
}

impl Kept for Checkpoint {
    fn place(&self) -> Place {
        Self::place(self)
    }

    fn roots(&self) -> &[String] {
        &self.candidate.roots
    }

    fn files(&self) -> Vec<&str> {
        self.candidate.files.iter().map(String::as_str).collect()
    }
}

/// One of those of which some may go.
struct Old<'a, T> {
    place: Place,
    kept: &'a T,
    files: usize,
}

/// Those of the complete checkpoints that are older than the newest `keep` of their row, and so may go. None may if that is 0.
///
/// What has the same step and epoch counts as one, and stays or goes together. A set of several files is one of several rows, and stays as
/// long as it is among the newest of one of them: a model that is saved less often than its averages is not old for that.
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
    let all: Vec<Old<'_, T>> = newest_first
        .into_iter()
        .map(|kept| Old { place: kept.place(), kept, files: kept.files().len() })
        .filter(|old| is_one_of_many(&old.place.path) && !is_more_than_a_checkpoint(old))
        .collect();
    let mut rows: BTreeMap<String, Vec<&Old<'_, T>>> = BTreeMap::new();
    for old in &all {
        let paths = old.kept.roots().iter().chain([&old.place.path]);
        for row in paths.map(|path| numbers::row(path)).collect::<BTreeSet<_>>() {
            rows.entry(row).or_default().push(old);
        }
    }
    let mut stay: HashSet<Numbers> = rows.into_values().flat_map(|row| staying(row, keep)).collect();
    let is_protected = |old: &&Old<'_, T>| {
        protected.contains(&old.place.path) || old.kept.roots().iter().any(|root| protected.contains(root))
    };
    stay.extend(all.iter().filter(is_protected).map(|old| old.place.numbers));
    all.iter().filter(|old| !stay.contains(&old.place.numbers)).map(|old| old.kept).collect()
}

/// How far those of a row are that stay.
fn staying<T>(mut row: Vec<&Old<'_, T>>, keep: usize) -> Vec<Numbers> {
    // By themselves: others may have steps where these have epochs.
    scan::sort_newest_first(&mut row, |old| old.place.clone());
    let mut steps: Vec<(Numbers, usize)> = Vec::new();
    for old in &row {
        match steps.iter_mut().find(|(numbers, _)| *numbers == old.place.numbers) {
            Some((_, files)) => *files += old.files,
            None => steps.push((old.place.numbers, old.files)),
        }
    }
    // As long as the newest has fewer files than the one before, some of them may be still to come.
    let is_on_its_way = matches!(steps[..], [(_, newest), (_, before), ..] if newest < before);
    let keep = if are_things(&row) { usize::MAX } else { keep.saturating_add(usize::from(is_on_its_way)) };
    let mut stay: Vec<Numbers> = steps.iter().take(keep).map(|(numbers, _)| *numbers).collect();
    // Whoever resumed from an older checkpoint by hand writes lower steps now: what was written last is kept, too.
    // Of several that have the same time, that is the newest, which is kept anyway.
    stay.extend(row.iter().rev().max_by_key(|old| old.place.time).map(|old| old.place.numbers));
    stay
}

/// A number up to this may be that of one of several things.
const MOST_THINGS: i64 = 100;

/// Are these several things, and not one that goes on? `model_0.pt` to `model_4.pt` may be all models of an ensemble: nothing says that
/// the number is how far it is, and most numbers from the first on are there. Where it has been written down in all of them how far they are,
/// something does.
fn are_things<T>(row: &[&Old<'_, T>]) -> bool {
    let may_be_thing = |old: &&Old<'_, T>| {
        let name = tree::name(&old.place.path);
        let is_in_a_checkpoint = numbers::is_explicit(tree::name(tree::parent(&old.place.path)));
        let is_anybodys =
            matches!(old.place.layout, Some(Layout::Torch | Layout::Files | Layout::XgBoost) | None);
        let is_weak = numbers::is_part(name)
            || numbers::is_bare(name)
            || is_in_a_checkpoint && !numbers::is_strong(name);
        is_anybodys && is_weak
    };
    let are_told = row.iter().all(|old| old.place.numbers.epoch.is_some());
    let all: BTreeSet<i64> = row.iter().filter_map(|old| old.place.numbers.step).collect();
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return false };
    let is_dense = i64::try_from(all.len()).is_ok_and(|count| count * 2 > *last);
    row.iter().all(may_be_thing) && !are_told && *first <= 1 && *last <= MOST_THINGS && is_dense
}

/// A directory of any program goes only if its name says in words that it is a checkpoint, and nothing in it is kept for another reason.
fn is_more_than_a_checkpoint<T: Kept>(old: &Old<'_, T>) -> bool {
    let path = &old.place.path;
    let is_anybodys = matches!(old.place.layout, Some(Layout::Files) | None);
    let is_directory = |root: &String| old.kept.files().iter().any(|file| tree::is_inside(file, root));
    let holds_more = || old.kept.files().iter().any(|file| layouts::may_be_state(file) && is_special(file));
    is_anybodys
        && old.kept.roots().iter().any(is_directory)
        && (!numbers::is_explicit(tree::name(path)) || holds_more())
}

/// One of a row, by its name. `best.pt` and `final.pt` are kept for another reason than to resume from.
pub(crate) fn is_one_of_many(path: &str) -> bool {
    let name = tree::name(path);
    let parent = tree::name(tree::parent(path));
    let lower = parent.to_lowercase();
    let is_apart = lower.split(|c: char| !c.is_alphabetic()).any(|word| matches!(word, "best" | "final"));
    // In a directory that says how far it is, `0.pt` is nobody knows what.
    let is_unclear = numbers::is_explicit(parent) && numbers::is_bare(name);
    !numbers::of_name(name).is_empty() && !is_special(name) && !is_apart && !is_unclear
}

/// Kept for another reason than to resume from, by its name.
pub(crate) fn is_special(path: &str) -> bool {
    let name = tree::name(path).to_lowercase();
    ["best", "final", "last", "latest", "pretrained", "initial"].iter().any(|word| name.contains(word))
}

/// What a training began with, by its name: `pretrained.pth`, `init-step-0.pt`, `pretrained/model.pt`. What goes on from it may be called so,
/// too, but tells how far it is: `vit-pretrained-epoch-3.pt`.
pub(crate) fn is_origin(path: &str) -> bool {
    const WORDS: [&str; 3] = ["pretrained", "initial", "init"];
    let lower = path.to_lowercase();
    let name = tree::name(&lower);
    let mut words = name.split(|c: char| !c.is_alphabetic());
    let is_first = words.clone().next().is_some_and(|first| WORDS.contains(&first));
    let is_unnumbered = numbers::of_name(name).is_empty();
    is_first
        || is_unnumbered && words.any(|word| WORDS.contains(&word))
        || WORDS.contains(&tree::name(tree::parent(&lower)))
}

pub(crate) fn remove(store: &dyn Store, candidate: &Candidate) -> Result<(), StoreError> {
    let mut roots: Vec<&String> = candidate.roots.iter().collect();
    roots.sort_by_key(|path| !is_written_last(path));
    for root in roots {
        let is_inside = |path: &&str| *path == root || tree::is_inside(path, root);
        let mut files: Vec<&str> = candidate.files.iter().map(String::as_str).filter(is_inside).collect();
        files.sort_by_key(|path| !is_written_last(path));
        store.remove(root, &files)?;
    }
    Ok(())
}
