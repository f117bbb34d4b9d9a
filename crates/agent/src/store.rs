//! Where checkpoints are kept: the few things that the agent does with storage, and what can go wrong with them.
//!
//! Paths are relative to the place, with slashes, whatever the place is. Everything that the agent itself makes is
//! below [`OURS`], which no listing shows.

mod bucket;
mod directory;
mod foreign;
mod http;

use std::ops::Range;

use jiff::Timestamp;

use crate::room::Room;

pub use bucket::Bucket;
pub use directory::Directory;
pub(crate) use directory::refuse_links;

/// What the agent keeps for itself, below the place.
pub const OURS: &str = ".trainyard";

/// Where partial checkpoints go.
pub const QUARANTINE: &str = ".trainyard/quarantine";

/// A place with checkpoints.
///
/// The methods wait: the agent does one thing after another, and a checkpoint is judged by a plain function.
pub trait Store {
    /// The place as the user wrote it; reported paths begin with it.
    fn place(&self) -> &str;

    /// Everything that is there, without what is [`OURS`].
    fn list(&self) -> Result<Listing, StoreError>;

    /// Part of a file. Less than asked for if the file has become shorter.
    fn read(&self, path: &str, range: Range<u64>) -> Result<Vec<u8>, StoreError>;

    /// Writes a small file of our own, whole or not at all.
    fn write(&self, path: &str, content: &[u8]) -> Result<(), StoreError>;

    /// Moves a file, or a directory with all that is in it.
    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError>;

    /// Is there anything under this path? Also asked about what is ours.
    fn exists(&self, path: &str) -> Result<bool, StoreError>;

    /// Does a rename happen at once or not at all? Frameworks do without in buckets, and mark what is complete.
    fn renames_at_once(&self) -> bool;

    /// Removes a file or a directory for good. `files` is what is known to be in it, in the order in which it should go:
    /// wherever a removal is cut off, what is left must not look complete.
    fn remove(&self, root: &str, files: &[&str]) -> Result<(), StoreError>;

    /// When a small file of our own was written, by the clock of the place; nothing if nobody can tell.
    fn written(&self, _path: &str) -> Option<Timestamp> {
        None
    }

    /// How much more fits in; nothing if there is no limit, or nobody can tell.
    fn room(&self) -> Option<Room> {
        None
    }
}

/// What a listing found, and what it could not look at.
#[derive(Debug, Default)]
pub struct Listing {
    pub entries: Vec<Entry>,
    pub problems: Vec<StoreError>,
    /// There may be more than the entries.
    pub is_incomplete: bool,
}

/// A file, a directory or a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub path: String,
    pub kind: Kind,
    /// Nothing if the place has no time for it (directories of a bucket), or none that can be expressed.
    pub modified: Option<Timestamp>,
    /// Differs when the file was replaced by another one: an inode number, or a hash of a bucket's tag.
    pub tag: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    File {
        size: u64,
    },
    Directory,
    /// A link that is not followed. `target` is where it leads if that is inside of the place, and exists.
    Link {
        target: Option<String>,
    },
}

impl Entry {
    /// Bytes of a file; none for anything else.
    pub fn size(&self) -> u64 {
        match self.kind {
            Kind::File { size } => size,
            Kind::Directory | Kind::Link { .. } => 0,
        }
    }

    pub fn is_file(&self) -> bool {
        matches!(self.kind, Kind::File { .. })
    }
}

/// What went wrong, said so that the reader knows what to do.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum StoreError {
    #[error("{0} is gone")]
    Vanished(String),
    #[error(
        "no permission for {0}: let the agent's user read and write there, for example with securityContext.fsGroup in \
         the pod's template"
    )]
    Denied(String),
    #[error("no space left for {0}: make the volume larger, or keep fewer checkpoints (checkpoint.keepLast)")]
    NoSpace(String),
    #[error("{0} is read-only: mount it with write access")]
    ReadOnly(String),
    #[error(
        "the checkpoint directory {0} is not there: check checkpoint.directory and the mount of its volume"
    )]
    Missing(String),
    #[error("{0} is not a directory: name one in checkpoint.directory")]
    NotADirectory(String),
    #[error(
        "{0} is a link: nothing is moved or removed there, since it leads elsewhere; remove the link, and give the agent a \
         directory of its own in its place"
    )]
    Link(String),
    #[error(
        "there are more than {limit} files in {place}; the rest is not looked at: give checkpoints a directory of their own"
    )]
    TooMany { place: String, limit: usize },
    #[error("the bucket {0} does not exist: create it, or correct checkpoint.storage.path")]
    NoBucket(String),
    #[error(
        "the credentials for {0} were refused: check the secret or the service account that the pod gets them from, and what \
         they allow"
    )]
    Refused(String),
    #[error(
        "there are no credentials for {0}: give the pod some, by a secret in its environment or by its service account"
    )]
    NoCredentials(String),
    #[error(
        "the credentials for {place} cannot be used: check GOOGLE_APPLICATION_CREDENTIALS, and what its file is mounted from; it \
         has to be the key of a service account, or what gcloud has noted of a person ({reason})"
    )]
    BadCredentials { place: String, reason: String },
    #[error(
        "{0} cannot be reached by https: where the agent runs are no certificates of authorities; install some (ca-certificates) \
         in its image, or mount them and name their file in SSL_CERT_FILE"
    )]
    NoAuthorities(String),
    #[error("{place} cannot be reached: check the endpoint, the region and the network policy ({reason})")]
    Unreachable { place: String, reason: String },
    #[error(
        "{file} is too large to be copied, since it has more than {limit} bytes: save in several files, or keep checkpoints in a \
         claim (checkpoint.storage.type: pvc)"
    )]
    TooLarge { file: String, limit: u64 },
    #[error(
        "{place} has objects whose names are no paths, such as {name}: they are not looked at; remove them, or give the job \
         another checkpoint.storage.path"
    )]
    Foreign { place: String, name: String },
    #[error("{place} is no place for checkpoints: correct checkpoint.storage.path ({reason})")]
    NoPlace { place: String, reason: String },
    #[error("{path} cannot be the name of an object: save under another name ({reason})")]
    BadName { path: String, reason: String },
    #[error(
        "{place} cannot be used: check the volume that it is on, and what the node's log says about it ({reason})"
    )]
    Other { place: String, reason: String },
}

impl StoreError {
    /// Does it take a person to mend it? Others may pass.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Refused(_) | Self::NoCredentials(_) | Self::BadCredentials { .. } | Self::Denied(_)
        )
    }

    /// Is it about who we are? Credentials may be corrected while we wait.
    pub fn is_about_credentials(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::NoCredentials(_) | Self::BadCredentials { .. })
    }

    /// What the system says about a path, in our words.
    pub fn of_io(path: &str, error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let path = path.to_owned();
        match error.kind() {
            ErrorKind::NotFound => Self::Vanished(path),
            ErrorKind::PermissionDenied => Self::Denied(path),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::NoSpace(path),
            ErrorKind::ReadOnlyFilesystem => Self::ReadOnly(path),
            _ => Self::Other { place: path, reason: error.to_string() },
        }
    }
}
