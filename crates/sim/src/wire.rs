//! Writes that are on their way when nobody waits for them any more: their caller was answered with a time-out, or is dead. The API
//! server carries them out all the same, some time later, and judges them by what is there then.

use jiff::{SignedDuration, Timestamp};

use crate::server::{Actor, Server};

/// An API server gives up a request after a minute (`--request-timeout`): whoever sent it and died may be obeyed for so long.
const AFTER_DEATH: SignedDuration = SignedDuration::from_secs(60);

/// The operator waits for half of that, and may be obeyed for the other half.
const AFTER_TIMEOUT: SignedDuration = SignedDuration::from_secs(30);

/// What it does when it lands.
pub(crate) type Landing = Box<dyn FnOnce(&mut Server, Actor) + Send>;

/// A write that lands later.
pub struct Late {
    pub(crate) by: Actor,
    /// In words, if somebody wants to read them.
    pub(crate) what: String,
    /// The version at which it was sent.
    pub(crate) sent: u64,
    /// It has landed by then.
    pub(crate) due: Timestamp,
    pub(crate) landing: Landing,
}

impl Server {
    /// From now on, nobody waits for this any more.
    pub(crate) fn set_adrift(&mut self, by: Actor, what: String, died: bool, landing: Landing) {
        let due = self.now + if died { AFTER_DEATH } else { AFTER_TIMEOUT };
        let sent = self.version();
        self.wire.push(Late { by: by.late(), what, sent, due, landing });
    }
}
