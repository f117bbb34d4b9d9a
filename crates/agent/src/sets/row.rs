//! The sets of a family beside each other: what one of them lacks shows by those before and after it.

use std::collections::{BTreeMap, BTreeSet};

use super::words::{is_average, is_beside_a_model, is_model};
use crate::crew::{Crews, Lacked};
use crate::layouts::Layout;
use crate::numbers::{self, Shape};

/// A part of a checkpoint, known again in the others of the row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) series: String,
    pub(super) ranks: Vec<u64>,
    /// Its name says of how many it is one.
    pub(super) is_counted: bool,
}

impl Key {
    /// And of how many it is one, if its name says so. That of a single part (`1-of-5`) may have another meaning, unless it is padded with
    /// zeros.
    pub(super) fn of(path: &str) -> (Self, Option<(u64, bool)>) {
        let Shape { series, ranks, of, is_padded, .. } = numbers::shape(path);
        (Self { series, ranks, is_counted: of.is_some() }, of.map(|of| (of, is_padded)))
    }

    /// It has a result in its name, which not every save may be good enough for.
    pub(super) fn is_measured(&self) -> bool {
        self.series.contains("#.#")
    }

    pub(super) fn words(&self) -> String {
        let ranks = self.ranks.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let name = self.series.trim_start_matches('/');
        if ranks.is_empty() { name.to_owned() } else { format!("{name} of rank {ranks}") }
    }
}

/// All parts of a set, by their series.
#[derive(Debug, Default)]
pub(super) struct Parts(pub(super) BTreeMap<String, BTreeSet<Key>>);

impl Parts {
    pub(super) fn has(&self, key: &Key) -> bool {
        self.of(&key.series).is_some_and(|parts| parts.contains(key))
    }

    pub(super) fn of(&self, series: &str) -> Option<&BTreeSet<Key>> {
        self.0.get(series)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Key> {
        self.0.values().flatten()
    }

    /// Only sets of the same kind say anything about each other: a program may save in the middle of an epoch, under other names.
    pub(super) fn is_like(&self, other: &Parts) -> bool {
        self.0.keys().any(|series| other.0.contains_key(series))
    }
}

/// A set that was found whole, as the ones after it are held to it.
pub(super) struct Whole<'a> {
    pub(super) crew: Option<usize>,
    pub(super) parts: &'a Parts,
    pub(super) roots: Vec<String>,
    pub(super) far: Option<i64>,
    pub(super) lead: Option<Lead>,
    /// What the last ones after it lacked, and how many of them in a row.
    pub(super) missed: BTreeSet<Key>,
    pub(super) times: usize,
    /// And how many had been moved aside for the same before.
    pub(super) noted: usize,
}

/// The file that a set is named by.
pub(super) struct Lead {
    pub(super) key: Key,
    pub(super) layout: Layout,
}

/// When so many in a row lack the same, their program saves otherwise than before.
const GIVEN_UP: usize = 5;

impl Whole<'_> {
    pub(super) fn is_given_up(&mut self, missing: &BTreeSet<Key>, crews: Option<&Crews>) -> bool {
        self.times = if self.missed == *missing { self.times + 1 } else { 1 };
        self.missed.clone_from(missing);
        let lacked = self.lacked();
        self.noted =
            crews.zip(lacked).map_or(0, |(crews, lacked)| crews.times(&lacked.after, &lacked.missing));
        self.times + self.noted >= GIVEN_UP
    }

    pub(super) fn lacked(&self) -> Option<Lacked> {
        let missing = self.missed.iter().map(Key::words).collect::<Vec<_>>().join(", ");
        Some(Lacked { after: self.roots.first()?.clone(), missing, times: self.times + self.noted })
    }
}

/// The sets of a family that were found whole, oldest first.
#[derive(Default)]
pub(super) struct Row<'a>(pub(super) Vec<Whole<'a>>);

