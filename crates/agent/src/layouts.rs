//! The ways in which programs lay out their checkpoints, one file for each.
//!
//! A layout does two things. It *claims* what looks like its checkpoints, by names alone, from a listing. And it *judges*
//! one of them by reading a little of it. Both are plain functions, the same for a directory and for a bucket.

mod content;
mod dcp;
mod deepspeed;
mod files;
mod huggingface;
mod megatron;
mod orbax;
mod tensorflow;
mod torch;
mod unfinished;
mod xgboost;

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

use crate::numbers::{self, Numbers};
use crate::outputs::Thing;
use crate::store::{Kind, Store, StoreError};
use crate::tree::{self, Tree};

/// A way of laying out checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layout {
    Megatron,
    DeepSpeed,
    HuggingFace,
    Orbax,
    Dcp,
    TensorFlow,
    XgBoost,
    Torch,
    Files,
}

impl Layout {
    /// The more a layout asks for, the earlier its turn.
    pub const ALL: [Self; 9] = [
        Self::Megatron,
        Self::DeepSpeed,
        Self::HuggingFace,
        Self::Orbax,
        Self::Dcp,
        Self::TensorFlow,
        Self::XgBoost,
        Self::Torch,
        Self::Files,
    ];

    /// The layouts that a word on the command line stands for; nothing if it is none of ours.
    pub fn of_word(word: &str) -> Option<Vec<Self>> {
        if word == "auto" { Some(Self::ALL.to_vec()) } else { word.parse().ok().map(|layout| vec![layout]) }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Megatron => "megatron",
            Self::DeepSpeed => "deepspeed",
            Self::HuggingFace => "huggingface",
            Self::Orbax => "orbax",
            Self::Dcp => "dcp",
            Self::TensorFlow => "tensorflow",
            Self::XgBoost => "xgboost",
            Self::Torch => "torch",
            Self::Files => "files",
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

impl FromStr for Layout {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|layout| layout.word() == word).ok_or(())
    }
}

/// Something that looks like a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub layout: Layout,
    /// What a program is given to resume from: a file, a directory, or the common beginning of several files.
    pub path: String,
    /// What has to be moved or removed to move or remove it.
    pub roots: Vec<String>,
    /// All of its files.
    pub files: Vec<String>,
    /// Files that it is judged by although they are not part of it, such as one that names the newest checkpoint.
    pub witnesses: Vec<String>,
}

impl Candidate {
    fn directory(layout: Layout, tree: &Tree, path: &str) -> Self {
        let files = tree.files_below(path).into_iter().map(|entry| entry.path.clone()).collect();
        Self { layout, path: path.to_owned(), roots: vec![path.to_owned()], files, witnesses: Vec::new() }
    }

    fn file(layout: Layout, path: &str) -> Self {
        let paths = vec![path.to_owned()];
        Self { layout, path: path.to_owned(), roots: paths.clone(), files: paths, witnesses: Vec::new() }
    }

    fn witnessed_by(mut self, path: String) -> Self {
        self.witnesses.push(path);
        self
    }

    pub(crate) fn is_one_file(&self) -> bool {
        self.files.as_slice() == [self.path.as_str()]
    }

    pub(crate) fn thing(&self, time: Option<Timestamp>) -> Thing<'_> {
        let files = self.files.iter().map(String::as_str).collect();
        Thing { layout: Some(self.layout), path: &self.path, files, time }
    }

    /// Its last part, without the directories above.
    pub fn name(&self) -> &str {
        tree::name(&self.path)
    }
}

/// What a candidate turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Complete {
        numbers: Numbers,
        proof: Proof,
    },
    /// Its writer did not come to the end, for this reason.
    Partial(String),
    /// It should be a checkpoint, but cannot be understood. It is neither used nor touched.
    Unclear(String),
    /// Something else with a similar name.
    Foreign,
}

/// How a complete checkpoint is known to be complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// By its content: it is complete from the moment in which this reads.
    Content,
    /// By nothing else than that it does not change any more.
    Quiet,
}

impl Verdict {
    fn proven(numbers: Numbers) -> Self {
        Self::Complete { numbers, proof: Proof::Content }
    }
}

/// Everything that looks like a checkpoint. Nothing is claimed twice.
pub fn claim(tree: &Tree, layouts: &[Layout]) -> Vec<Candidate> {
    let mut claimed = Claimed::default();
    let is_only = layouts.len() == 1;
    let wanted = |layout| layouts.contains(&layout);
    if wanted(Layout::Megatron) {
        megatron::claim(tree, &mut claimed, is_only);
    }
    if wanted(Layout::DeepSpeed) {
        deepspeed::claim(tree, &mut claimed);
    }
    if wanted(Layout::HuggingFace) {
        huggingface::claim(tree, &mut claimed, is_only);
    }
    if wanted(Layout::Orbax) {
        orbax::claim(tree, &mut claimed);
    }
    if wanted(Layout::Dcp) {
        dcp::claim(tree, &mut claimed);
    }
    if wanted(Layout::TensorFlow) {
        tensorflow::claim(tree, &mut claimed);
    }
    // Before single files are looked at: what is in `step-100/` belongs together.
    if wanted(Layout::Files) {
        files::claim_directories(tree, &mut claimed);
    }
    if wanted(Layout::XgBoost) {
        xgboost::claim(tree, &mut claimed);
    }
    if wanted(Layout::Torch) {
        torch::claim(tree, &mut claimed);
    }
    if wanted(Layout::Files) {
        files::claim_files(tree, &mut claimed, is_only);
    }
    claimed.candidates
}

