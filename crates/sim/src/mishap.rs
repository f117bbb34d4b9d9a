//! What goes wrong in a history, and what it comes to: histories to which nothing happens show nothing.

use crate::port::Fate;

/// Something that happened in a history, or that it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mishap {
    /// A call was not answered as the API server would have.
    Call(Fate),
    /// An operator died.
    Crash,
    /// An event never came.
    Lost,
    /// An event came later than others that happened after it.
    Late,
    /// An event came twice.
    Twice,
    /// Two operators were there at once.
    Rival,
    /// A write happened when nobody waited for it any more.
    Landed,
    /// A limit of restarts above 0 was used up.
    LimitUsedUp,
    /// The same failure too often was the end.
    SameFailure,
    /// A worker that was replaced alone failed again.
    FailedAgain,
    /// An attempt ended for this cause.
    Ended(&'static str),
    /// Somebody set the clock of the operators' machine.
    ClockSet,
    /// The node of a pod did not answer any more.
    NodeLost,
    /// It was announced that the node of a pod will be taken away.
    Announced,
    /// A user changed what is to be done about what happens to a job that had begun.
    PolicyChanged,
    /// What is not ours stood under a name of ours, or beside it.
    Stranger,
    /// Nothing was written at rest: in the middle of a history, while the job ran, was suspended, waited, or for a quota.
    QuietRunning,
    QuietSuspended,
    QuietBackoff,
    QuietQuota,
}
