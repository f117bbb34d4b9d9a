//! The path of a field while an object is walked: one buffer for the whole walk.

use std::fmt::Write as _;

/// A path such as `spec.roles[0].name` that grows and shrinks with the walk.
#[derive(Debug, Default)]
pub(crate) struct Path(String);

impl Path {
    /// Goes to a field; returns the mark to come back to.
    pub(crate) fn field(&mut self, name: &str) -> usize {
        let mark = self.0.len();
        if mark > 0 {
            self.0.push('.');
        }
        self.0.push_str(name);
        mark
    }

    /// Goes to an entry of a map, which some messages write in brackets.
    pub(crate) fn key(&mut self, name: &str) -> usize {
        let mark = self.0.len();
        let _ = write!(self.0, "[{name}]");
        mark
    }

    /// Goes to an item of a list.
    pub(crate) fn index(&mut self, index: usize) -> usize {
        let mark = self.0.len();
        let _ = write!(self.0, "[{index}]");
        mark
    }

    /// Goes a step that is already written as it is shown.
    pub(crate) fn step(&mut self, step: &str) -> usize {
        let mark = self.0.len();
        self.0.push_str(step);
        mark
    }

    /// Comes back.
    pub(crate) fn back(&mut self, mark: usize) {
        self.0.truncate(mark);
    }

    /// The path as errors show it; the whole object is `<nil>`.
    pub(crate) fn shown(&self) -> String {
        if self.0.is_empty() { "<nil>".to_owned() } else { self.0.clone() }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}
