//! A copy of the checkpoints in a bucket, for programs that know directories only.
//!
//! A checkpoint is sent file by file, and a marker with the list of its files last: what has no marker, or lacks a file
//! of it, was cut off and is never restored. A checkpoint that is saved again under the same name is sent beside the earlier
//! one, which goes when the new marker has taken the place of the old, so that one of the two is always there. A single
//! file needs no place beside: an object is replaced as a whole.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::layouts;
use crate::numbers::Numbers;
use crate::outputs::{Evidence, Thing};
use crate::scan::{self, Checkpoint, Survey};
use crate::store::{Bucket, Kind, OURS, Store, StoreError, refuse_links};
use crate::tree::{self, Tree};
use crate::upkeep::{self, Kept};

/// Behind the path of a checkpoint.
const MARKER: &str = ".complete";

/// Behind the name of a root that is sent again, every other time.
const AGAIN: &str = ".again";

/// After an upload that failed.
const BREAK: Duration = Duration::from_secs(15);

/// So many times in a row may a checkpoint change while it is sent, before that is told.
const HASTE: u32 = 3;

/// A marker lists files; larger ones are not ours.
const LARGEST_MARKER: u64 = 16 << 20;

/// What says that a checkpoint has arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Marker {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// The word for it; earlier versions did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    pub roots: Vec<String>,
    pub files: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub path: String,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<Timestamp>,
    /// The name of its object, if that is not its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
}

impl Marker {
    fn of(checkpoint: &Checkpoint, tree: &Tree) -> Self {
        let part = |path: &String| {
            let entry = tree.get(path);
            let (size, modified) =
                (entry.map_or(0, crate::store::Entry::size), entry.and_then(|entry| entry.modified));
            Part { path: path.clone(), size, modified, object: None }
        };
        let Numbers { step, epoch } = checkpoint.numbers;
        let candidate = &checkpoint.candidate;
        let files = candidate.files.iter().filter(|path| tree.has_file(path)).map(part);
        Self {
            path: candidate.path.clone(),
            step,
            epoch,
            layout: Some(candidate.layout.to_string()),
            roots: candidate.roots.clone(),
            files: files.collect(),
        }
    }

    pub fn time(&self) -> Option<Timestamp> {
        self.own_files().filter_map(|part| part.modified).max()
    }

    /// Bytes of what is its own.
    pub fn size(&self) -> u64 {
        self.own_files().map(|part| part.size).sum()
    }

    /// Without those that are beside it: earlier versions listed the file that names the newest checkpoint, which changes
    /// with every save.
    fn own_files(&self) -> impl Iterator<Item = &Part> {
        let is_inside =
            |path: &str| self.roots.iter().any(|root| path == root || path.starts_with(&format!("{root}/")));
        self.files.iter().filter(move |part| is_inside(&part.path))
    }

    /// Do both stand for the same save?
    fn is_same(&self, other: &Self) -> bool {
        let numbers = |marker: &Self| (marker.step, marker.epoch);
        self.path == other.path
            && numbers(self) == numbers(other)
            && self.roots == other.roots
            && self.own_files().map(Part::content).eq(other.own_files().map(Part::content))
    }

    /// Is all of it in the other one, and not the other way round?
    fn is_part_of(&self, other: &Self) -> bool {
        self.roots.len() < other.roots.len() && self.roots.iter().all(|root| other.roots.contains(root))
    }

    /// The same, with its objects where those of an earlier save are not.
    fn beside(mut self, earlier: &Self) -> Self {
        let is_free = earlier.files.iter().any(|part| part.object.is_some());
        if is_free || self.is_one_file() {
            return self;
        }
        let roots = &self.roots;
        for part in &mut self.files {
            let inside = |root: &String| {
                let rest = part.path.strip_prefix(root.as_str())?;
                (rest.is_empty() || rest.starts_with('/')).then(|| format!("{root}{AGAIN}{rest}"))
            };
            part.object = roots.iter().find_map(inside);
        }
        self
    }

    /// The file that names it to its program, and what is to be in it.
    fn pointer(&self) -> Option<(String, String)> {
        layouts::pointer_to(&self.path, self.files.iter().map(|part| part.path.as_str()))
    }