/// Reads as much of a candidate as is needed to tell what it is. `layouts` are those that it may have.
pub fn judge(
    candidate: &Candidate,
    tree: &Tree,
    store: &dyn Store,
    layouts: &[Layout],
) -> Result<Verdict, StoreError> {
    let reader = Reader { tree, store };
    let is_only = layouts.len() == 1;
    match candidate.layout {
        Layout::Megatron => megatron::judge(candidate, &reader),
        Layout::DeepSpeed => deepspeed::judge(candidate, &reader),
        Layout::HuggingFace => huggingface::judge(candidate, &reader),
        Layout::Orbax => orbax::judge(candidate, &reader, is_only),
        Layout::Dcp => dcp::judge(candidate, &reader),
        Layout::TensorFlow => tensorflow::judge(candidate, &reader),
        Layout::XgBoost => xgboost::judge(candidate, &reader),
        Layout::Torch => torch::judge(candidate, &reader),
        Layout::Files => files::judge(candidate, &reader, is_only),
    }
}

/// Checkpoints that something names as the newest: they are never removed.
pub fn pointed_at(tree: &Tree, store: &dyn Store) -> BTreeSet<String> {
    let mut targets = BTreeSet::new();
    for entry in tree.entries() {
        if let Kind::Link { target: Some(target) } = &entry.kind {
            targets.insert(target.clone());
        }
    }
    let reader = Reader { tree, store };
    for directory in tree.directories() {
        let named = [
            deepspeed::named_as_latest(&reader, directory),
            megatron::named_as_latest(&reader, directory),
            tensorflow::named_as_latest(&reader, directory),
            reader.small_text(&tree::join(directory, LAST)),
        ];
        targets.extend(named.into_iter().flatten().map(|name| tree::join(directory, &name)));
    }
    targets
}

/// The names of checkpoints that another one names as the best so far, wherever they are: programs load them in the end.
pub(crate) fn named_as_best(candidate: &Candidate, tree: &Tree, store: &dyn Store) -> Vec<String> {
    let reader = Reader { tree, store };
    let named = match candidate.layout {
        Layout::HuggingFace => huggingface::named_as_best(&reader, &candidate.path),
        Layout::Torch => torch::named_as_best(&reader, &candidate.path),
        _ => None,
    };
    named.unwrap_or_default()
}

/// The file that names a checkpoint as the newest, if there is one, and what has to be in it when `to` is.
pub(crate) fn repointed(
    from: &Candidate,
    to: Option<&Candidate>,
    tree: &Tree,
    store: &dyn Store,
) -> Option<(String, Option<String>)> {
    let reader = Reader { tree, store };
    let directory = tree::parent(&from.path);
    let (file, named) = match from.layout {
        Layout::Megatron => (megatron::TRACKER, megatron::named_as_latest(&reader, directory)),
        Layout::DeepSpeed => (deepspeed::LATEST, deepspeed::named_as_latest(&reader, directory)),
        Layout::TensorFlow => (tensorflow::POINTER, tensorflow::named_as_latest(&reader, directory)),
        Layout::Torch => (LAST, reader.small_text(&tree::join(directory, LAST))),
        Layout::HuggingFace | Layout::Orbax | Layout::Dcp | Layout::XgBoost | Layout::Files => return None,
    };
    if named.as_deref() != Some(from.name()) {
        return None;
    }
    let file = tree::join(directory, file);
    let content = to.map(|to| match from.layout {
        Layout::TensorFlow => {
            let text = reader.small_text(&file).unwrap_or_default();
            tensorflow::repointed(&text, from.name(), to.name())
        }
        Layout::Megatron => megatron::pointer_to(&to.path).map(|(_, content)| content).unwrap_or_default(),
        _ => to.name().to_owned(),
    });
    Some((file, content))
}

/// The file by which some programs that use torch name their newest checkpoint.
const LAST: &str = "last_checkpoint";

/// The file by which a program finds this checkpoint as the newest, and what is to be in it, if its layout has one.
pub(crate) fn pointer_to<'a>(
    path: &str,
    mut files: impl Iterator<Item = &'a str>,
) -> Option<(String, String)> {
    let of_a_file = |file: &str| {
        let is_deepspeeds = tree::parent(file) == path && deepspeed::is_of_states(tree::name(file));
        let is_tensorflows = file.strip_prefix(path) == Some(".index");
        match (is_deepspeeds, is_tensorflows) {
            (true, _) => Some(deepspeed::pointer_to(path)),
            (_, true) => Some(tensorflow::pointer_to(path)),
            _ => None,
        }
    };
    megatron::pointer_to(path).or_else(|| files.find_map(of_a_file))
}

