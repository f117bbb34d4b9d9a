//! Names that programs give to what they have not finished: they write `step-3.tmp/`, and rename it when all of it is there.
//!
//! What is in such a directory may be whole file by file. It is no checkpoint all the same: more of it is to come, and where its
//! program has died, never does.

use crate::numbers;

/// Is it, or something that it is in, called unfinished?
pub(crate) fn is_unfinished(path: &str) -> bool {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    // A run may be called `tmp_trainer` or `high-temp` and have good checkpoints in it: of a directory, it takes more to know.
    is_name(name) || above.split('/').any(|directory| is_staged(directory) && is_name(directory))
}

/// Does the name of this directory say how far it is, or end as one that is to be renamed?
fn is_staged(directory: &str) -> bool {
    const ENDINGS: [&str; 3] = [".tmp", ".part", ".partial"];
    let is_to_be_renamed = ENDINGS.iter().any(|ending| directory.ends_with(ending));
    is_to_be_renamed || directory.contains("orbax-checkpoint-tmp") || !numbers::of_name(directory).is_empty()
}

/// Is this such a name?
fn is_name(name: &str) -> bool {
    const ENDINGS: [&str; 4] = [".part", ".partial", ".lock", "~"];
    let lower = name.to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    // In front of a number, it is a temperature.
    let is_temperature =
        |at: usize| words.get(at + 1).is_some_and(|next| next.starts_with(|c: char| c.is_ascii_digit()));
    // The last one may be an ending.
    let is_outer = |at: usize| at == 0 || at + 2 >= words.len();
    let is_told = |(at, word): (usize, &&str)| match *word {
        "incomplete" | "unfinished" | "inprogress" => true,
        "progress" => at > 0 && words[at - 1] == "in",
        "temp" | "temporary" => is_outer(at) && !is_temperature(at),
        "partial" => at > 0 && at + 1 == words.len(),
        // Also `tmpk2j9x_1a`, as Python calls what it makes for a while.
        word => word.starts_with("tmp"),
    };
    // Hidden until it is renamed.
    let is_hidden = name.starts_with('.') && !numbers::of_name(name).is_empty();
    is_hidden || ENDINGS.iter().any(|ending| lower.ends_with(ending)) || words.iter().enumerate().any(is_told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_renamed_is_told_by_its_name() {
        for path in [
            "step-3.tmp/model.pt",
            "tmp-checkpoint-300/model.safetensors",
            "tmp_step_200.pt",
            "a/step_300_incomplete/b/model.pt",
            "step_300.partial/model.pt",
            "step_300_partial",
            "step-300-unfinished/model.pt",
            "step_300_in_progress/model.pt",
            ".step_300/model.pt",
            "temp_step_200.pt",
            "run.tmp/model.pt",
            "ckpt-5_temp/part-00000",
            "step-5.pt.tmp",
            "step-5.tmp.pt",
            "step-5.tmp-1234",
            "step-5.pt.part",
            "step-5.pt~",
            "20.orbax-checkpoint-tmp-7/default",
            ".checkpoint.tmp",
        ] {
            assert!(is_unfinished(path), "{path}");
        }
        for path in [
            "",
            "step-3/model.pt",
            "tmp_trainer/checkpoint-500/model.safetensors",
            "tmp/step-3.pt",
            "checkpoints/tmp-run/step-3.pt",
            "high-temp/step-3.pt",
            "finetune-partial/step-3.pt",
            "runs/lr1e-4_temp/step-3.pt",
            "temp_0.7/step-100.pt",
            "step-100-temp-0.7.pt",
            "template-step-3.pt",
            "partial_fc_step_3.pt",
            "part-1/step-3.pt",
            ".checkpoints/step-3.pt",
            ".metadata",
            "progress-step-3.pt",
            "attempt-2/step-3.pt",
        ] {
            assert!(!is_unfinished(path), "{path}");
        }
    }
}