    /// Is it a single file? Its object is whole by itself, whichever of several saves it is of.
    fn is_one_file(&self) -> bool {
        matches!(self.files.as_slice(), [part] if part.path == self.path)
    }

    fn name(path: &str) -> String {
        format!("{path}{MARKER}")
    }

    fn thing(&self) -> Thing<'_> {
        let layout = self.layout.as_deref().and_then(|word| word.parse().ok());
        Thing { layout, path: &self.path, files: Kept::files(self), time: self.place().time }
    }
}

impl Part {
    /// Its name in the bucket.
    fn object(&self) -> &str {
        self.object.as_deref().unwrap_or(&self.path)
    }

    fn content(&self) -> (&str, u64, Option<Timestamp>) {
        (&self.path, self.size, self.modified)
    }

    fn is(&self, metadata: &std::fs::Metadata) -> bool {
        let modified = metadata.modified().ok().and_then(|time| time.try_into().ok());
        metadata.len() == self.size && modified == self.modified
    }
}

impl Kept for Marker {
    fn place(&self) -> scan::Place {
        scan::Place {
            numbers: Numbers { step: self.step, epoch: self.epoch },
            layout: self.layout.as_deref().and_then(|word| word.parse().ok()),
            size: self.size(),
            time: self.time(),
            path: self.path.clone(),
        }
    }

    fn roots(&self) -> &[String] {
        &self.roots
    }

    fn files(&self) -> Vec<&str> {
        self.files.iter().map(|part| part.path.as_str()).collect()
    }
}

/// The complete checkpoints in a bucket, newest first.
pub fn markers(bucket: &dyn Store) -> Result<Vec<Marker>, StoreError> {
    let tree = Tree::new(bucket.list()?.entries);
    let is_marker = |path: &str, size: u64| {
        // Earlier versions copied what had not been finished.
        let is_finished = |path: &str| !layouts::is_unfinished(path);
        size <= LARGEST_MARKER && path.strip_suffix(MARKER).is_some_and(is_finished)
    };
    let mut markers = Vec::new();
    for entry in tree.entries().filter(|entry| entry.is_file() && is_marker(&entry.path, entry.size())) {
        let content = match bucket.read(&entry.path, 0..entry.size()) {
            Ok(content) => content,
            Err(StoreError::Vanished(_)) => continue,
            Err(error) => return Err(error),
        };
        let Ok(mut marker) = serde_json::from_slice::<Marker>(&content) else { continue };
        // The object may be of a later save than its marker, if an agent was killed between the two.
        if marker.is_one_file()
            && let Some(object) = tree.get(&marker.path)
        {
            marker.files[0].size = object.size();
        }
        let is_there = |part: &Part| {
            tree.get(part.object()).is_some_and(|entry| entry.kind == Kind::File { size: part.size })
        };
        let is_own = |path: &str| Path::new(path).is_relative() && !path.split('/').any(|part| part == "..");
        let is_sane = marker.roots.iter().all(|path| is_own(path))
            && marker.files.iter().all(|part| is_own(&part.path) && is_own(part.object()));
        if is_sane && marker.own_files().next().is_some() && marker.own_files().all(is_there) {
            markers.push(marker);
        }
    }
    // Earlier versions copied what a program had written beside its checkpoints.
    let states = Evidence::of(markers.iter().map(Marker::thing));
    markers.retain(|marker| !states.is_against(&marker.thing()));
    scan::sort_newest_first(&mut markers, Marker::place);
    Ok(markers)
}

/// Whether what a marker stands for is newer than all that the directory has.
pub fn is_newer(marker: &Marker, survey: &Survey) -> bool {
    let newest = survey.complete.first();
    let of_newest = newest.map(|newest| newest.candidate.thing(newest.time));
    let states = Evidence::of(of_newest.into_iter().chain([marker.thing()]));
    if states.is_against(&marker.thing()) {
        return false;
    }
    let newest = newest.filter(|newest| !states.is_against(&newest.candidate.thing(newest.time)));
    let mut both: Vec<(bool, scan::Place)> = vec![(true, marker.place())];
    both.extend(newest.map(|checkpoint| (false, checkpoint.place())));
    scan::sort_newest_first(&mut both, |(_, place)| place.clone());
    let is_first = both.first().is_some_and(|(is_in_bucket, _)| *is_in_bucket);
    is_first && !survey.complete.iter().any(|checkpoint| checkpoint.candidate.path == marker.path)
}

