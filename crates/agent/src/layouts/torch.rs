//! `*.pt`, `*.pth`, `*.ckpt`, `*.bin`, `*.tar`: what torch.save and Lightning write. Not atomic: a file can be cut off anywhere.

use crate::formats::Wholeness;
use crate::formats::pickle::{self, Atom};
use crate::numbers;
use crate::store::StoreError;
use crate::tree::{self, Tree};

use super::content::{self, ending};
use super::{Candidate, Claimed, Layout, Proof, Reader, Verdict};

pub(super) fn claim(tree: &Tree, claimed: &mut Claimed) {
    for entry in tree.entries().filter(|entry| entry.is_file()) {
        let name = tree::name(&entry.path);
        let is_torch = matches!(ending(name).as_str(), "pt" | "pth" | "ckpt" | "bin" | "tar");
        if is_torch && !name.starts_with('.') && !claimed.covers(&entry.path) {
            claimed.take(Candidate::file(Layout::Torch, &entry.path));
        }
    }
}

/// The names of the files that Lightning has found to be the best, as this one notes it: programs load them in the end, and Lightning removes
/// those of `save_top_k` by itself. There is a list for each `ModelCheckpoint`, which may have a directory of its own.
pub(super) fn named_as_best(reader: &Reader<'_>, path: &str) -> Option<Vec<String>> {
    let pickled = content::pickle_of_torch(reader, path, reader.size(path)?).ok()??;
    let (mut is_next, mut is_list, mut best) = (false, false, Vec::new());
    pickle::walk(&pickled, |_, atom| {
        let Atom::Text(text) = atom else { return is_next = false };
        if is_next || is_list && ending(text) == "ckpt" {
            best.push(tree::name(text).to_owned());
        }
        is_next = text == "best_model_path";
        // Between the paths there are tensors, with texts in them. What else is named there may stay, too.
        is_list = match text.as_str() {
            "best_k_models" => true,
            "best_model_path" | "last_model_path" => false,
            _ => is_list,
        };
    })?;
    Some(best)
}

pub(super) fn judge(candidate: &Candidate, reader: &Reader<'_>) -> Result<Verdict, StoreError> {
    let judged = content::judge(reader, &candidate.path)?;
    let numbers = numbers::of_path(&candidate.path).or(judged.numbers);
    Ok(match judged.wholeness {
        Wholeness::Whole => Verdict::proven(numbers),
        Wholeness::Likely => Verdict::Complete { numbers, proof: Proof::Quiet },
        // Any program may have a file with this ending.
        Wholeness::Cut(_) | Wholeness::Other
            if matches!(ending(candidate.name()).as_str(), "bin" | "tar") && numbers.is_empty() =>
        {
            Verdict::Foreign
        }
        Wholeness::Other if ending(candidate.name()) == "tar" => Verdict::Foreign,
        Wholeness::Cut(why) => Verdict::Partial(why),
        Wholeness::Other => Verdict::Unclear("it is not a file of torch.save".to_owned()),
    })
}
