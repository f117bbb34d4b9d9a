//! One thing that is wrong with a manifest, said so that its author can mend it.

use std::fmt;

/// Where in the manifest: `spec.roles[1].name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct FieldPath(Vec<Segment>);

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Segment {
    Key(String),
    Index(usize),
}

impl FieldPath {
    /// The whole object.
    pub fn root() -> Self {
        Self::default()
    }

    /// From keys only: `FieldPath::of(&["spec", "image"])`.
    pub fn of(keys: &[&str]) -> Self {
        Self(keys.iter().map(|key| Segment::Key((*key).to_owned())).collect())
    }

    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        let mut path = self.clone();
        path.0.push(Segment::Key(key.to_owned()));
        path
    }

    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        let mut path = self.clone();
        path.0.push(Segment::Index(index));
        path
    }

    pub fn segments(&self) -> &[Segment] {
        &self.0
    }
}

/// The same while it is being walked: a place that nobody complains about costs nothing.
#[derive(Clone, Copy)]
pub(crate) enum At<'a> {
    Root(&'a FieldPath),
    Key(&'a str),
    KeyOf(&'a At<'a>, &'a str),
    IndexOf(&'a At<'a>, usize),
}

impl<'a> At<'a> {
    pub(crate) fn key(&'a self, key: &'a str) -> At<'a> {
        At::KeyOf(self, key)
    }

    pub(crate) fn index(&'a self, index: usize) -> At<'a> {
        At::IndexOf(self, index)
    }

    pub(crate) fn path(self) -> FieldPath {
        match self {
            At::Root(path) => path.clone(),
            At::Key(key) => FieldPath::of(&[key]),
            At::KeyOf(at, key) => at.path().key(key),
            At::IndexOf(at, index) => at.path().index(index),
        }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("(the object)");
        }
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                // Keys such as nvidia.com/gpu have dots of their own.
                Segment::Key(key) if key.contains('.') || key.contains('/') => write!(f, "[{key}]")?,
                Segment::Key(key) if key.is_empty() => f.write_str("[\"\"]")?,
                Segment::Key(key) if position == 0 => f.write_str(key)?,
                Segment::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}

/// Whether the job can run all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The job cannot run like this.
    Error,
    /// It runs, but not as its author may think.
    Warning,
}

/// One thing that is wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub path: FieldPath,
    pub message: String,
    pub severity: Severity,
}

impl Problem {
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    pub fn error(path: FieldPath, message: impl Into<String>) -> Self {
        Self { path, message: message.into(), severity: Severity::Error }
    }

    pub fn warning(path: FieldPath, message: impl Into<String>) -> Self {
        Self { path, message: message.into(), severity: Severity::Warning }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}