/// Fetches a complete checkpoint.
///
/// It is fetched aside, and gets its name when all of it is there. A program that looks for a file with the name of the
/// newest checkpoint finds this one.
pub fn fetch(bucket: &Bucket, directory: &dyn Store, marker: &Marker) -> Result<(), StoreError> {
    let aside = format!("{OURS}/restore");
    let root = Path::new(directory.place());
    let unwritable = |path: &Path, error: std::io::Error| StoreError::of_io(&path.to_string_lossy(), &error);
    refuse_links(root, &aside)?;
    let fetched = root.join(&aside);
    if fetched.exists() {
        std::fs::remove_dir_all(&fetched).map_err(|error| unwritable(&fetched, error))?;
    }
    for part in marker.own_files() {
        let to = fetched.join(&part.path);
        bucket.download(part.object(), &to)?;
        // So that it counts as the same, and is not sent back.
        if let Some(time) = part.modified {
            let file =
                std::fs::File::options().write(true).open(&to).map_err(|error| unwritable(&to, error))?;
            file.set_modified(time.into()).map_err(|error| unwritable(&to, error))?;
        }
    }
    for path in &marker.roots {
        if directory.exists(path)? {
            directory.rename(path, &format!("{}/{path}.{}", crate::store::QUARANTINE, Timestamp::now()))?;
        }
        directory.rename(&format!("{aside}/{path}"), path)?;
    }
    if let Some((path, content)) = marker.pointer() {
        directory.write(&path, content.as_bytes())?;
    }
    Ok(())
}

/// Sends checkpoints, one at a time, beside the looking.
pub struct Mirror {
    jobs: Sender<Job>,
    outcomes: Receiver<Outcome>,
    /// What has arrived, by path.
    arrived: HashMap<String, Marker>,
    under_way: Option<String>,
    problem: Option<String>,
    /// What changed while it was sent, and how many times in a row.
    hasty: HashMap<String, u32>,
    is_refused: bool,
    rest_until: Duration,
    /// What is not this job's to remove.
    untouchable: Vec<Marker>,
    bell: Arc<OnceLock<Bell>>,
}

/// Rung when something has been sent, or could not be.
pub type Bell = Box<dyn Fn() + Send + Sync>;

/// Makes a connection.
pub type Open = dyn Fn() -> Result<Bucket, StoreError> + Send + Sync;

struct Job {
    root: PathBuf,
    marker: Marker,
    /// What has arrived of the same path.
    earlier: Option<Marker>,
    /// Whether it is the newest of all: others are not named as that.
    is_newest: bool,
    keep: usize,
    /// Paths that stay.
    protected: BTreeSet<String>,
    /// Names that stay, wherever they are.
    best: Vec<String>,
    untouchable: Vec<Marker>,
}

/// What is to stay of what was sent, besides the newest.
#[derive(Clone, Debug, Default)]
pub struct Spared {
    /// Paths.
    pub paths: BTreeSet<String>,
    /// Names of what a program has found to be the best, wherever they are. After a restart they are in the bucket only.
    pub best: Vec<String>,
}

enum Outcome {
    Sent(Marker, Cleaning),
    /// It changed or went away in the meantime. Its path.
    Moot(String),
    Failed(StoreError),
}

/// What became of the old checkpoints in the bucket.
#[derive(Default)]
struct Cleaning {
    /// Paths.
    removed: Vec<String>,
    problem: Option<StoreError>,
}

