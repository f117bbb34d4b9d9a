//! TensorFlow: `ckpt-5.index`, `ckpt-5.data-00000-of-00002` and so on, and a file `checkpoint` that names the newest. And
//! SavedModels: a directory with `saved_model.pb`, in which such files are called `variables/variables`.

use std::collections::BTreeSet;

use crate::formats::bundle::{self, Index};
use crate::formats::protobuf;
use crate::numbers::{self, Numbers};
use crate::store::StoreError;
use crate::tree::{self, Tree};

use super::{Candidate, Claimed, Layout, Proof, Reader, Verdict};

const SAVED_MODEL: &str = "saved_model.pb";

/// What the variables of a SavedModel are called in it.
const VARIABLES: &str = "variables/variables";

/// The file that names the newest.
pub(super) const POINTER: &str = "checkpoint";

pub(super) fn claim(tree: &Tree, claimed: &mut Claimed) {
    claim_saved_models(tree, claimed);
    let files = || tree.entries().filter(|entry| entry.is_file() && !claimed.covers(&entry.path));
    // A lone `.index` can be anybody's; shards are named like nothing else. They are merged in a directory of their own (`_temp`), from
    // which they are moved when they are complete.
    let prefixes: BTreeSet<&str> =
        files().filter_map(|entry| shard(&entry.path).map(|(prefix, ..)| prefix)).collect();
    let mut found = Vec::new();
    for prefix in prefixes {
        let is_part = |path: &str| {
            path == format!("{prefix}.index") || shard(path).is_some_and(|(of, ..)| of == prefix)
        };
        let files: Vec<String> = tree
            .children(tree::parent(prefix))
            .filter(|entry| entry.is_file() && is_part(&entry.path))
            .map(|entry| entry.path.clone())
            .collect();
        found.push(Candidate {
            layout: Layout::TensorFlow,
            path: prefix.to_owned(),
            roots: files.clone(),
            files,
            witnesses: Vec::new(),
        });
    }
    for candidate in found {
        claimed.take(candidate);
    }
}

/// By the variables, which are there before `saved_model.pb`.
fn claim_saved_models(tree: &Tree, claimed: &mut Claimed) {
    let found: Vec<String> = tree
        .directories()
        .filter(|path| !path.is_empty())
        .filter(|path| {
            let variables = tree::join(path, VARIABLES);
            let is_of_variables = |name: &str| shard(name).is_some_and(|(prefix, ..)| prefix == "variables");
            tree.has_file(&tree::join(path, SAVED_MODEL))
                || tree.names(tree::parent(&variables)).any(is_of_variables)
        })
        .map(str::to_owned)
        .collect();
    for path in found {
        if !claimed.covers(&path) {
            claimed.take(Candidate::directory(Layout::TensorFlow, tree, &path));
        }
    }
}

pub(super) fn judge(candidate: &Candidate, reader: &Reader<'_>) -> Result<Verdict, StoreError> {
    let is_saved_model = candidate.roots.as_slice() == [candidate.path.as_str()];
    if !is_saved_model {
        return judge_bundle(&candidate.path, candidate, reader);
    }
    let model = tree::join(&candidate.path, SAVED_MODEL);
    let Some(size) = reader.size(&model) else {
        return Ok(reader.lacking(&model, format!("{SAVED_MODEL} is missing")));
    };
    if !protobuf::is_whole(reader.store, &model, size)? {
        return Ok(Verdict::Partial(format!("{SAVED_MODEL} is cut off")));
    }
    let variables = tree::join(&candidate.path, VARIABLES);
    if !candidate.files.iter().any(|path| path.starts_with(&variables)) {
        return Ok(Verdict::Complete { numbers: numbers::of_name(candidate.name()), proof: Proof::Quiet });
    }
    Ok(match judge_bundle(&variables, candidate, reader)? {
        // What it takes along (vocabularies) is written before, and `fingerprint.pb` after it.
        Verdict::Complete { .. } => {
            Verdict::Complete { numbers: numbers::of_name(candidate.name()), proof: Proof::Quiet }
        }
        other => other,
    })
}

