//! Files that are one checkpoint together: a file for each rank, or a model and its optimizer.
//!
//! Nothing but names says so. What has the same numbers in the same directory is one set, and which ranks are missing in it shows
//! by the last one that was whole: the workers who wrote `step-2-rank-0.pt` and `step-2-rank-1.pt` have not finished step 3 with one
//! of them.
//!
//! What is not sure is taken for whole: a good checkpoint that is not used, or moved aside, is worse than one that turns out to
//! lack something.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

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

/// A part of a checkpoint, known again in the others of the row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    series: String,
    ranks: Vec<u64>,
    /// Its name says of how many it is one.
    is_counted: bool,
}

impl Key {
    /// And of how many it is one, if its name says so. That of a single part (`1-of-5`) may have another meaning, unless it is padded with
    /// zeros.
    fn of(path: &str) -> (Self, Option<(u64, bool)>) {
        let Shape { series, ranks, of, is_padded, .. } = numbers::shape(path);
        (Self { series, ranks, is_counted: of.is_some() }, of.map(|of| (of, is_padded)))
    }

    /// It has a result in its name, which not every save may be good enough for.
    fn is_measured(&self) -> bool {
        self.series.contains("#.#")
    }

    fn words(&self) -> String {
        let ranks = self.ranks.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let name = self.series.trim_start_matches('/');
        if ranks.is_empty() { name.to_owned() } else { format!("{name} of rank {ranks}") }
    }
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

/// All parts of a set, by their series.
#[derive(Debug, Default)]
struct Parts(BTreeMap<String, BTreeSet<Key>>);

impl Parts {
    fn has(&self, key: &Key) -> bool {
        self.of(&key.series).is_some_and(|parts| parts.contains(key))
    }

    fn of(&self, series: &str) -> Option<&BTreeSet<Key>> {
        self.0.get(series)
    }

    fn all(&self) -> impl Iterator<Item = &Key> {
        self.0.values().flatten()
    }

    /// Only sets of the same kind say anything about each other: a program may save in the middle of an epoch, under other names.
    fn is_like(&self, other: &Parts) -> bool {
        self.0.keys().any(|series| other.0.contains_key(series))
    }
}

/// A set that was found whole, as the ones after it are held to it.
struct Whole<'a> {
    crew: Option<usize>,
    parts: &'a Parts,
    roots: Vec<String>,
    far: Option<i64>,
    lead: Option<Lead>,
    /// What the last ones after it lacked, and how many of them in a row.
    missed: BTreeSet<Key>,
    times: usize,
    /// And how many had been moved aside for the same before.
    noted: usize,
}

/// The file that a set is named by.
struct Lead {
    key: Key,
    layout: Layout,
}

/// When so many in a row lack the same, their program saves otherwise than before.
const GIVEN_UP: usize = 5;

impl Whole<'_> {
    fn is_given_up(&mut self, missing: &BTreeSet<Key>, crews: Option<&Crews>) -> bool {
        self.times = if self.missed == *missing { self.times + 1 } else { 1 };
        self.missed.clone_from(missing);
        let lacked = self.lacked();
        self.noted =
            crews.zip(lacked).map_or(0, |(crews, lacked)| crews.times(&lacked.after, &lacked.missing));
        self.times + self.noted >= GIVEN_UP
    }

    fn lacked(&self) -> Option<Lacked> {
        let missing = self.missed.iter().map(Key::words).collect::<Vec<_>>().join(", ");
        Some(Lacked { after: self.roots.first()?.clone(), missing, times: self.times + self.noted })
    }
}

/// The sets of a family that were found whole, oldest first.
#[derive(Default)]
struct Row<'a>(Vec<Whole<'a>>);

impl<'a> Row<'a> {
    /// The last one of this kind, if the same workers saved it: others may save otherwise.
    fn last_like(&self, parts: &Parts, crew: usize) -> Option<usize> {
        let last = self.0.iter().rposition(|whole| whole.parts.is_like(parts))?;
        (self.0[last].crew == Some(crew)).then_some(last)
    }

    /// The one of the same kind, and of the same workers, before another.
    fn before(&self, index: usize) -> Option<&Whole<'a>> {
        let Whole { crew, parts, .. } = &self.0[index];
        self.0[..index].iter().rfind(|whole| whole.parts.is_like(parts)).filter(|whole| whole.crew == *crew)
    }
}

/// A set beside the last of its kind that was whole, the one before that, and all others.
struct Place<'a> {
    own: &'a Parts,
    far: Option<i64>,
    before: Option<&'a Whole<'a>>,
    earlier: Option<&'a Whole<'a>>,
    all: &'a [Parts],
    index: usize,
}

