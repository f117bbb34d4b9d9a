//! The way back: from the bucket into the directory.

use std::path::Path;

use jiff::Timestamp;

use super::marker::Marker;
use crate::outputs::Evidence;
use crate::scan::{self, Survey};
use crate::store::{Bucket, OURS, QUARANTINE, Store, StoreError, refuse_links};
use crate::upkeep::Kept;

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
            directory.rename(path, &format!("{}/{path}.{}", QUARANTINE, Timestamp::now()))?;
        }
        directory.rename(&format!("{aside}/{path}"), path)?;
    }
    if let Some((path, content)) = marker.pointer() {
        directory.write(&path, content.as_bytes())?;
    }
    Ok(())
}
