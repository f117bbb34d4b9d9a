//! Files that are one checkpoint together: a file for each rank, or a model and its optimizer.
//!
//! Nothing but names says so. What has the same numbers in the same directory is one set, and which ranks are missing in it shows
//! by the last one that was whole: the workers who wrote `step-2-rank-0.pt` and `step-2-rank-1.pt` have not finished step 3 with one
//! of them.
//!
//! What is not sure is taken for whole: a good checkpoint that is not used, or moved aside, is worse than one that turns out to
//! lack something.

mod row;
mod words;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use self::row::{Key, Lead, Parts, Place, Row, Whole};
use self::words::{is_average, is_beside_a_model, is_model};
use crate::crew::{Crews, Lacked};
use crate::layouts::{self, Candidate, Layout};
use crate::numbers::{self, Numbers, Shape};
use crate::scan::{self, Writers};
use crate::tree::{self, Tree};
use crate::upkeep;

/// A candidate, and how it is.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) candidate: Candidate,
    pub(crate) state: State,
    /// Within the last few seconds.
    pub(crate) has_changed: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum State {
    Whole(Numbers),
    Cut(String),
    /// It is being written, or this, which belongs to it, is still to come.
    Unfinished(Option<String>),
    /// It could not be read, or understood. That has been told.
    Unknown,
}

/// What is known beside the names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) writers: Writers,
    /// Who wrote, and when. Nothing if nobody can tell, and then none is missed.
    pub(crate) crews: Option<&'a Crews>,
    /// It was found to be complete once, by whoever had seen more.
    pub(crate) trusted: Option<&'a str>,
    pub(crate) now: Timestamp,
}

/// What belongs together, joined.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    pub(crate) found: Vec<Found>,
    /// The last that had more than what was saved since. It is not removed before there is such a one again.
    pub(crate) spared: Vec<String>,
    /// What those lacked that are not whole because ranks are missing.
    pub(crate) lacks: Vec<Lacked>,
}

/// Joins what belongs together. What is whole by itself is cut, or unfinished as long as there are writers, where something
/// that belongs to it is not whole.
pub(crate) fn join(found: Vec<Found>, evidence: Evidence<'_>) -> Joined {
    let mut joined = Joined::default();
    let mut families: BTreeMap<String, Vec<Member>> = BTreeMap::new();
    for found in found {
        match family(&found.candidate) {
            Some(family) => families.entry(family).or_default().push(Member::new(found)),
            None => joined.found.push(found),
        }
    }
    for members in families.into_values() {
        let sets = in_order(members, evidence.tree);
        let parts: Vec<Parts> = sets.iter().map(|set| set.parts(|_| true)).collect();
        // What nobody understands, or was cut off, is no example.
        let whole: Vec<Parts> = sets.iter().map(|set| set.parts(Member::is_whole)).collect();
        let mut row = Row::default();
        for (index, set) in sets.into_iter().enumerate() {
            let crew = evidence.crews.and_then(|crews| crews.at(set.begun(evidence.tree)));
            let before = crew.and_then(|crew| row.last_like(&parts[index], crew));
            let place = Place {
                own: &parts[index],
                far: set.far(),
                before: before.map(|index| &row.0[index]),
                earlier: before.and_then(|before| row.before(before)),
                all: &parts,
                index,
            };
            if set.is_unknown(&place) {
                continue;
            }
            let missing = place.missing_ranks();
            let lack = set.lacks(&place, evidence);
            let is_all = place.has_all();
            let lack = match (lack, before) {
                (Some(Lack::Rank(_)), Some(before))
                    if row.0[before].is_given_up(&missing, evidence.crews) =>
                {
                    None
                }
                (lack, _) => lack,
            };
            if let Some(lack) = lack {
                joined.found.extend(set.unfinished(lack, evidence));
                continue;
            }
            // Whoever has all again makes up for those that had not.
            if let Some(before) = before.filter(|_| missing.is_empty()) {
                row.0[before].times = 0;
            }
            if set.0.iter().any(Member::is_whole) {
                row.0.push(Whole {
                    crew,
                    parts: &whole[index],
                    roots: set.roots(),
                    far: set.far(),
                    lead: set.lead(evidence.tree),
                    missed: BTreeSet::new(),
                    times: 0,
                    noted: 0,
                });
            }
            joined.found.extend(set.finished(is_all, evidence.tree));
        }
        let missed = row.0.into_iter().filter(|whole| whole.times > 0);
        for whole in missed {
            joined.lacks.extend(whole.lacked());
            joined.spared.extend(whole.roots);
        }
    }
    joined
}

