//! Reading: one object, lists in pages, and watches.

pub(crate) mod list;
pub(crate) mod render;
pub(crate) mod select;
pub(crate) mod watch;
