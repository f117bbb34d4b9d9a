//! `checkpoint-<step>/` of Hugging Face's Trainer, and of Accelerate.
//!
//! The Trainer writes `trainer_state.json` last, and its loader takes the directory with the largest number without looking
//! into it. Accelerate has no such file; it writes the states of the random generators last.

use serde_json::Value;

use crate::formats::{READ_WHOLE, Wholeness, json};
use crate::numbers::{self, Numbers};
use crate::store::{Kind, StoreError};
use crate::tree::{self, Tree};

use super::content::{self, numbers_of_json};
use super::{Candidate, Claimed, Layout, Proof, Reader, Verdict};

const STATE: &str = "trainer_state.json";
const INCOMPLETE: &str = "checkpoint-is-incomplete.txt";

/// Files that nobody but the Trainer writes.
const TRAINERS: [&str; 3] = [STATE, INCOMPLETE, "training_args.bin"];

pub(super) fn claim(tree: &Tree, claimed: &mut Claimed, is_only: bool) {
    let named: Vec<&str> = tree.directories().filter(|path| is_named(path)).collect();
    for path in &named {
        let has = |path: &str, names: &[&str]| tree.names(path).any(|name| names.contains(&name));
        let is_trainers = has(path, &TRAINERS);
        let has_random = |path: &str| tree.names(path).any(|name| name.starts_with("random_states_"));
        let is_accelerates = has_random(path);
        // A directory from which what is written last is missing is one of theirs if its neighbours are.
        let neighbours = || {
            let is_beside = |other: &str| tree::parent(other) == tree::parent(path);
            is_only
                || named.iter().any(|other| is_beside(other) && (has(other, &[STATE]) || has_random(other)))
        };
        if (is_trainers || is_accelerates || neighbours()) && !claimed.covers(path) {
            claimed.take(Candidate::directory(Layout::HuggingFace, tree, path));
        }
    }
}

pub(super) fn is_named(path: &str) -> bool {
    let digits =
        tree::name(path).strip_prefix("checkpoint-").or_else(|| tree::name(path).strip_prefix("checkpoint_"));
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

pub(super) fn judge(candidate: &Candidate, reader: &Reader<'_>) -> Result<Verdict, StoreError> {
    let inside = |name: &str| tree::join(&candidate.path, name);
    if reader.size(&inside(INCOMPLETE)).is_some() {
        return Ok(Verdict::Partial(format!("{INCOMPLETE} is in it")));
    }
    let Some(numbers) = numbers_inside(candidate, reader)? else {
        return Ok(reader.lacking(&inside(STATE), format!("{STATE} is missing or cut off")));
    };
    if let Some(missing) = missing_shard(candidate, reader)? {
        return Ok(missing);
    }
    if let Some(tag) = reader.small_text(&inside("latest"))
        && reader.tree.get(&inside(&tag)).is_none_or(|entry| entry.kind != Kind::Directory)
    {
        return Ok(Verdict::Partial(format!("{tag}, which its file `latest` names, is missing")));
    }
    for path in &candidate.files {
        let name = tree::name(path);
        let is_checked = [".safetensors", ".bin", ".pt", ".pth", ".pkl", ".json"]
            .iter()
            .any(|ending| name.ends_with(ending));
        if !is_checked {
            continue;
        }
        if let Wholeness::Cut(why) = content::judge(reader, path)?.wholeness {
            return Ok(Verdict::Partial(format!("{name}: {why}")));
        }
    }
    let numbers = numbers.or(numbers::of_name(candidate.name()));
    // What a program has registered with Accelerate is saved even later than the random states.
    let is_accelerates = reader.size(&inside(STATE)).is_none();
    Ok(if is_accelerates {
        Verdict::Complete { numbers, proof: Proof::Quiet }
    } else {
        Verdict::proven(numbers)
    })
}

/// The checkpoint that the Trainer wants to have in the end (`load_best_model_at_end`), as this one notes it.
pub(super) fn named_as_best(reader: &Reader<'_>, path: &str) -> Option<Vec<String>> {
    let state = tree::join(path, STATE);
    let (_, sketch) = json::read(reader.store, &state, reader.size(&state)?).ok()?;
    let best = sketch?.get("best_model_checkpoint")?.text()?.to_owned();
    Some(vec![tree::name(&best).to_owned()])
}

/// What was written last says how far it is. Nothing if that is missing.
fn numbers_inside(candidate: &Candidate, reader: &Reader<'_>) -> Result<Option<Numbers>, StoreError> {
    let state = tree::join(&candidate.path, STATE);
    if let Some(size) = reader.size(&state) {
        let (wholeness, sketch) = json::read(reader.store, &state, size)?;
        let is_whole = matches!(wholeness, Wholeness::Whole | Wholeness::Likely);
        return Ok(is_whole.then(|| sketch.as_ref().map(numbers_of_json).unwrap_or_default()));
    }
    let is_accelerates = reader.tree.names(&candidate.path).any(|name| name.starts_with("random_states_0"));
    Ok(is_accelerates.then(Numbers::default))
}

/// What the first file makes of it that an index names and that is not there.
fn missing_shard(candidate: &Candidate, reader: &Reader<'_>) -> Result<Option<Verdict>, StoreError> {
    for index in candidate.files.iter().filter(|path| path.ends_with(".index.json")) {
        let size = reader.size(index).unwrap_or_default();
        // Too large to be read: the shards are believed.
        if size > READ_WHOLE {
            continue;
        }
        let Ok(document) = serde_json::from_slice::<Value>(&reader.store.read(index, 0..size)?) else {
            return Ok(Some(Verdict::Partial(format!("{} is cut off", tree::name(index)))));
        };
        let shards =
            document.get("weight_map").and_then(Value::as_object).into_iter().flat_map(|map| map.values());
        for shard in shards.filter_map(Value::as_str) {
            let path = tree::join(tree::parent(index), shard);
            if reader.size(&path).is_none() {
                let missing = format!("{shard}, which {} names, is missing", tree::name(index));
                return Ok(Some(reader.lacking(&path, missing)));
            }
        }
    }
    Ok(None)
}