/// One candidate of a set: a file, or a directory with all of its files.
struct Member {
    found: Found,
    numbers: Numbers,
    /// Each once: a directory may have thousands of files whose names differ in a number only.
    keys: BTreeSet<Key>,
    /// The series of parts whose names say how many there are, how many, and whether that is sure.
    counted: BTreeSet<(String, u64, bool)>,
}

impl Member {
    fn new(found: Found) -> Self {
        let candidate = &found.candidate;
        let numbers = numbers::of_name(candidate.name());
        // A directory may have anything in it; what is no state of a program comes and goes.
        let is_part = |path: &&String| candidate.is_one_file() || layouts::may_be_state(path);
        let (mut keys, mut counted) = (BTreeSet::new(), BTreeSet::new());
        for path in candidate.files.iter().filter(is_part) {
            let (key, of) = Key::of(path);
            counted.extend(of.map(|(of, is_sure)| (key.series.clone(), of, is_sure)));
            keys.insert(key);
        }
        Self { found, numbers, keys, counted }
    }

    /// It belongs to every one of its kind: that of a rank, what came with the last one, and what is beside a model.
    fn belongs(&self, place: &Place<'_>) -> bool {
        let belongs =
            |key: &Key| !key.ranks.is_empty() || place.was_there(key) || is_beside_a_model(&key.series);
        self.keys.iter().any(belongs)
    }

    fn is_whole(&self) -> bool {
        matches!(self.found.state, State::Whole(_))
    }
}

/// What may belong together: files and directories whose names say how far they are, and nothing else about them is known.
fn family(candidate: &Candidate) -> Option<String> {
    let is_plain = matches!(candidate.layout, Layout::Torch | Layout::Files);
    if !is_plain || !upkeep::is_one_of_many(&candidate.path) {
        return None;
    }
    // Ranks may have a directory each.
    let parent = numbers::without_ranks(tree::parent(&candidate.path));
    Some(if candidate.is_one_file() {
        parent
    } else {
        tree::join(&parent, &format!("{}/", numbers::shape(candidate.name()).series))
    })
}

/// The sets of a family, oldest first.
fn in_order(members: Vec<Member>, tree: &Tree) -> Vec<Set> {
    let all = |has: fn(&Numbers) -> bool| members.iter().all(|member| has(&member.numbers));
    let timed =
        members.iter().map(|member| (member.numbers, scan::last_change(&member.found.candidate, tree)));
    let epochs_lead = all(|numbers| numbers.epoch.is_some()) && scan::epochs_lead(timed);
    let steps_first = all(|numbers| numbers.step.is_some()) && !epochs_lead;
    let mut sets: BTreeMap<(Option<i64>, Option<i64>), Vec<Member>> = BTreeMap::new();
    for member in members {
        let Numbers { step, epoch } = member.numbers;
        let far = if steps_first { (step, epoch) } else { (epoch, step) };
        sets.entry(far).or_default().push(member);
    }
    sets.into_values().flat_map(one_by_one).map(Set).collect()
}

/// Several saves in one epoch may differ in a number that says nothing by itself: `checkpoint_1_500.pt`, `checkpoint_1_1000.pt`.
fn one_by_one(members: Vec<Member>) -> Vec<Vec<Member>> {
    let shape = |member: &Member| numbers::shape(member.found.candidate.name());
    let mut known: BTreeMap<(String, Vec<u64>), Vec<u64>> = BTreeMap::new();
    let is_one = members.iter().all(|member| {
        let Shape { series, ranks, others, .. } = shape(member);
        let words = series.chars().filter(|c| c.is_alphabetic()).collect();
        *known.entry((words, ranks)).or_insert_with(|| others.clone()) == others
    });
    if is_one {
        return vec![members];
    }
    let mut saves: BTreeMap<Vec<u64>, Vec<Member>> = BTreeMap::new();
    for member in members {
        saves.entry(shape(&member).others).or_default().push(member);
    }
    saves.into_values().collect()
}

/// What a set lacks, in words.
enum Lack {
    /// That is sure, or nearly.
    Part(String),
    /// A rank has saved the last one, and not this.
    Rank(String),
    /// It may come or not: as long as it has not, this is not gone on from, and left where it is.
    Doubt(String),
    /// It is only what comes beside a model, and may come more often. The same, but nothing to tell.
    Model,
}

