//! Watches: a cursor into the history of a kind, moved on whenever something happens.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use futures::stream::unfold;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

use super::render::{Form, View};
use super::select::Selection;
use crate::error::{ApiError, Result};
use crate::kinds::Kind;
use crate::shared::Shared;
use crate::state::State;
use crate::store::Object;

/// How often a watcher that wants to know is told how far it is.
const BOOKMARK: Duration = Duration::from_mins(1);
/// How long a watch lasts if it does not say.
const DEFAULT_TIMEOUT: Duration = Duration::from_hours(1);
/// So much is sent in one piece at most, so that a long history does not need much memory at once.
const PIECE: usize = 256 << 10;

/// What a watch is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchOptions {
    pub(crate) resource_version: String,
    pub(crate) version_match: String,
    pub(crate) bookmarks: bool,
    pub(crate) send_initial: Option<bool>,
    pub(crate) timeout: Option<u64>,
}

/// One watch under way.
#[expect(clippy::struct_excessive_bools, reason = "two are the caller's, two are how far it is")]
struct Watch {
    shared: Arc<Shared>,
    kind: Arc<Kind>,
    version: String,
    form: Form,
    selection: Selection,
    signal: Receiver<u64>,
    cursor: u64,
    initial: Option<VecDeque<Arc<Object>>>,
    /// Tell when the initial objects are all sent.
    tell_initial_end: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    sent: bool,
    done: bool,
}

/// Starts a watch: everything that can be refused is refused here.
pub(crate) fn start(
    shared: &Arc<Shared>,
    kind: &Arc<Kind>,
    version: &str,
    form: Form,
    selection: Selection,
    options: &WatchOptions,
) -> Result<impl Stream<Item = Result<Bytes, io::Error>> + Send + use<>> {
    check(options)?;
    let signal = shared.signal(&kind.resource);
    let state = shared.lock();
    let given = options.resource_version.as_str();
    let from_start = given.is_empty() || given == "0";
    let wanted = if from_start { 0 } else { super::list::parse_revision(given)? };
    let send_initial = options.send_initial.unwrap_or(false);
    let wants_objects = match options.send_initial {
        Some(wants) => wants,
        None => from_start,
    };
    let (cursor, initial) = if wants_objects {
        let objects = state.store.list(&kind.resource, &selection.namespace);
        let objects = objects.filter(|object| selection.matches(object)).cloned().collect();
        (state.store.revision(), Some(objects))
    } else if from_start {
        (state.store.revision(), None)
    } else {
        (wanted, None)
    };
    drop(state);
    let now = Instant::now();
    let watch = Watch {
        shared: shared.clone(),
        kind: kind.clone(),
        version: version.to_owned(),
        form,
        selection,
        signal,
        cursor,
        initial,
        tell_initial_end: send_initial && options.bookmarks,
        bookmarks: options.bookmarks,
        next_bookmark: now + BOOKMARK,
        deadline: now
            + options.timeout.filter(|seconds| *seconds > 0).map_or(DEFAULT_TIMEOUT, Duration::from_secs),
        sent: false,
        done: false,
    };
    Ok(unfold(watch, |mut watch| async move {
        let piece = watch.next().await?;
        Some((Ok(piece), watch))
    }))
}

fn check(options: &WatchOptions) -> Result<()> {
    let forbidden = |why: &str| Err(super::list::invalid_list(why));
    match (options.send_initial, options.version_match.as_str()) {
        (None, "") | (Some(_), "NotOlderThan") => Ok(()),
        (None, _) => forbidden(
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        (Some(_), _) => forbidden(
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
    }
}

impl Watch {
    /// The next piece of the answer: one or more events.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.done {
                return None;
            }
            self.signal.borrow_and_update();
            let mut out = Vec::new();
            self.collect(&mut out);
            if !out.is_empty() {
                self.sent = true;
                return Some(out.into());
            }
            if self.done {
                return None;
            }
            let bookmark_at =
                if self.bookmarks { self.next_bookmark.min(self.deadline) } else { self.deadline };
            tokio::select! {
                changed = self.signal.changed() => {
                    if changed.is_err() {
                        return None;
                    }
                }
                () = sleep_until(bookmark_at) => {
                    let over = Instant::now() >= self.deadline;
                    self.done = over;
                    if self.bookmarks {
                        self.next_bookmark = Instant::now() + BOOKMARK;
                        let mut out = Vec::new();
                        self.bookmark(&mut out);
                        return Some(out.into());
                    }
                }
            }
        }
    }

    fn bookmark(&mut self, out: &mut Vec<u8>) {
        // What happened up to now was sent, or was not for this watcher, unless the cursor is ahead of us.
        let shared = self.shared.clone();
        let kind = self.kind.clone();
        let state = shared.lock();
        if let Some(view) = view(&kind, &self.version, self.form, &state) {
            self.follow(&state, view, out);
            view.bookmark(self.cursor.max(1), false, out);
        }
    }

    /// Everything that there is to tell now.
    fn collect(&mut self, out: &mut Vec<u8>) {
        let shared = self.shared.clone();
        let kind = self.kind.clone();
        let version = self.version.clone();
        let state = shared.lock();
        // A kind whose definition went, or lost this version, has nobody to tell of it.
        let known =
            state.kinds.find(&kind.group, &kind.plural).is_some_and(|now| now.version(&version).is_some());
        let Some(view) = view(&kind, &version, self.form, &state).filter(|_| known) else {
            self.done = true;
            return;
        };
        if let Some(initial) = &mut self.initial {
            while let Some(object) = initial.pop_front() {
                view.event("ADDED", &object, !self.sent && out.is_empty(), out);
                if out.len() > PIECE {
                    return;
                }
            }
            self.initial = None;
            if self.tell_initial_end {
                view.bookmark(self.cursor, true, out);
            }
        }
        self.follow(&state, view, out);
    }

    fn follow(&mut self, state: &State, view: View<'_>, out: &mut Vec<u8>) {
        let changes = match state.store.changes(&self.kind.resource, self.cursor) {
            Ok(changes) => changes,
            Err(forgotten) => {
                let error = ApiError::expired(format!(
                    "too old resource version: {} ({})",
                    self.cursor, forgotten.oldest
                ));
                out.extend_from_slice(
                    json!({"type": "ERROR", "object": error.status()}).to_string().as_bytes(),
                );
                out.push(b'\n');
                self.done = true;
                return;
            }
        };
        for change in changes {
            self.cursor = change.revision;
            let first = !self.sent && out.is_empty();
            let before = change.before.as_deref().is_some_and(|before| self.selection.matches(before));
            let after = !change.deleted && self.selection.matches(&change.object);
            match (before, after) {
                (false, true) => view.event("ADDED", &change.object, first, out),
                (true, true) => view.event("MODIFIED", &change.object, first, out),
                (true, false) if change.deleted => view.event("DELETED", &change.object, first, out),
                (true, false) => {
                    // It left the selection: its last form in it, at the revision at which it left.
                    let mut last = change.before.as_deref().map(Object::value).unwrap_or_default();
                    if let Some(metadata) = last.get_mut("metadata").and_then(Value::as_object_mut) {
                        metadata.remove("resourceVersion");
                    }
                    view.event("DELETED", &Object::new(last, change.revision), first, out);
                }
                (false, false) => {}
            }
            if out.len() > PIECE {
                return;
            }
        }
        self.cursor = self.cursor.max(state.store.revision());
    }
}

fn view<'a>(kind: &'a Kind, version: &str, form: Form, state: &State) -> Option<View<'a>> {
    Some(View { kind, version: kind.version(version)?, form, now: state.now() })
}