impl Mirror {
    /// `open` makes a connection for the thread that sends.
    pub fn new(open: Arc<Open>) -> Self {
        let (jobs, received) = channel::<Job>();
        let (tell, outcomes) = channel();
        let bell = Arc::new(OnceLock::<Bell>::new());
        let ring = bell.clone();
        std::thread::spawn(move || {
            let mut bucket = None;
            for job in received {
                // What is missing for it, such as a file with credentials, may have come by now.
                let outcome = match bucket.take().map_or_else(&*open, Ok) {
                    Ok(opened) => send(bucket.insert(opened), job),
                    Err(error) => Outcome::Failed(error),
                };
                // Credentials are read anew: files may have been corrected.
                if matches!(&outcome, Outcome::Failed(error) if error.is_about_credentials()) {
                    bucket = None;
                }
                if tell.send(outcome).is_err() {
                    return;
                }
                if let Some(ring) = ring.get() {
                    ring();
                }
            }
        });
        let (arrived, rest_until) = (HashMap::new(), Duration::ZERO);
        let untouchable = Vec::new();
        Self {
            jobs,
            outcomes,
            arrived,
            under_way: None,
            problem: None,
            hasty: HashMap::new(),
            is_refused: false,
            rest_until,
            untouchable,
            bell,
        }
    }

    /// Rings this from now on; the first one counts.
    pub fn rings(&self, bell: Bell) {
        let _ = self.bell.set(bell);
    }

    /// Never removes these.
    pub fn spares(&mut self, markers: &[Marker]) {
        self.untouchable.extend_from_slice(markers);
    }

    /// Ends the break after an upload that failed.
    pub fn hurry(&mut self) {
        self.rest_until = Duration::ZERO;
    }

    /// What an agent before this one sent.
    pub fn knows(&mut self, markers: Vec<Marker>) {
        self.arrived.extend(markers.into_iter().map(|marker| (marker.path.clone(), marker)));
    }

    pub fn has(&self, checkpoint: &Checkpoint, tree: &Tree) -> bool {
        self.arrived
            .get(&checkpoint.candidate.path)
            .is_some_and(|marker| marker.is_same(&Marker::of(checkpoint, tree)))
    }

    /// The newest that has arrived, also of agents before this one, unless it is not to be used.
    pub fn newest(&self) -> Option<&Marker> {
        let mut usable: Vec<&Marker> =
            self.arrived.values().filter(|marker| !self.untouchable.contains(marker)).collect();
        let states = Evidence::of(usable.iter().map(|marker| marker.thing()));
        usable.retain(|marker| !states.is_against(&marker.thing()));
        scan::sort_newest_first(&mut usable, |marker| marker.place());
        usable.first().copied()
    }

    /// What has arrived of an earlier save of this path, unless it is not to be used.
    pub fn earlier(&self, path: &str) -> Option<&Marker> {
        self.arrived.get(path).filter(|marker| !self.untouchable.contains(marker))
    }

    pub fn under_way(&self) -> Option<&str> {
        self.under_way.as_deref()
    }

    /// Was what was sent last refused?
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    pub fn problems(&self) -> Vec<String> {
        let hasty = self.hasty.iter().filter(|(_, times)| **times >= HASTE).map(|(path, _)| {
            format!(
                "{path} is saved again before it has been copied, so that the bucket does not get it: save less often, or \
                 under another name each time (with the step in it), or write to another name and rename it"
            )
        });
        self.problem.iter().cloned().chain(hasty).collect()
    }

    /// Notes what has happened since.
    pub fn catch_up(&mut self, elapsed: Duration) {
        while let Ok(outcome) = self.outcomes.try_recv() {
            self.note(outcome, elapsed);
        }
    }

    /// Waits for what is under way. Tells whether it has arrived.
    pub fn finish(&mut self, elapsed: Duration) -> bool {
        if self.under_way.is_none() {
            return false;
        }
        let Ok(outcome) = self.outcomes.recv() else { return false };
        let has_arrived = matches!(outcome, Outcome::Sent(..));
        self.note(outcome, elapsed);
        has_arrived
    }

