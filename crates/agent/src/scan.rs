//! One look at everything: which checkpoints are complete, which are partial, and whether one is being written.
//!
//! What has not changed since the last look is not read again.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::crew::{Crews, Lacked};
use crate::ignored::{Ignored, Save};
use crate::layouts::{self, Candidate, Layout, Proof, Verdict, is_unfinished};
use crate::numbers::{self, Numbers};
use crate::outputs;
use crate::sets::{self, Evidence, Found, State};
use crate::store::{Entry, Kind, Store, StoreError};
use crate::tree::{self, Tree};
use crate::upkeep;

/// What has changed within this time may still be being written.
pub const QUIET: Duration = Duration::from_secs(5);

/// What belongs to a checkpoint and has not come so long after the rest of it is told.
pub(crate) const OVERDUE: SignedDuration = SignedDuration::from_mins(1);

/// A file from so far in the future was stamped by another clock.
const FUTURE: Duration = Duration::from_hours(1);

/// A moment, on two clocks: one that people read and that may jump, and one that only goes on.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub wall: Timestamp,
    pub elapsed: Duration,
}

/// May anybody be writing while we look?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// No: those of the attempt before are dead, and this one's have not started.
    None,
    Some,
}

/// A complete checkpoint.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    pub candidate: Candidate,
    pub numbers: Numbers,
    /// When it was changed last.
    pub time: Option<Timestamp>,
    pub size: u64,
}

/// What a look found.
#[derive(Debug, Default)]
pub struct Survey {
    pub tree: Tree,
    /// Newest first.
    pub complete: Vec<Checkpoint>,
    /// With the reason.
    pub partial: Vec<(Candidate, String)>,
    pub is_writing: bool,
    pub problems: Vec<String>,
    /// There may be more than was seen.
    pub is_incomplete: bool,
    /// Files of complete checkpoints that are not removed: those after them have less.
    pub spared: Vec<String>,
    /// What those lacked that are partial because ranks are missing.
    pub(crate) lacks: Vec<Lacked>,
    /// What was found complete by itself, before files were joined.
    pub(crate) saves: Vec<Save>,
}

/// Looks again and again, and remembers.
#[derive(Debug)]
pub struct Scanner {
    layouts: Vec<Layout>,
    known: HashMap<String, Known>,
    has_looked: bool,
    crews: Option<Crews>,
    trusted: Option<String>,
    ignored: Ignored,
    /// Also of what has been moved aside since.
    states: outputs::Evidence,
}

#[derive(Debug)]
struct Known {
    layout: Layout,
    stamp: u64,
    changed_at: Option<Duration>,
    verdict: Verdict,
}

impl Scanner {
    pub fn new(layouts: Vec<Layout>) -> Self {
        Self {
            layouts,
            known: HashMap::new(),
            has_looked: false,
            crews: Some(Crews::default()),
            trusted: None,
            ignored: Ignored::default(),
            states: outputs::Evidence::default(),
        }
    }

    /// Who has written, and when; nothing if that cannot be told.
    pub(crate) fn knows_crews(&mut self, crews: Option<Crews>) {
        self.crews = crews;
    }

    /// Nothing is missing in this one: it was found complete by whoever had seen more.
    pub(crate) fn trusts(&mut self, path: Option<&str>) {
        self.trusted = path.map(str::to_owned);
    }

    /// As if they were not there.
    pub(crate) fn ignores(&mut self, ignored: Ignored) {
        self.ignored = ignored;
    }