/// What has come equally far.
struct Set(Vec<Member>);

impl Set {
    fn parts(&self, which: fn(&Member) -> bool) -> Parts {
        let mut parts = Parts::default();
        for key in self.0.iter().filter(|member| which(member)).flat_map(|member| &member.keys) {
            parts.0.entry(key.series.clone()).or_default().insert(key.clone());
        }
        parts
    }

    fn roots(&self) -> Vec<String> {
        self.0.iter().flat_map(|member| &member.found.candidate.roots).cloned().collect()
    }

    /// When its writers began with it.
    fn begun(&self, tree: &Tree) -> Option<Timestamp> {
        let files = self.0.iter().flat_map(|member| &member.found.candidate.files);
        files.filter_map(|path| tree.get(path)?.modified).min()
    }

    /// Nobody can tell whether it is whole, because a part that belongs to it cannot be read.
    fn is_unknown(&self, place: &Place<'_>) -> bool {
        self.0.iter().any(|member| matches!(member.found.state, State::Unknown) && member.belongs(place))
    }

    /// How far it is, to be compared with others of its kind.
    fn far(&self) -> Option<i64> {
        let numbers = self.0.first()?.numbers;
        numbers.step.or(numbers.epoch)
    }

    /// What it is named by, if that is a file.
    fn lead(&self, tree: &Tree) -> Option<Lead> {
        let whole: Vec<Found> =
            self.0.iter().filter(|member| member.is_whole()).map(|member| member.found.clone()).collect();
        let lead = as_one(&whole, tree)?;
        let is_file = whole.iter().any(|one| one.candidate.path == lead.path && one.candidate.is_one_file());
        is_file.then(|| Lead { key: Key::of(&lead.path).0, layout: lead.layout })
    }

    /// Why it is not whole, if it is not.
    fn lacks(&self, place: &Place<'_>, evidence: Evidence<'_>) -> Option<Lack> {
        if let [member] = self.0.as_slice()
            && !member.is_whole()
        {
            // It speaks for itself.
            return None;
        }
        if let Some(why) = self.broken().or_else(|| self.too_few_of_all(place.own)) {
            return Some(Lack::Part(why));
        }
        if evidence.trusted.is_some_and(|trusted| self.roots().iter().any(|root| root == trusted)) {
            return None;
        }
        let words = |missing: &Key| format!("it lacks {}, which the one before has", missing.words());
        if let Some(missing) = place.missing_ranks().first() {
            return Some(Lack::Rank(words(missing)));
        }
        match place.missing_half() {
            Some(half) if place.is_habit(half) => return Some(Lack::Part(words(half))),
            Some(half) if !place.comes_and_goes(half) => return Some(Lack::Doubt(words(half))),
            _ => {}
        }
        let layouts = self.0.iter().map(|member| member.found.candidate.layout).collect();
        if place.lacks_lead(&layouts) {
            return Some(Lack::Model);
        }
        self.missing_inside(place, evidence).map(|missing| Lack::Doubt(words(missing)))
    }