impl<'a> Row<'a> {
    /// The last one of this kind, if the same workers saved it: others may save otherwise.
    pub(super) fn last_like(&self, parts: &Parts, crew: usize) -> Option<usize> {
        let last = self.0.iter().rposition(|whole| whole.parts.is_like(parts))?;
        (self.0[last].crew == Some(crew)).then_some(last)
    }

    /// The one of the same kind, and of the same workers, before another.
    pub(super) fn before(&self, index: usize) -> Option<&Whole<'a>> {
        let Whole { crew, parts, .. } = &self.0[index];
        self.0[..index].iter().rfind(|whole| whole.parts.is_like(parts)).filter(|whole| whole.crew == *crew)
    }
}

/// A set beside the last of its kind that was whole, the one before that, and all others.
pub(super) struct Place<'a> {
    pub(super) own: &'a Parts,
    pub(super) far: Option<i64>,
    pub(super) before: Option<&'a Whole<'a>>,
    pub(super) earlier: Option<&'a Whole<'a>>,
    pub(super) all: &'a [Parts],
    pub(super) index: usize,
}

impl Place<'_> {
    pub(super) fn was_there(&self, key: &Key) -> bool {
        self.before.is_some_and(|before| before.parts.has(key))
    }

    /// Has it all that the one before has?
    pub(super) fn has_all(&self) -> bool {
        self.before.is_some_and(|before| before.parts.all().all(|key| self.own.has(key)))
    }

    /// The next of its kind.
    fn next(&self) -> Option<&Parts> {
        self.all[self.index + 1..].iter().find(|next| next.is_like(self.own))
    }

    /// The ranks that saved the last one, and not this. Others may have taken their place: `part-2` after `part-1`.
    pub(super) fn missing_ranks(&self) -> BTreeSet<Key> {
        let Some(before) = self.before else { return BTreeSet::new() };
        let missing = self.own.0.iter().filter_map(|(series, own)| {
            let before = before.parts.of(series)?;
            own.is_subset(before).then(|| before.difference(own))
        });
        missing.flatten().filter(|key| !key.ranks.is_empty() && !key.is_counted).cloned().collect()
    }

    /// What the one before has and this has not, unless the next lacks it, too.
    pub(super) fn missing(&self) -> impl Iterator<Item = &Key> {
        let goes_on = |key: &&Key| self.next().is_none_or(|next| next.has(key));
        let of_before = self.before.into_iter().flat_map(|before| before.parts.all());
        of_before.filter(|key| key.ranks.is_empty() && !self.own.has(key)).filter(goes_on)
    }

    /// A model and its optimizer are saved together, unless that is a habit of the past. Other files may come with every tenth step,
    /// or with a better result only.
    pub(super) fn missing_half(&self) -> Option<&Key> {
        let is_only_beside = self.own.all().all(|own| is_beside_a_model(&own.series));
        let is_half = |key: &&Key| !key.is_measured() && is_only_beside != is_beside_a_model(&key.series);
        self.missing().find(is_half)
    }

    /// Do these come with every save? The last two had it, and were no further apart than this is from the last: in between, it may be
    /// left out every time.
    pub(super) fn is_habit(&self, key: &Key) -> bool {
        let (Some(before), Some(earlier)) = (self.before, self.earlier) else { return false };
        let apart = |far: Option<i64>, from: Option<i64>| Some(far? - from?);
        earlier.parts.has(key) && apart(before.far, earlier.far) <= apart(self.far, before.far)
    }

    /// Do others of its kind lack it, too?
    pub(super) fn comes_and_goes(&self, key: &Key) -> bool {
        let others = self.all.iter().enumerate().filter(|(index, _)| *index != self.index);
        others.filter(|(_, other)| other.is_like(self.own)).any(|(_, other)| !other.has(key))
    }

    /// Has it only what was beside the file that the one before is named by?
    pub(super) fn lacks_lead(&self, own_layouts: &BTreeSet<Layout>) -> bool {
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
