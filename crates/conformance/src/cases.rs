//! All cases, by area.

use futures::future::LocalBoxFuture;

use crate::sandbox::Sandbox;

mod apply;
mod clients;
mod cluster;
mod concurrent;
mod create;
mod custom;
mod definitions;
mod delete;
mod discovery;
mod patch;
mod read;
mod refused;
mod subresources;
mod update;
mod watch;

/// One thing that an API server does.
#[derive(Clone, Copy)]
pub struct Case {
    /// The part of the API that it is about.
    pub area: &'static str,
    /// What the server does, as a sentence.
    pub name: &'static str,
    /// Fails by panicking.
    pub run: fn(Sandbox) -> LocalBoxFuture<'static, ()>,
}

/// The table of an area: a sentence for each function.
macro_rules! cases {
    ($area:literal: $($name:literal => $run:path,)*) => {
        pub(super) const CASES: &[$crate::cases::Case] = &[
            $($crate::cases::Case { area: $area, name: $name, run: |sandbox| Box::pin($run(sandbox)) },)*
        ];
    };
}
use cases;

/// Every case, in the order of the areas.
pub fn all() -> impl Iterator<Item = Case> {
    let areas = [
        create::CASES,
        read::CASES,
        update::CASES,
        subresources::CASES,
        patch::CASES,
        apply::CASES,
        watch::CASES,
        delete::CASES,
        custom::CASES,
        definitions::CASES,
        discovery::CASES,
        cluster::CASES,
        concurrent::CASES,
        clients::CASES,
        refused::CASES,
    ];
    areas.into_iter().flatten().copied()
}