    pub fn look(&mut self, store: &dyn Store, now: Moment, writers: Writers) -> Result<Survey, StoreError> {
        let listing = store.list()?;
        let mut survey = Survey { tree: Tree::new(listing.entries), ..Survey::default() };
        survey.problems.extend(listing.problems.iter().map(ToString::to_string));
        if listing.is_incomplete {
            survey.is_incomplete = true;
            survey.problems.push(format!(
                "{} cannot be listed as a whole: until it can, nothing in it is moved aside or removed",
                store.place()
            ));
        }
        let mut known = HashMap::new();
        let mut found = Vec::new();
        for candidate in layouts::claim(&survey.tree, &self.layouts) {
            if self.ignored.has_candidate(&candidate, &survey.tree) {
                continue;
            }
            match self.know(&candidate, &survey.tree, store, now) {
                Ok(mine) => {
                    let has_changed =
                        writers == Writers::Some && is_changing(&mine.1, &candidate, &survey.tree, now);
                    let is_named = self.layouts.len() == 1;
                    found.extend(survey.sorted(candidate, &mine.1.verdict, has_changed, is_named));
                    known.insert(mine.0, mine.1);
                }
                // Programs remove their old checkpoints themselves.
                Err(StoreError::Vanished(_)) => {}
                Err(error) => {
                    survey.problems.push(error.to_string());
                    found.push(Found { candidate, state: State::Unknown, has_changed: false });
                }
            }
        }
        survey.tell_links();
        let whole = found.iter().filter(|found| matches!(found.state, State::Whole(_)));
        survey.saves = whole.map(|found| Save::of(&found.candidate, &survey.tree)).collect();
        let evidence = Evidence {
            tree: &survey.tree,
            writers,
            crews: self.crews.as_ref(),
            trusted: self.trusted.as_deref(),
            now: now.wall,
        };
        let things = |is_meant: fn(&State) -> bool| {
            let found = found.iter().filter(move |found| is_meant(&found.state));
            found.map(|found| found.candidate.thing(last_change(&found.candidate, &survey.tree)))
        };
        for thing in things(|state| matches!(state, State::Whole(_) | State::Cut(_))) {
            self.states.add(&thing);
        }
        // What is being written may turn out to be anything: it says nothing about what comes after it.
        let mut states = self.states;
        for thing in things(|state| matches!(state, State::Unfinished(_))) {
            states.add(&thing);
        }
        let mut joined = sets::join(found, evidence);
        // After they are joined: what belongs to a checkpoint is a part of it.
        let takes_all = self.layouts == [Layout::Files];
        joined.found.retain(|found| takes_all || !states.is_against(&found.candidate.thing(None)));
        survey.spared = joined.spared;
        survey.lacks = joined.lacks;
        for found in joined.found {
            survey.add(found, now);
        }
        let is_recent = |entry: &&Entry| is_near(entry.modified, now.wall);
        let is_unfinished = |entry: &&Entry| is_unfinished(&entry.path);
        if writers == Writers::Some
            && survey.tree.entries().filter(is_unfinished).any(|entry| is_recent(&entry))
        {
            survey.is_writing = true;
        }
        self.known = known;
        self.has_looked = true;
        sort_newest_first(&mut survey.complete, Checkpoint::place);
        survey.problems.sort();
        survey.problems.dedup();
        Ok(survey)
    }

    fn know(
        &mut self,
        candidate: &Candidate,
        tree: &Tree,
        store: &dyn Store,
        now: Moment,
    ) -> Result<(String, Known), StoreError> {
        let stamp = tree.stamp(candidate.files.iter().chain(&candidate.witnesses));
        let path = candidate.path.clone();
        match self.known.remove(&path) {
            Some(known) if known.stamp == stamp && known.layout == candidate.layout => Ok((path, known)),
            earlier => {
                let is_new = earlier.is_none() && !self.has_looked;
                let changed_at = (!is_new).then_some(now.elapsed);
                let verdict = layouts::judge(candidate, tree, store, &self.layouts)?;
                Ok((path, Known { layout: candidate.layout, stamp, changed_at, verdict }))
            }
        }
    }
}

impl Survey {
    /// What is named like a checkpoint and leads elsewhere. Links inside are names for what is seen anyway.
    fn tell_links(&mut self) {
        let leads_out = |entry: &&Entry| entry.kind == (Kind::Link { target: None });
        let is_named = |entry: &&Entry| layouts::is_named_as_checkpoint(&entry.path);
        for link in self.tree.entries().filter(leads_out).filter(is_named) {
            self.problems.push(format!(
                "{} looks like a checkpoint, but it is a link, and links are not followed: it is left alone and not resumed from; \
                 put what it leads to in its place",
                link.path
            ));
        }
    }