impl Place<'_> {
    fn was_there(&self, key: &Key) -> bool {
        self.before.is_some_and(|before| before.parts.has(key))
    }

    /// Has it all that the one before has?
    fn has_all(&self) -> bool {
        self.before.is_some_and(|before| before.parts.all().all(|key| self.own.has(key)))
    }

    /// The next of its kind.
    fn next(&self) -> Option<&Parts> {
        self.all[self.index + 1..].iter().find(|next| next.is_like(self.own))
    }

    /// The ranks that saved the last one, and not this. Others may have taken their place: `part-2` after `part-1`.
    fn missing_ranks(&self) -> BTreeSet<Key> {
        let Some(before) = self.before else { return BTreeSet::new() };
        let missing = self.own.0.iter().filter_map(|(series, own)| {
            let before = before.parts.of(series)?;
            own.is_subset(before).then(|| before.difference(own))
        });
        missing.flatten().filter(|key| !key.ranks.is_empty() && !key.is_counted).cloned().collect()
    }

    /// What the one before has and this has not, unless the next lacks it, too.
    fn missing(&self) -> impl Iterator<Item = &Key> {
        let goes_on = |key: &&Key| self.next().is_none_or(|next| next.has(key));
        let of_before = self.before.into_iter().flat_map(|before| before.parts.all());
        of_before.filter(|key| key.ranks.is_empty() && !self.own.has(key)).filter(goes_on)
    }

    /// A model and its optimizer are saved together, unless that is a habit of the past. Other files may come with every tenth step,
    /// or with a better result only.
    fn missing_half(&self) -> Option<&Key> {
        let is_only_beside = self.own.all().all(|own| is_beside_a_model(&own.series));
        let is_half = |key: &&Key| !key.is_measured() && is_only_beside != is_beside_a_model(&key.series);
        self.missing().find(is_half)
    }

    /// Do these come with every save? The last two had it, and were no further apart than this is from the last: in between, it may be
    /// left out every time.
    fn is_habit(&self, key: &Key) -> bool {
        let (Some(before), Some(earlier)) = (self.before, self.earlier) else { return false };
        let apart = |far: Option<i64>, from: Option<i64>| Some(far? - from?);
        earlier.parts.has(key) && apart(before.far, earlier.far) <= apart(self.far, before.far)
    }

    /// Do others of its kind lack it, too?
    fn comes_and_goes(&self, key: &Key) -> bool {
        let others = self.all.iter().enumerate().filter(|(index, _)| *index != self.index);
        others.filter(|(_, other)| other.is_like(self.own)).any(|(_, other)| !other.has(key))
    }

    /// Has it only what was beside the file that the one before is named by?
    fn lacks_lead(&self, own_layouts: &BTreeSet<Layout>) -> bool {
        let lead = self.before.and_then(|before| before.lead.as_ref());
        let Some(Lead { key, layout }) = lead.filter(|lead| !lead.key.is_measured()) else { return false };
        if self.own.of(&key.series).is_some() {
            return false;
        }
        let is_own = |is: fn(&str) -> bool| self.own.all().any(|own| is(&own.series));
        let is_beside = |series: &str| is_average(series) || is_beside_a_model(series);
        let is_clear =
            is_model(&key.series) && !is_own(is_model) || own_layouts.iter().all(|own| own > layout);
        let lacks = |parts: &&Parts| parts.of(&key.series).is_none();
        if !is_clear {
            return self.next().is_none_or(|next| !lacks(&next));
        }
        // Whether the program does without it from now on shows after a while.
        let like = |parts: &&Parts| parts.is_like(self.own);
        let earlier = self.all[..self.index].iter().rev().filter(like).take_while(lacks).count();
        let later = self.all[self.index..].iter().filter(like).take_while(lacks).count();
        let is_given_up = earlier + later >= GIVEN_UP && !self.own.all().all(|own| is_beside(&own.series));
        !is_given_up
    }
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

/// By its name; directories above may be called anything.
fn is_beside_a_model(path: &str) -> bool {
    let name = tree::name(path).to_lowercase();
    ["optim", "sched", "scaler", "rng", "random", "dataloader"].iter().any(|word| name.contains(word))
        || is_called(&name, "opt")
}

/// Is it called what programs resume from, or nothing at all? `model-epoch-3.pt`, `epoch-3.pt`; not `samples-epoch-3.pt`.
fn is_model(path: &str) -> bool {
    const WORDS: [&str; 7] = ["model", "net", "weights", "checkpoint", "ckpt", "state", "params"];
    let name = tree::name(path).to_lowercase();
    numbers::is_pure(&name) || name.split(|c: char| !c.is_alphabetic()).any(|word| WORDS.contains(&word))
}

/// A second copy of a model: an average of its weights.
fn is_average(path: &str) -> bool {
    let name = tree::name(path).to_lowercase();
    ["ema", "swa", "average"].iter().any(|word| is_called(&name, word))
}

/// Is this one of the words of a name? `opt-125m` is the name of a model.
fn is_called(name: &str, word: &str) -> bool {
    name.match_indices(word).any(|(at, _)| {
        let (before, after) = (&name[..at], &name[at + word.len()..]);
        let is_size =
            after.strip_prefix(['-', '_']).is_some_and(|it| it.starts_with(|c: char| c.is_ascii_digit()));
        !before.ends_with(char::is_alphabetic) && !after.starts_with(char::is_alphabetic) && !is_size
    })
}
