//! How events come to operators: in order, late, twice or never.

use std::time::{Duration, Instant};

use trainyard_operator::{JobKey, Watched};

use super::{World, key};

/// What happens to the events of watches on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    #[default]
    Prompt,
    /// The event of this number never comes; the watch starts over when everything is at rest.
    Lost(usize),
    /// When everything has been looked at, the watch goes back to before this event, and tells it and all that came since once more.
    Twice(usize),
    /// From that number on, events (of one kind or all) wait until so many more have gathered, or nothing else happens. Meanwhile
    /// the operator looks at what it sees, once for every event that it does not see.
    Late { from: usize, depth: usize, kind: Option<Watched> },
    /// From that number on, they wait until a moment after the next thing that happens. Looks are taken meanwhile, likewise.
    Across { from: usize, kind: Option<Watched> },
    /// From that number on, they wait for so long, whatever else happens.
    Slow { from: usize, time: Duration, kind: Option<Watched> },
}

/// An event that came.
#[derive(Clone, Copy, Debug)]
pub struct Delivered {
    pub kind: Watched,
    /// So many things had happened by then.
    pub scene: usize,
    /// So many looks had been taken by then.
    pub looks: usize,
}

/// Events of this kind, or all, wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    kind: Option<Watched>,
    until: Until,
    /// How many events there had been when the operator was last made to look.
    looked_at: usize,
}

#[derive(Clone, Copy, Debug)]
enum Until {
    /// Until the journals are so long, or nothing else happens.
    Gathered(usize),
    /// Until something happens.
    Act,
    Time(Instant),
}

/// A watch that will go back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    operator: usize,
    kind: Watched,
    /// So much of the journal it has told then.
    told: usize,
}

impl Held {
    fn holds(self, kind: Watched) -> bool {
        self.kind.is_none_or(|held| held == kind)
    }
}

impl World {
    pub(crate) fn deliver(&mut self, operator: usize, kind: Watched) -> bool {
        self.operators[operator].deliver(kind)
    }

    /// The next event never comes.
    pub(crate) fn lose_event(&mut self, operator: usize, kind: Watched) {
        self.tell(|| format!("an event of {} is lost", kind.plural()));
        self.check.misled = true;
        self.operators[operator].drop_event(kind);
    }

    /// How many events of such kinds there have been.
    pub(super) fn gathered(&self, kind: Option<Watched>) -> usize {
        let server = self.server();
        let kinds = Watched::ALL.into_iter().filter(|one| kind.is_none_or(|kind| kind == *one));
        kinds.map(|kind| server.journal(kind).len()).sum()
    }

    /// Delivers everything that may be delivered. Says whether that was anything.
    pub(super) fn deliver_all(&mut self, operator: usize) -> bool {
        if !self.operators[operator].is_behind() {
            return false;
        }
        let mut any = false;
        for kind in Watched::ALL {
            while self.operators[operator].behind(kind) > 0 {
                self.hold(kind);
                if let Some(held) = self.held.filter(|held| held.holds(kind)) {
                    if !self.is_enough(held) {
                        break;
                    }
                    self.held = None;
                }
                self.deliveries.push(Delivered { kind, scene: self.scene, looks: self.looks });
                any = true;
                match self.delivery {
                    Delivery::Lost(at) if at == self.delivered() => {
                        let event = self.operators[operator].seen(kind);
                        let tells = self.server().tells_of_end(kind, event);
                        self.missed_end |= tells;
                        self.lose_event(operator, kind);
                    }
                    Delivery::Twice(at) if at == self.delivered() => {
                        self.again =
                            Some(Again { operator, kind, told: self.operators[operator].seen(kind) });
                        self.deliver(operator, kind);
                    }
                    _ => {
                        self.deliver(operator, kind);
                    }
                }
            }
        }
        any | self.look_at_less()
    }

    /// While events wait, the operator looks at every state of its cache that is older than it should be.
    fn look_at_less(&mut self) -> bool {
        let Some(held) = self.held else { return false };
        let gathered = self.gathered(held.kind);
        if gathered == held.looked_at {
            return false;
        }
        self.held = Some(Held { looked_at: gathered, ..held });
        self.look_at_all();
        true
    }

    /// Something happens. Says whether events wait that come a moment later.
    pub(crate) fn happens(&mut self, moment: Duration) -> bool {
        self.scene += 1;
        let at = self.instant() + moment;
        let held = self.held.as_mut().filter(|held| matches!(held.until, Until::Act));
        held.map(|held| held.until = Until::Time(at)).is_some()
    }

    /// From this event on, some wait.
    fn hold(&mut self, next: Watched) {
        let (from, kind) = match self.delivery {
            Delivery::Late { from, kind, .. }
            | Delivery::Across { from, kind }
            | Delivery::Slow { from, kind, .. } => (from, kind),
            Delivery::Prompt | Delivery::Lost(_) | Delivery::Twice(_) => return,
        };
        if self.delivered() + 1 != from || kind.is_some_and(|kind| kind != next) {
            return;
        }
        let until = match std::mem::take(&mut self.delivery) {
            Delivery::Late { depth, .. } => Until::Gathered(self.gathered(kind) + depth),
            Delivery::Across { .. } => Until::Act,
            Delivery::Slow { time, .. } => Until::Time(self.instant() + time),
            Delivery::Prompt | Delivery::Lost(_) | Delivery::Twice(_) => return,
        };
        self.tell(|| format!("events of {kind:?} are late"));
        self.held = Some(Held { kind, until, looked_at: 0 });
    }

    fn is_enough(&self, held: Held) -> bool {
        match held.until {
            Until::Gathered(enough) => self.gathered(held.kind) >= enough,
            Until::Act => false,
            Until::Time(at) => self.instant() >= at,
        }
    }

    /// Nothing else happens: what waited for that comes. Says whether there was anything.
    pub(super) fn let_go(&mut self) -> bool {
        if let Some(Again { operator, kind, told }) = self.again.take() {
            self.tell(|| format!("the watch of {} goes back", kind.plural()));
            self.operators[operator].go_back(kind, told);
            return true;
        }
        self.held.take_if(|held| matches!(held.until, Until::Gathered(_))).is_some()
    }

    /// Whoever hears nothing at all hears nothing of nodes either.
    pub(super) fn hears_of_nodes(&self) -> bool {
        self.held.is_none_or(|held| held.kind.is_some())
    }

    /// When events come that have waited long enough.
    pub(super) fn next_delivery(&self) -> Option<Instant> {
        match self.held?.until {
            Until::Gathered(_) | Until::Act => None,
            Until::Time(at) => Some(at),
        }
    }

    /// The event that was lost told of the end of a pod.
    pub fn missed_end(&self) -> bool {
        self.missed_end
    }

    /// Everybody gets a turn, as if a timer had been set.
    pub(super) fn look_at_all(&mut self) {
        let keys: Vec<JobKey> = self.server().jobs().filter_map(|job| key(job)).collect();
        for operator in &mut self.operators {
            for key in &keys {
                operator.turns.add(key.clone());
            }
        }
    }

    /// Watches start over, as they do when they break.
    pub fn resync(&mut self) {
        for operator in &mut self.operators {
            for kind in Watched::ALL {
                operator.relist(kind);
            }
        }
    }
}