/// What is claimed so far.
#[derive(Default)]
struct Claimed {
    candidates: Vec<Candidate>,
    paths: HashSet<String>,
}

impl Claimed {
    fn take(&mut self, candidate: Candidate) {
        self.paths.extend(candidate.roots.iter().cloned());
        self.candidates.push(candidate);
    }

    /// Is it nobody's to claim any more? It, or something that it is in, is claimed already, or has not been finished.
    fn covers(&self, path: &str) -> bool {
        is_unfinished(path) || self.has(path)
    }

    /// Is it, or something that it is in, claimed already?
    fn has(&self, path: &str) -> bool {
        let mut path = path;
        while !path.is_empty() {
            if self.paths.contains(path) {
                return true;
            }
            path = tree::parent(path);
        }
        self.paths.contains("")
    }
}

/// Bytes that a file of a line or two does not have.
const SMALL: u64 = 4096;

/// The listing and the storage together, for judging.
struct Reader<'a> {
    tree: &'a Tree,
    store: &'a dyn Store,
}

/// What a file that names the newest checkpoint says.
enum Pointer {
    Missing,
    /// It is there, but empty, as a full disk leaves it, or does not read.
    Unreadable,
    Names(String),
}

impl Reader<'_> {
    fn pointer(&self, path: &str) -> Result<Pointer, StoreError> {
        let Some(entry) = self.tree.get(path) else { return Ok(Pointer::Missing) };
        let size = entry.size();
        if size == 0 || size >= SMALL {
            return Ok(Pointer::Unreadable);
        }
        let content = match self.store.read(path, 0..size) {
            Ok(content) => content,
            Err(error @ StoreError::Vanished(_)) => return Err(error),
            Err(_) => return Ok(Pointer::Unreadable),
        };
        let text = String::from_utf8(content).unwrap_or_default();
        // A disk that lost power may leave zeros.
        let text = text.trim();
        let is_text = !text.is_empty() && !text.contains(char::is_control);
        Ok(if is_text { Pointer::Names(text.to_owned()) } else { Pointer::Unreadable })
    }

    fn size(&self, path: &str) -> Option<u64> {
        self.tree.get(path).filter(|entry| entry.is_file()).map(crate::store::Entry::size)
    }

    /// A file that is needed and is not there. A link may lead to it, which is not followed.
    fn lacking(&self, path: &str, missing: String) -> Verdict {
        let is_link = self.tree.get(path).is_some_and(|entry| matches!(entry.kind, Kind::Link { .. }));
        if is_link {
            Verdict::Unclear(format!("{} is a link, and links are not followed", tree::name(path)))
        } else {
            Verdict::Partial(missing)
        }
    }

    /// The state that another directory has and this has not: its writers had not come so far. Of what is there, nothing tells whether there
    /// should be more.
    fn missing_beside(&self, candidate: &Candidate, other: &str) -> Option<String> {
        let is_state = |path: &str| matches!(ending(path).as_str(), "pt" | "distcp");
        let files = self.tree.files_below(other).into_iter().filter(|entry| is_state(&entry.path));
        let mut inside = files.filter_map(|entry| entry.path.strip_prefix(other)?.strip_prefix('/'));
        let missing = inside.find(|inside| self.tree.get(&tree::join(&candidate.path, inside)).is_none())?;
        Some(format!("it lacks {missing}, which {} has", tree::name(other)))
    }

    /// A file of a line or two. Nothing if it is not there, or is anything else.
    fn small_text(&self, path: &str) -> Option<String> {
        let size = self.size(path).filter(|size| *size < SMALL)?;
        let text = String::from_utf8(self.store.read(path, 0..size).ok()?).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }
}

pub(crate) use content::ending;
pub(crate) use unfinished::is_unfinished;

/// Is this a name of what programs save their state in?
pub(crate) fn may_be_state(path: &str) -> bool {
    files::may_be_state(path)
}

/// Does its name say that it is a checkpoint, be it a file or a directory?
pub(crate) fn is_named_as_checkpoint(path: &str) -> bool {
    let name = tree::name(path);
    let is_state = may_be_state(name) || ending(name).is_empty();
    is_state && !numbers::is_part(name) && !name.starts_with('.') && !is_unfinished(path)
}

/// Is it in a directory that is named like one of the Trainer's?
fn huggingface_parent(path: &str) -> bool {
    huggingface::is_named(tree::parent(path))
}

/// Files without which a checkpoint is partial. They are the first to go when it is removed.
pub(crate) fn is_written_last(path: &str) -> bool {
    const MARKS: [&str; 7] = [
        "trainer_state.json",
        "saved_model.pb",
        ".metadata",
        "commit_success.txt",
        "_CHECKPOINT_METADATA",
        ".index",
        ".complete",
    ];
    MARKS.iter().any(|mark| path.ends_with(mark)) || path.contains("/random_states_")
}
