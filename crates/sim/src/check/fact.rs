//! What really happened to a pod.

use jiff::Timestamp;
use trainyard_api::{FailureAction, FailureRule};

/// What really happened to a pod.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Fact {
    pub(super) job: String,
    pub(super) name: String,
    pub(super) attempt: Option<i32>,
    pub(super) ran: bool,
    /// When it was seen to have succeeded.
    pub(super) done: Option<Timestamp>,
    pub(super) exit_code: Option<i32>,
    /// The kubelet's word for how it ended.
    pub(super) reason: Option<String>,
    /// Why the cluster takes it, if it does: all its words for it.
    pub(super) disruption: Vec<String>,
    /// It was told to go. Whoever has ended goes at once: so what it did after that is not its own doing.
    pub(super) going: bool,
    /// It is no more.
    pub(super) gone: bool,
    /// How many seconds it was given to go.
    pub(super) grace: Option<i64>,
    pub(super) node: Option<String>,
    /// Since when it was on its node, if nothing was made of it there at first.
    pub(super) bound: Option<Timestamp>,
    /// The nudge that it has, and the event that tells of it.
    pub(super) nudge: String,
    pub(super) nudged_as: Option<usize>,
    /// The nodes of which it was known when it was made that they will be taken away.
    pub(super) told: String,
    /// Its node will be taken away, and that was not known when it was made.
    pub(super) noticed: bool,
    /// The end of its log.
    pub(super) words: String,
    /// What it was made of, and in a world of which shape, as it says itself.
    pub(super) inputs: String,
    pub(super) shape: String,
    /// The event that tells of it as it is, if it has the label by which it is seen.
    pub(super) seen_as: Option<usize>,
}

impl Fact {
    /// Its node will be taken away, if it is this one.
    pub(super) fn notice(&mut self, node: &str) {
        let was_told = self.told.split(',').any(|told| told == node);
        self.noticed |= self.node.as_deref() == Some(node) && !was_told;
    }

    /// Who was told to go has not done all that it had to, even if it ends with 0.
    pub(super) fn succeeded(&self) -> bool {
        self.done.is_some()
    }

    /// The cluster, or somebody, took it or takes it.
    pub(super) fn is_taken(&self) -> bool {
        self.going || self.gone || !self.disruption.is_empty()
    }

    /// Nobody had a hand in it.
    pub(super) fn failed_by_itself(&self) -> bool {
        self.failed() && !self.going && self.disruption.is_empty()
    }

    pub(super) fn failed(&self) -> bool {
        self.exit_code.is_some_and(|code| code != 0)
    }

    pub(super) fn is_ignored(&self, rules: &[FailureRule]) -> bool {
        self.failed() && self.action(rules) == Some(FailureAction::Ignore)
    }

    /// What they say as long as nobody knows how it ends.
    pub(super) fn early_action(&self, rules: &[FailureRule]) -> Option<FailureAction> {
        if rules.is_empty() {
            return None;
        }
        Fact { disruption: self.disruption.clone(), ..Fact::default() }.action(rules)
    }

    /// What the job's own rules say about this failure.
    pub(super) fn action(&self, rules: &[FailureRule]) -> Option<FailureAction> {
        let is_reason =
            |wanted: &String| self.reason.as_ref() == Some(wanted) || self.disruption.contains(wanted);
        let matches = |rule: &&FailureRule| {
            let code = |codes: &Vec<i32>| self.exit_code.is_some_and(|code| codes.contains(&code));
            rule.exit_codes.as_ref().is_none_or(code)
                && rule.reasons.as_ref().is_none_or(|reasons| reasons.iter().any(is_reason))
                && rule.log_pattern.as_ref().is_none_or(|pattern| self.words.contains(pattern.as_str()))
        };
        rules.iter().find(matches).map(|rule| rule.action)
    }
}
