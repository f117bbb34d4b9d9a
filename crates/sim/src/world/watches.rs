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
    /// It comes twice.
    Twice(usize),
    /// From that number on, events (of one kind or all) wait until so many more have gathered, or nothing else happens. Meanwhile
    /// the operator looks at what it sees.
    Late { from: usize, depth: usize, kind: Option<Watched> },
    /// From that number on, they wait for so long, whatever else happens.
    Slow { from: usize, time: Duration, kind: Option<Watched> },
}

/// Events of this kind, or all, wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    kind: Option<Watched>,
    until: Until,
}

#[derive(Clone, Copy, Debug)]
enum Until {
    /// Until the journals are so long, or nothing else happens.
    Gathered(usize),
    Time(Instant),
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
                self.delivered += 1;
                any = true;
                match self.delivery {
                    Delivery::Lost(at) if at == self.delivered => {
                        self.tell(|| format!("an event of {} is lost", kind.plural()));
                        let event = self.operators[operator].seen(kind);
                        let tells = self.server().tells_of_end(kind, event);
                        self.missed_end |= tells;
                        self.operators[operator].drop_event(kind);
                    }
                    Delivery::Twice(at) if at == self.delivered => {
                        self.deliver(operator, kind);
                        self.operators[operator].repeat(kind);
                    }
                    _ => {
                        self.deliver(operator, kind);
                    }
                }
            }
        }
        if self.held.is_some() && any {
            self.look_at_all();
        }
        any
    }

    /// From this event on, some wait.
    fn hold(&mut self, next: Watched) {
        let (from, kind) = match self.delivery {
            Delivery::Late { from, kind, .. } | Delivery::Slow { from, kind, .. } => (from, kind),
            Delivery::Prompt | Delivery::Lost(_) | Delivery::Twice(_) => return,
        };
        if self.delivered + 1 != from || kind.is_some_and(|kind| kind != next) {
            return;
        }
        let until = match std::mem::take(&mut self.delivery) {
            Delivery::Late { depth, .. } => Until::Gathered(self.gathered(kind) + depth),
            Delivery::Slow { time, .. } => Until::Time(self.instant() + time),
            Delivery::Prompt | Delivery::Lost(_) | Delivery::Twice(_) => return,
        };
        self.tell(|| format!("events of {kind:?} are late"));
        self.held = Some(Held { kind, until });
    }

    fn is_enough(&self, held: Held) -> bool {
        match held.until {
            Until::Gathered(enough) => self.gathered(held.kind) >= enough,
            Until::Time(at) => self.instant() >= at,
        }
    }

    /// Nothing else happens: what waited for that comes. Says whether there was anything.
    pub(super) fn let_go(&mut self) -> bool {
        self.held.take_if(|held| matches!(held.until, Until::Gathered(_))).is_some()
    }

    /// When events come that have waited long enough.
    pub(super) fn next_delivery(&self) -> Option<Instant> {
        match self.held?.until {
            Until::Gathered(_) => None,
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
