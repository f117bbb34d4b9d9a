//! XGBoost's `model_5.ubj` and `model_5.json`, as its `TrainingCheckPoint` callback writes them.

use crate::formats::{Wholeness, json, ubjson};
use crate::numbers::Numbers;
use crate::store::StoreError;
use crate::tree::{self, Tree};

use super::content::ending;
use super::{Candidate, Claimed, Layout, Proof, Reader, Verdict};

pub(super) fn claim(tree: &Tree, claimed: &mut Claimed) {
    for entry in tree.entries().filter(|entry| entry.is_file()) {
        if round(tree::name(&entry.path)).is_some() && !claimed.covers(&entry.path) {
            claimed.take(Candidate::file(Layout::XgBoost, &entry.path));
        }
    }
}

pub(super) fn judge(candidate: &Candidate, reader: &Reader<'_>) -> Result<Verdict, StoreError> {
    let path = &candidate.path;
    let Some(size) = reader.size(path) else { return Err(StoreError::Vanished(path.clone())) };
    // The name has the number of the last round, and the first is 0.
    let step = round(candidate.name()).map(|round| round + 1);
    if size == 0 {
        return Ok(Verdict::Partial("it is empty".to_owned()));
    }
    // XGBoost calls a round an epoch where it passes its number on. It is told only where the content proves it.
    let epoch = round(candidate.name()).filter(|_| rounds(reader, path, size).ok().flatten() == step);
    let numbers = Numbers { step, epoch };
    let (wholeness, is_model) = if ending(path) == "ubj" {
        (ubjson::read(reader.store, path, size)?, true)
    } else {
        let (wholeness, sketch) = json::read(reader.store, path, size)?;
        (wholeness, sketch.is_none_or(|sketch| sketch.get("learner").is_some()))
    };
    Ok(match wholeness {
        Wholeness::Whole if is_model => Verdict::proven(numbers),
        Wholeness::Likely => Verdict::Complete { numbers, proof: Proof::Quiet },
        // Somebody else's model: the number is a step like any other.
        Wholeness::Whole => Verdict::proven(crate::numbers::of_name(candidate.name())),
        Wholeness::Cut(why) => Verdict::Partial(why),
        Wholeness::Other => Verdict::Unclear("it is not a model of XGBoost".to_owned()),
    })
}

/// How many rounds it has. What counts its trees is before them, and how many each round adds behind them; both as text, in JSON and in UBJSON.
fn rounds(reader: &Reader<'_>, path: &str, size: u64) -> Result<Option<i64>, StoreError> {
    const HEAD: u64 = 1 << 20;
    const TAIL: u64 = 64 << 10;
    let head = reader.store.read(path, 0..size.min(HEAD))?;
    let tail = reader.store.read(path, size.saturating_sub(TAIL)..size)?;
    let Some(trees) = number_after(&head, "num_trees") else { return Ok(None) };
    let classes = number_after(&tail, "num_class").unwrap_or_default().max(1);
    let parallel = number_after(&head, "num_parallel_tree").unwrap_or_default().max(1);
    Ok(Some(trees / classes.saturating_mul(parallel)))
}

/// The digits behind a key.
fn number_after(content: &[u8], key: &str) -> Option<i64> {
    /// The length of a text, and its marks.
    const BETWEEN: usize = 16;
    let at = content.windows(key.len()).position(|window| window == key.as_bytes())? + key.len();
    let behind = &content[at..];
    let first = behind.iter().take(BETWEEN).position(u8::is_ascii_digit)?;
    let digits = behind[first..].iter().take_while(|byte| byte.is_ascii_digit());
    digits.map(|digit| char::from(*digit)).collect::<String>().parse().ok()
}

/// 5 for `model_5.ubj`.
fn round(name: &str) -> Option<i64> {
    let (stem, ending) = name.rsplit_once('.')?;
    let (prefix, digits) = stem.rsplit_once('_')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_ours = matches!(ending, "ubj") || (ending == "json" && prefix == "model");
    (is_number && is_ours).then(|| digits.parse().ok())?
}