    fn note(&mut self, outcome: Outcome, elapsed: Duration) {
        self.under_way = None;
        self.is_refused = matches!(&outcome, Outcome::Failed(error) if error.is_refusal());
        match outcome {
            Outcome::Sent(marker, Cleaning { removed, problem }) => {
                self.problem = problem
                    .map(|error| format!("old checkpoints could not be removed from the bucket: {error}"));
                self.hasty.remove(&marker.path);
                self.arrived.retain(|path, _| !removed.contains(path));
                self.arrived.insert(marker.path.clone(), marker);
            }
            Outcome::Moot(path) => *self.hasty.entry(path).or_default() += 1,
            Outcome::Failed(error) => {
                self.problem = Some(format!("a checkpoint could not be copied: {error}"));
                self.rest_until = elapsed + BREAK;
            }
        }
    }

    /// Sends the first of these that has not arrived and does not change all the time, and removes none of them. Tells whether there is anything under way
    /// now. `spared` is asked only if something is sent.
    pub fn offer(
        &mut self,
        root: &str,
        (survey, keep): (&Survey, usize),
        newest_first: &[&Checkpoint],
        spared: impl FnOnce() -> Spared,
        elapsed: Duration,
    ) -> bool {
        // What is not to be copied any more is no problem.
        self.hasty.retain(|path, _| newest_first.iter().any(|checkpoint| checkpoint.candidate.path == *path));
        if self.under_way.is_some() {
            return true;
        }
        if elapsed < self.rest_until {
            return false;
        }
        // What changed while it was sent may do so for ever: the others come first.
        let haste = |checkpoint: &Checkpoint| self.hasty.get(&checkpoint.candidate.path).copied();
        let unsent = newest_first.iter().filter(|checkpoint| !self.has(checkpoint, &survey.tree));
        let Some(next) = unsent.min_by_key(|checkpoint| haste(checkpoint)) else {
            return false;
        };
        let marker = Marker::of(next, &survey.tree);
        let earlier = self.arrived.get(&marker.path).cloned();
        self.under_way = Some(marker.path.clone());
        let offered = newest_first.iter().map(|checkpoint| checkpoint.candidate.path.as_str());
        let Spared { paths: mut protected, best } = spared();
        protected.extend(offered.map(str::to_owned));
        let untouchable = self.untouchable.clone();
        let is_newest = newest_first.first().is_some_and(|first| first.candidate.path == marker.path);
        let root = PathBuf::from(root);
        let job = Job { root, marker, earlier, is_newest, keep, protected, best, untouchable };
        if self.jobs.send(job).is_err() {
            self.under_way = None;
        }
        self.under_way.is_some()
    }
}

fn send(bucket: &Bucket, mut job: Job) -> Outcome {
    let sent = placed(bucket, &mut job).and_then(|place| match place {
        Place::Taken => Ok(true),
        Place::Free => try_to_send(bucket, &job),
    });
    match sent {
        Ok(true) => {
            // It is there, whatever becomes of the old ones.
            let cleaning = retain(bucket, &job);
            Outcome::Sent(job.marker, cleaning)
        }
        // What vanished is a file of the directory, since nothing of the bucket was needed.
        Ok(false) | Err(StoreError::Vanished(_)) => Outcome::Moot(job.marker.path),
        Err(error) => Outcome::Failed(error),
    }
}

enum Place {
    Free,
    /// By the same save.
    Taken,
}

/// Finds the place beside the earlier save. The bucket is asked which that is: a marker may have been written although nobody heard of
/// it, and then what it names must not be written over. It may be of this very save, which then need not be sent again.
fn placed(bucket: &Bucket, job: &mut Job) -> Result<Place, StoreError> {
    // Its object is replaced as a whole.
    if job.marker.is_one_file() {
        return Ok(Place::Free);
    }
    let name = Marker::name(&job.marker.path);
    job.earlier = match bucket.read(&name, 0..LARGEST_MARKER) {
        Ok(content) => serde_json::from_slice(&content).ok(),
        Err(StoreError::Vanished(_)) => None,
        Err(error) => return Err(error),
    };
    if job.earlier.as_ref().is_some_and(|earlier| earlier.is_same(&job.marker))
        && let Some(marker) = markers(bucket)?.into_iter().find(|marker| marker.is_same(&job.marker))
    {
        (job.marker, job.earlier) = (marker, None);
        return Ok(Place::Taken);
    }
    job.marker = job.earlier.iter().fold(job.marker.clone(), Marker::beside);
    Ok(Place::Free)
}