/// The files with this prefix, as the index tells what is in them.
fn judge_bundle(prefix: &str, candidate: &Candidate, reader: &Reader<'_>) -> Result<Verdict, StoreError> {
    let index = format!("{prefix}.index");
    let Some(size) = reader.size(&index) else {
        return Ok(reader.lacking(&index, format!("{} is missing", tree::name(&index))));
    };
    let (shards, proof) = match bundle::read(reader.store, &index, size)? {
        Index::Shards(shards) => (shards, Proof::Content),
        // The names tell how many there are.
        Index::Huge => {
            let count = candidate.files.iter().filter_map(|path| shard(path)).map(|(.., count)| count).max();
            ((0..u64::from(count.unwrap_or_default())).map(|number| (number, 0)).collect(), Proof::Quiet)
        }
        Index::Cut => return Ok(Verdict::Partial(format!("{} is cut off", tree::name(&index)))),
    };
    let count = shards.len();
    for (number, least) in shards {
        let path = format!("{prefix}.data-{number:05}-of-{count:05}");
        match reader.size(&path) {
            None => return Ok(reader.lacking(&path, format!("{} is missing", tree::name(&path)))),
            Some(size) if size < least => {
                return Ok(Verdict::Partial(format!("{} is cut off", tree::name(&path))));
            }
            Some(_) => {}
        }
    }
    Ok(Verdict::Complete { numbers: numbers_of(candidate.name()), proof })
}

/// By words, or by the number behind it all, which TensorFlow and Keras put there: `cp-0010.ckpt`.
fn numbers_of(name: &str) -> Numbers {
    let named = numbers::of_name(name);
    if !named.is_empty() {
        return named;
    }
    let behind = name.strip_suffix(".ckpt").unwrap_or(name).rsplit_once('-');
    let step = behind.and_then(|(_, number)| number.parse::<u32>().ok()).map(i64::from);
    Numbers { step, epoch: None }
}

/// `a/ckpt-5`, 0 and 2 for `a/ckpt-5.data-00000-of-00002`.
fn shard(path: &str) -> Option<(&str, u32, u32)> {
    let (prefix, rest) = path.rsplit_once(".data-")?;
    let (number, count) = rest.split_once("-of-")?;
    let is_five_digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_five_digits(number) || !is_five_digits(count) {
        return None;
    }
    Some((prefix, number.parse().ok()?, count.parse().ok()?))
}

/// The prefix that the file `checkpoint` names, if it is in the same directory.
pub(super) fn named_as_latest(reader: &Reader<'_>, directory: &str) -> Option<String> {
    let text = reader.small_text(&tree::join(directory, POINTER))?;
    let path = text.lines().find_map(|line| path_in(line, NEWEST))?;
    Some(tree::name(path).to_owned())
}

const NEWEST: &str = "model_checkpoint_path:";
const ALL: &str = "all_model_checkpoint_paths:";
const TIMES: &str = "all_model_checkpoint_timestamps:";

fn path_in<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.trim().strip_prefix(key).map(|path| path.trim().trim_matches('"'))
}

/// The file `checkpoint` as it is when this is the newest, and the only one.
pub(super) fn pointer_to(path: &str) -> (String, String) {
    let name = tree::name(path);
    (tree::join(tree::parent(path), POINTER), format!("{NEWEST} \"{name}\"\n{ALL} \"{name}\"\n"))
}

/// The same file without one checkpoint, and with another as the newest. TensorFlow keeps count of all of them in it, with
/// their times.
pub(super) fn repointed(text: &str, from: &str, to: &str) -> String {
    let is_gone = |line: &str| path_in(line, ALL).is_some_and(|path| tree::name(path) == from);
    let gone = text.lines().filter(|line| path_in(line, ALL).is_some()).position(is_gone);
    let mut time = 0;
    let mut lines = Vec::new();
    for line in text.lines() {
        if let Some(path) = path_in(line, NEWEST) {
            let newest = tree::join(tree::parent(path), to);
            lines.push(format!("{NEWEST} \"{newest}\""));
            continue;
        }
        let is_time = line.trim().starts_with(TIMES);
        let is_its_time = is_time && Some(time) == gone;
        time += usize::from(is_time);
        if !is_gone(line) && !is_its_time {
            lines.push(line.to_owned());
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_a_checkpoint_that_has_gone_names_another() {
        let text = "model_checkpoint_path: \"/a/ckpt-3\"\nall_model_checkpoint_paths: \"/a/ckpt-2\"\n\
                    all_model_checkpoint_paths: \"/a/ckpt-3\"\nall_model_checkpoint_timestamps: 1.5\n\
                    all_model_checkpoint_timestamps: 2.5\nlast_preserved_timestamp: 0.5\n";
        let expected = "model_checkpoint_path: \"/a/ckpt-2\"\nall_model_checkpoint_paths: \"/a/ckpt-2\"\n\
                        all_model_checkpoint_timestamps: 1.5\nlast_preserved_timestamp: 0.5\n";
        assert_eq!(repointed(text, "ckpt-3", "ckpt-2"), expected);
    }
}