    /// What a candidate is by itself. What cannot be told is told. `is_named`: somebody has said which layout it has.
    fn sorted(
        &mut self,
        candidate: Candidate,
        verdict: &Verdict,
        has_changed: bool,
        is_named: bool,
    ) -> Option<Found> {
        let state = match verdict {
            Verdict::Complete { proof: Proof::Quiet, .. } | Verdict::Partial(_) | Verdict::Unclear(_)
                if has_changed =>
            {
                State::Unfinished(None)
            }
            Verdict::Complete { numbers, .. } => State::Whole(*numbers),
            Verdict::Partial(why) => State::Cut(why.clone()),
            Verdict::Unclear(why) => {
                // Of the others, nobody has any doubt which layout it is.
                let may_be_another = matches!(
                    candidate.layout,
                    Layout::Orbax | Layout::XgBoost | Layout::Torch | Layout::Files
                );
                let helps = may_be_another && !is_named;
                let way_out = if helps { ", or name the layout in checkpoint.layout" } else { "" };
                self.problems.push(format!(
                    "{} looks like a checkpoint, but {why}: it is left alone and not resumed from; remove it{way_out}",
                    candidate.path
                ));
                State::Unknown
            }
            Verdict::Foreign => return None,
        };
        Some(Found { candidate, state, has_changed })
    }

    fn add(&mut self, Found { candidate, state, has_changed }: Found, now: Moment) {
        let place = &candidate.path;
        match state {
            State::Unfinished(why) => {
                self.is_writing |= has_changed;
                let since = last_change(&candidate, &self.tree).map(|time| now.wall.duration_since(time));
                if let Some(why) = why.filter(|_| since.is_some_and(|since| since >= OVERDUE)) {
                    self.problems.push(format!(
                        "{place} is not taken for a checkpoint: {why}; it counts as soon as all of it has been saved, so remove it if that will not be"
                    ));
                }
            }
            State::Cut(why) => self.partial.push((candidate, why)),
            State::Unknown => {}
            State::Whole(numbers) => {
                let time = last_change(&candidate, &self.tree);
                if time.is_some_and(|time| {
                    time.duration_since(now.wall).unsigned_abs() > FUTURE && time > now.wall
                }) {
                    self.problems.push(format!(
                        "the time of {place} is in the future: set the clocks of the nodes and of the storage (NTP); \
                         steps and epochs decide about the newest checkpoint as long as names or contents tell them"
                    ));
                }
                let size = self.tree.size_of(&candidate.files);
                self.complete.push(Checkpoint { candidate, numbers, time, size });
            }
        }
    }
}

/// Was it seen to change within the last few seconds, or does its time say so? The clock of the storage may be another one
/// than ours, so what was seen counts, too.
fn is_changing(known: &Known, candidate: &Candidate, tree: &Tree, now: Moment) -> bool {
    let was_seen = known.changed_at.is_some_and(|then| now.elapsed.saturating_sub(then) < QUIET);
    was_seen || is_near(last_change(candidate, tree), now.wall)
}

pub(crate) fn last_change(candidate: &Candidate, tree: &Tree) -> Option<Timestamp> {
    candidate.files.iter().filter_map(|path| tree.get(path)).filter_map(|entry| entry.modified).max()
}

/// Within a few seconds, before or after.
fn is_near(time: Option<Timestamp>, now: Timestamp) -> bool {
    time.is_some_and(|time| time.duration_since(now).unsigned_abs() < QUIET)
}

/// Where a checkpoint stands in the row of all.
#[derive(Clone, Debug)]
pub struct Place {
    pub numbers: Numbers,
    /// Nothing if nobody knows any more.
    pub layout: Option<Layout>,
    pub size: u64,
    pub time: Option<Timestamp>,
    pub path: String,
}

impl Place {
    /// A file of any program, such as what it has found out by the way.
    fn is_loose(&self) -> bool {
        self.layout == Some(Layout::Files) && !layouts::ending(&self.path).is_empty()
    }
}

impl Checkpoint {
    pub fn place(&self) -> Place {
        Place {
            numbers: self.numbers,
            layout: Some(self.candidate.layout),
            size: self.size,
            time: self.time,
            path: self.candidate.path.clone(),
        }
    }
}