    /// A directory is filled file by file, with pauses. While somebody may be writing, what the one before has is waited for; afterwards, it is
    /// missed if it was always there.
    fn missing_inside<'a>(&self, place: &'a Place<'_>, evidence: Evidence<'_>) -> Option<&'a Key> {
        if self.0.iter().all(|member| member.found.candidate.is_one_file()) {
            return None;
        }
        let files = self.0.iter().flat_map(|member| &member.found.candidate.files);
        let changed = files.filter_map(|path| evidence.tree.get(path)?.modified).max();
        let is_fresh =
            changed.is_some_and(|time| evidence.now.duration_since(time).abs() < crate::scan::OVERDUE);
        let is_note = |key: &Key| layouts::ending(&key.series) == "json";
        match evidence.writers {
            Writers::Some if is_fresh => place.missing().next(),
            Writers::Some => None,
            Writers::None => place.missing().find(|key| !is_note(key) && place.is_habit(key)),
        }
    }

    /// What has been begun belongs to it, unless there is another save of the same. Notes about what is no JSON itself are no part of it.
    fn broken(&self) -> Option<String> {
        let whole: BTreeSet<&Key> =
            self.0.iter().filter(|member| member.is_whole()).flat_map(|member| &member.keys).collect();
        let is_json = |key: &Key| layouts::ending(&key.series) == "json";
        let all_json = whole.iter().all(|key| is_json(key));
        let is_missed = |key: &Key| !whole.contains(key) && (all_json || !is_json(key));
        self.0.iter().filter(|member| member.keys.iter().any(is_missed)).find_map(|member| {
            let name = member.found.candidate.name();
            match &member.found.state {
                State::Cut(why) => Some(format!("{name}: {why}")),
                State::Unfinished(_) => Some(format!("{name} is being written")),
                State::Whole(_) | State::Unknown => None,
            }
        })
    }

    /// Some names say of how many they are one.
    fn too_few_of_all(&self, own: &Parts) -> Option<String> {
        self.0.iter().flat_map(|member| &member.counted).find_map(|(series, of, is_sure)| {
            let count = own.of(series).map_or(0, BTreeSet::len) as u64;
            (count < *of && (*is_sure || count > 1)).then(|| format!("it has {count} of {of} parts"))
        })
    }

    /// As one to which something is missing. Nothing if it has nothing else.
    fn unfinished(self, lack: Lack, evidence: Evidence<'_>) -> Option<Found> {
        let mut found: Vec<Found> = self.0.into_iter().map(|member| member.found).collect();
        // What is not understood is not touched.
        found.retain(|found| !matches!(found.state, State::Unknown));
        let state = match (lack, evidence.writers) {
            (Lack::Part(why) | Lack::Rank(why), Writers::None) => State::Cut(why),
            (Lack::Part(why) | Lack::Rank(why) | Lack::Doubt(why), _) => State::Unfinished(Some(why)),
            (Lack::Model, _) => State::Unfinished(None),
        };
        Some(Found { candidate: as_one(&found, evidence.tree)?, state, has_changed: has_changed(&found) })
    }

    /// As one that is whole, and what is beside it.
    fn finished(self, has_all: bool, tree: &Tree) -> Vec<Found> {
        let (whole, rest): (Vec<Member>, Vec<Member>) = self.0.into_iter().partition(Member::is_whole);
        let mut found: Vec<Found> = whole.into_iter().map(|member| member.found).collect();
        if let (2.., Some(candidate)) = (found.len(), as_one(&found, tree)) {
            found.sort_by_key(|one| one.candidate.path != candidate.path);
            let numbers = found.iter().fold(Numbers::default(), |numbers, one| match &one.state {
                State::Whole(its) => numbers.or(*its),
                State::Cut(_) | State::Unfinished(_) | State::Unknown => numbers,
            });
            let has_changed = has_changed(&found);
            // More files may be to come, unless it has all that the one before has.
            let state = if has_changed && !has_all { State::Unfinished(None) } else { State::Whole(numbers) };
            found = vec![Found { candidate, state, has_changed }];
        }
        found.extend(rest.into_iter().map(|member| member.found));
        found
    }
}

fn has_changed(found: &[Found]) -> bool {
    found.iter().any(|found| found.has_changed)
}

/// Named by the file that a program would look for first: not what is only beside a model, then what is there once, what is called a model,
/// then that of the first rank, then the largest. Of several saves of the same thing, the last.
fn as_one(found: &[Found], tree: &Tree) -> Option<Candidate> {
    let candidates = || found.iter().map(|found| &found.candidate);
    let time =
        |candidate: &Candidate| candidate.files.iter().filter_map(|path| tree.get(path)?.modified).max();
    let mut last: BTreeMap<(String, Vec<u64>), &Candidate> = BTreeMap::new();
    for candidate in candidates() {
        let Shape { series, ranks, .. } = numbers::shape(&candidate.path);
        let known = last.entry((series, ranks)).or_insert(candidate);
        if time(candidate) > time(known) {
            *known = candidate;
        }
    }
    let lead = last.into_iter().min_by_key(|((_, ranks), candidate)| {
        let size = tree.size_of(&candidate.files);
        let is_beside = is_beside_a_model(candidate.name());
        let is_average = is_average(candidate.name());
        (
            is_beside,
            is_average,
            !ranks.is_empty(),
            !is_model(candidate.name()),
            candidate.layout,
            ranks.clone(),
            Reverse(size),
            candidate.path.clone(),
        )
    });
    let (_, lead) = lead?;
    let all = |of: fn(&Candidate) -> &Vec<String>| candidates().flat_map(of).cloned().collect::<Vec<_>>();
    Some(Candidate {
        layout: lead.layout,
        path: lead.path.clone(),
        roots: all(|candidate| &candidate.roots),
        files: all(|candidate| &candidate.files),
        witnesses: all(|candidate| &candidate.witnesses),
    })
}
