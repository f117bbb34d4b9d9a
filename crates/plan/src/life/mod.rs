//! The life of a job: which of its chapters it is in, one file each.

mod backoff;
mod budget;
mod deadlines;
mod deletion;
mod describe;
mod ending;
mod finished;
mod force;
mod invalid;
mod judge;
mod nudge;
mod policy;
mod report;
mod running;
mod single;
mod staffing;
mod suspension;

pub use force::due as force_due;
pub use invalid::UNREADABLE;
use jiff::Timestamp;
use trainyard_api::{Problem, Severity, names, validate};

use self::running::Before;
use crate::draft::Draft;
use crate::plan::{Plan, StatusWrite, Step};
use crate::settings::Settings;
use crate::snapshot::Snapshot;

/// What to do about this job now.
pub fn plan(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let job = &snapshot.job;
    if job.spec.managed_by.as_deref().is_some_and(|manager| manager != names::CONTROLLER_NAME) {
        return idle(snapshot);
    }
    if job.metadata.deletion_timestamp.is_some() {
        return deletion::plan(snapshot, settings, now);
    }
    let mut draft = Draft::new(snapshot, settings, now);
    report::hung(&mut draft);
    draft.stage(force::steps(snapshot, settings, now));
    if let Some(next) = force::next(snapshot, settings, now) {
        draft.wake(next);
    }
    if !has_finalizer(snapshot) {
        add_finalizer(&mut draft);
    }
    let problems: Vec<Problem> = validate(job, &settings.gpu_resource)
        .into_iter()
        .filter(|problem| problem.severity == Severity::Error)
        .collect();
    let was_unreadable = invalid::was_unreadable(&draft.status);
    let was_invalid = was_unreadable || invalid::is_the_reason(&draft.status);
    let is_over = draft.status.is_terminal() && !was_invalid;
    // What happened before somebody stopped the job, or changed its spec into one that cannot run, comes first.
    let stops = !is_over && (job.spec.suspended() || !problems.is_empty());
    let before = if stops { running::before_it_stops(&draft) } else { Before::Nothing };
    match before {
        Before::Unclear(until) => draft.wake(until),
        Before::Undecided => running::advance(&mut draft),
        Before::Nothing if is_over => finished::tidy(&mut draft),
        Before::Nothing if !problems.is_empty() => invalid::fail(&mut draft, &problems),
        // Refused by the API server when its pods were created: only another spec can help.
        Before::Nothing
            if was_invalid
                && !was_unreadable
                && draft.status.observed_generation == Some(snapshot.generation()) =>
        {
            finished::tidy(&mut draft);
        }
        Before::Nothing => {
            if was_invalid {
                invalid::forgive(&mut draft);
            }
            if job.spec.suspended() {
                suspension::hold(&mut draft);
            } else {
                suspension::release(&mut draft);
                running::advance(&mut draft);
            }
        }
    }
    draft.finish()
}

fn has_finalizer(snapshot: &Snapshot) -> bool {
    snapshot.job.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == names::FINALIZER)
}

/// All that a job makes goes with it by owner references, finalizer or not; only a claim that is to be removed with
/// the job needs the finalizer before it exists. Otherwise it can wait for the report, and the pods come first.
fn add_finalizer(draft: &mut Draft<'_>) {
    if draft.snapshot.job.spec.delete_checkpoints_with_job() {
        draft.stage(vec![Step::AddFinalizer]);
    } else if !draft.status.is_terminal() {
        draft.chores.push(Step::AddFinalizer);
    }
}

/// Nothing at all.
fn idle(snapshot: &Snapshot) -> Plan {
    Plan {
        status: snapshot.job.status.clone().unwrap_or_default(),
        write: StatusWrite::Not,
        gone: Vec::new(),
        hanging: Vec::new(),
        stages: Vec::new(),
        chores: Vec::new(),
        notices: Vec::new(),
        wake_at: None,
    }
}
