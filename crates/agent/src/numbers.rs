//! Steps and epochs, as names tell them.

/// How far a checkpoint is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Numbers {
    pub step: Option<i64>,
    pub epoch: Option<i64>,
}

impl Numbers {
    pub fn is_empty(self) -> bool {
        self.step.is_none() && self.epoch.is_none()
    }

    /// These, and where they say nothing, the others.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { step: self.step.or(other.step), epoch: self.epoch.or(other.epoch) }
    }
}

const STEP_WORDS: [&str; 17] = [
    "step",
    "steps",
    "iter",
    "iters",
    "iteration",
    "it",
    "update",
    "updates",
    "batch",
    "batches",
    "round",
    "checkpoint",
    "ckpt",
    "chkpt",
    "model",
    "snapshot",
    "state",
];
const EPOCH_WORDS: [&str; 4] = ["epoch", "epochs", "ep", "e"];

/// Those of them that have other meanings, too.
const WEAK_WORDS: [&str; 5] = ["e", "ep", "it", "model", "state"];

/// Reads `checkpoint-epoch-3-step-610.pt`, `epoch=3-step=610.ckpt`, `global_step30`, `iter_0000100`, `model_5.ubj`, `1000`.
///
/// A number counts only after a word that says what it is, or when it is the whole name: `resnet-50.pt` is not the 50th step.
/// After a word that has other meanings, too, letters right behind the number must not make another word of it: `e2e`,
/// `model-7b`.
pub fn of_name(name: &str) -> Numbers {
    let stem = stem(name);
    if !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_digit()) {
        return Numbers { step: stem.parse().ok(), epoch: None };
    }
    let mut numbers = Numbers::default();
    let mut word = String::new();
    let mut rest = stem;
    while let Some(first) = rest.chars().next() {
        let of_a_kind =
            |kind: fn(&char) -> bool| rest.chars().take_while(kind).map(char::len_utf8).sum::<usize>();
        if first.is_alphabetic() {
            let length = of_a_kind(|c| c.is_alphabetic());
            word = rest[..length].to_lowercase();
            rest = &rest[length..];
        } else if first.is_ascii_digit() {
            let length = of_a_kind(char::is_ascii_digit);
            let value = rest[..length].parse().ok();
            rest = &rest[length..];
            let decimal =
                rest.strip_prefix('.').is_some_and(|after| after.starts_with(|c: char| c.is_ascii_digit()));
            if decimal {
                // The digits behind the point belong to the same number, which counts nothing.
                rest = rest[1..].trim_start_matches(|c: char| c.is_ascii_digit());
            } else if WEAK_WORDS.contains(&word.as_str()) && is_within_a_word(rest) {
                // It counts nothing.
            } else if STEP_WORDS.contains(&word.as_str()) {
                numbers.step = numbers.step.or(value);
            } else if EPOCH_WORDS.contains(&word.as_str()) {
                numbers.epoch = numbers.epoch.or(value);
            }
            word.clear();
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    numbers
}

/// Does this, which is behind a number, go on with the same word? Thousands (`10k`) and the next number with its word
/// (`e3s100`) do not.
fn is_within_a_word(rest: &str) -> bool {
    let after = rest.trim_start_matches(char::is_alphabetic);
    let letters = &rest[..rest.len() - after.len()];
    let next = after.strip_prefix(['=', '-', '_']).unwrap_or(after);
    !letters.is_empty()
        && !letters.eq_ignore_ascii_case("k")
        && !next.starts_with(|c: char| c.is_ascii_digit())
}

/// A name without its ending, if that is one: a dot and letters.
fn stem(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((stem, ending)) if !stem.is_empty() && ending.starts_with(|c: char| c.is_alphabetic()) => stem,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_steps_and_epochs() {
        let cases = [
            ("checkpoint-epoch-3-step-610.pt", Some(610), Some(3)),
            ("checkpoint-epoch-3.json", None, Some(3)),
            ("epoch=3-step=610.ckpt", Some(610), Some(3)),
            ("epoch=3-step=610-val_loss=0.35.ckpt", Some(610), Some(3)),
            ("epoch=03-val_loss=12.ckpt", None, Some(3)),
            ("global_step30", Some(30), None),
            ("iter_0000100", Some(100), None),
            ("checkpoint-500", Some(500), None),
            ("model_5.ubj", Some(5), None),
            ("1000", Some(1000), None),
            ("00042.npz", Some(42), None),
            ("ckpt-7", Some(7), None),
            ("resnet-50.pt", None, None),
            ("e2e-example-config.json", None, None),
            ("model-7b-config.json", None, None),
            ("e3s100.pt", None, Some(3)),
            ("ep3it500.pt", Some(500), Some(3)),
            ("ep3_acc0.9.h5", None, Some(3)),
            ("model_10k.pt", Some(10), None),
            ("epoch3step610.pt", Some(610), Some(3)),
            ("checkpoint-500steps.pt", Some(500), None),
            ("best.pt", None, None),
            ("v2", None, None),
            ("", None, None),
            ("step-99999999999999999999999.pt", None, None),
            ("épöque-5", None, None),
        ];
        for (name, step, epoch) in cases {
            assert_eq!(of_name(name), Numbers { step, epoch }, "{name}");
        }
    }
}