/// Sorts by epoch and step where all names tell both, else by step, then time. Of those that have come equally far, the one of the layout that asks for more is the
/// better one to go on from, then the larger one: programs save notes beside their checkpoints.
///
/// A program may put the step into some names and not into others (`epoch-3.pt`, `epoch-3-step-610.pt`). Where not all have
/// a step, epochs decide first. Where not all have an epoch either, nothing says which of two is further: those with a step and those with
/// an epoch are sorted by themselves, and one kind comes before the other. What has no number at all comes last: it says nothing about where to
/// go on.
pub fn sort_newest_first<T>(items: &mut [T], place: impl Fn(&T) -> Place) {
    let is_of_a_row = |place: &Place| !place.numbers.is_empty() && !upkeep::is_origin(&place.path);
    let order = Order::of(items.iter().map(&place).filter(is_of_a_row));
    items.sort_by_cached_key(|item| {
        let Place { numbers, layout, size, time, path } = place(item);
        let (is_of_first_kind, far) = order.far(numbers);
        // What asks for more stands first among the layouts.
        // Of about the same size, the latest: several may be saved in one epoch.
        let worth = (!numbers.is_empty()).then_some((layout.map(Reverse), size.checked_ilog2()));
        Reverse((rank(&path, numbers), is_of_first_kind, far, worth, time, path))
    });
}

/// How good it is to go on from by its name, however far that has come which a training began with: the higher the better.
fn rank(path: &str, numbers: Numbers) -> u8 {
    match (upkeep::is_origin(path), numbers.is_empty()) {
        (false, false) => 4,
        (false, true) if outputs::is_current(tree::name(path)) => 3,
        (true, false) => 2,
        (false, true) => 1,
        (true, true) => 0,
    }
}

/// Of those that have both numbers: do epochs decide before steps? Most programs count their steps anew in every epoch, or never. Some go on
/// counting them and begin with the first epoch again when they are started again: then what was saved last has the highest step, and
/// not the highest epoch.
pub(crate) fn epochs_lead(items: impl Iterator<Item = (Numbers, Option<Timestamp>)> + Clone) -> bool {
    let last = items.clone().max_by_key(|(_, time)| *time).map(|(numbers, _)| numbers);
    let by_epoch = items.clone().map(|(numbers, _)| (numbers.epoch, numbers.step)).max();
    let by_step = items.map(|(numbers, _)| (numbers.step, numbers.epoch)).max();
    let is_first_by_epoch = last.map(|last| (last.epoch, last.step)) == by_epoch;
    is_first_by_epoch || last.map(|last| (last.step, last.epoch)) != by_step
}

/// What decides first about which is the newest.
enum Order {
    Step,
    Epoch,
    /// Both, each for its own kind, and which kind comes first.
    Apart {
        steps_first: bool,
    },
}

impl Order {
    fn of(places: impl Iterator<Item = Place>) -> Self {
        let places: Vec<Place> = places.collect();
        let all_have_steps = places.iter().all(|place| place.numbers.step.is_some());
        let all_have_epochs = places.iter().all(|place| place.numbers.epoch.is_some());
        // Whoever names both may count steps anew in every epoch; where not, both say the same. Whoever names the step alone goes by it, and the
        // epoch inside may begin anew with every attempt.
        let goes_by_step = |place: &Place| {
            let named = numbers::of_path(&place.path);
            named.step.is_some() && named.epoch.is_none()
        };
        if all_have_epochs && (!all_have_steps || !places.iter().any(goes_by_step)) {
            let epochs_lead = epochs_lead(places.iter().map(|place| (place.numbers, place.time)));
            return if all_have_steps && !epochs_lead { Self::Step } else { Self::Epoch };
        }
        if all_have_steps {
            return Self::Step;
        }
        let best = |has_step: bool| {
            let of_a_kind = places.iter().filter(|place| place.numbers.step.is_some() == has_step);
            of_a_kind.map(|place| (!place.is_loose(), place.time)).max()
        };
        Self::Apart { steps_first: best(true) >= best(false) }
    }

    /// Whether it is of the kind that comes first, and how far it is.
    fn far(&self, Numbers { step, epoch }: Numbers) -> (bool, (Option<i64>, Option<i64>)) {
        match self {
            Self::Step => (true, (step, epoch)),
            Self::Epoch => (true, (epoch, step)),
            Self::Apart { steps_first } if step.is_some() => (*steps_first, (step, epoch)),
            Self::Apart { steps_first } => (!*steps_first, (epoch, None)),
        }
    }
}
