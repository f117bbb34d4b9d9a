//! What files are called that come beside a model, or are one.

use crate::{numbers, tree};

/// By its name; directories above may be called anything.
pub(super) fn is_beside_a_model(path: &str) -> bool {
    let name = tree::name(path).to_lowercase();
    ["optim", "sched", "scaler", "rng", "random", "dataloader"].iter().any(|word| name.contains(word))
        || is_called(&name, "opt")
}

/// Is it called what programs resume from, or nothing at all? `model-epoch-3.pt`, `epoch-3.pt`; not `samples-epoch-3.pt`.
pub(super) fn is_model(path: &str) -> bool {
    const WORDS: [&str; 7] = ["model", "net", "weights", "checkpoint", "ckpt", "state", "params"];
    let name = tree::name(path).to_lowercase();
    numbers::is_pure(&name) || name.split(|c: char| !c.is_alphabetic()).any(|word| WORDS.contains(&word))
}

/// A second copy of a model: an average of its weights.
pub(super) fn is_average(path: &str) -> bool {
    let name = tree::name(path).to_lowercase();
    ["ema", "swa", "average"].iter().any(|word| is_called(&name, word))
}

/// Is this one of the words of a name? `opt-125m` is the name of a model.
fn is_called(name: &str, word: &str) -> bool {
    name.match_indices(word).any(|(at, _)| {
        let (before, after) = (&name[..at], &name[at + word.len()..]);
        let is_size =
            after.strip_prefix(['-', '_']).is_some_and(|it| it.starts_with(|c: char| c.is_ascii_digit()));
        !before.ends_with(char::is_alphabetic) && !after.starts_with(char::is_alphabetic) && !is_size
    })
}