fn try_to_send(bucket: &Bucket, job: &Job) -> Result<bool, StoreError> {
    let Job { root, marker, earlier, is_newest, .. } = job;
    let name = Marker::name(&marker.path);
    // One that does not count now must not begin to, of files of two saves.
    if earlier.is_none() && !marker.is_one_file() {
        bucket.remove(&name, &[&name])?;
    }
    for part in &marker.files {
        // A program that writes over its own checkpoint may do so while we read it.
        if !bucket.upload(&root.join(&part.path), part.object(), &|metadata| part.is(metadata))? {
            return Ok(false);
        }
    }
    // For people who fetch it by hand.
    if let Some((path, content)) = marker.pointer().filter(|_| *is_newest) {
        bucket.write(&path, content.as_bytes())?;
    }
    let content = serde_json::to_vec(marker)
        .map_err(|error| StoreError::Other { place: name.clone(), reason: error.to_string() })?;
    bucket.write(&name, &content)?;
    Ok(true)
}

/// Removes what may go from the bucket; markers first.
fn retain(bucket: &Bucket, job: &Job) -> Cleaning {
    let mut cleaning = Cleaning::default();
    cleaning.problem = try_to_retain(bucket, job, &mut cleaning.removed).err();
    cleaning
}

fn try_to_retain(bucket: &Bucket, job: &Job, removed: &mut Vec<String>) -> Result<(), StoreError> {
    let replaced = replaced(job);
    if job.keep == 0 && replaced.is_empty() {
        return Ok(());
    }
    let all = markers(bucket)?;
    let goes = going(&all, job);
    // An object may be of several: files that came one after another were sent first by themselves, and then together.
    let others = all.iter().filter(|marker| !goes.iter().any(|old| std::ptr::eq(*old, *marker)));
    let stays: BTreeSet<&str> =
        others.chain([&job.marker]).flat_map(|marker| &marker.files).map(Part::object).collect();
    let replaced: Vec<&str> = replaced.into_iter().filter(|object| !stays.contains(object)).collect();
    bucket.remove(&job.marker.path, &replaced)?;
    for marker in goes {
        let name = Marker::name(&marker.path);
        let files = marker.own_files().map(Part::object).filter(|object| !stays.contains(object));
        let files: Vec<&str> = std::iter::once(name.as_str()).chain(files).collect();
        // Without its marker it counts no more, even if the rest cannot be removed.
        removed.push(marker.path.clone());
        bucket.remove(tree::parent(&marker.path), &files)?;
    }
    Ok(())
}

/// Objects of the earlier save of the same path. If an agent is killed before they go, they are written over by the save
/// after the next.
fn replaced(job: &Job) -> Vec<&str> {
    let stays: BTreeSet<&str> = job.marker.files.iter().map(Part::object).collect();
    let earlier = job.earlier.iter().flat_map(Marker::own_files).map(Part::object);
    earlier.filter(|object| !stays.contains(object)).collect()
}

/// What is surplus, and what was only a part of another.
fn going<'a>(all: &'a [Marker], job: &Job) -> Vec<&'a Marker> {
    let Job { keep, best, untouchable, .. } = job;
    if *keep == 0 {
        return Vec::new();
    }
    let is_best =
        |marker: &&Marker| marker.roots.iter().any(|root| best.iter().any(|name| name == tree::name(root)));
    let mut protected = job.protected.clone();
    protected.extend(all.iter().filter(is_best).map(|marker| marker.path.clone()));
    let own = all.iter().filter(|marker| !untouchable.contains(marker));
    let is_part = |marker: &&Marker| {
        !protected.contains(&marker.path) && all.iter().any(|other| marker.is_part_of(other))
    };
    let (mut parts, whole): (Vec<&Marker>, Vec<&Marker>) = own.partition(is_part);
    parts.extend(upkeep::surplus(whole, *keep, &protected));
    parts
}
