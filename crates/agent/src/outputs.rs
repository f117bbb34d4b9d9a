//! What programs write beside their checkpoints: samples, predictions, what they have measured. It is numbered like checkpoints, and JSON or
//! arrays like those of some programs.
//!
//! Going on from it makes a program fail, and removing it loses what the program was run for. So such data is a checkpoint only where
//! nothing else is there that is one, and its name does not say otherwise.

use jiff::Timestamp;

use crate::layouts::{self, Layout};
use crate::numbers;
use crate::tree;
use crate::upkeep;

/// What may be a checkpoint, as far as it matters here.
pub(crate) struct Thing<'a> {
    pub(crate) layout: Option<Layout>,
    pub(crate) path: &'a str,
    pub(crate) files: Vec<&'a str>,
    /// When it was saved, if that is known.
    pub(crate) time: Option<Timestamp>,
}

/// Formats of any data.
const DATA: [&str; 3] = ["json", "npy", "npz"];

/// Formats in which hardly anything but a model is saved. A pickle may be anything.
const MODELS: [&str; 13] = [
    "pt",
    "pth",
    "ckpt",
    "bin",
    "safetensors",
    "h5",
    "hdf5",
    "keras",
    "msgpack",
    "params",
    "pdparams",
    "pdopt",
    "ubj",
];

/// What nobody calls a checkpoint, nor the directory of some, where that is all of its name.
const OUTPUTS: [&str; 14] = [
    "sample",
    "samples",
    "prediction",
    "predictions",
    "pred",
    "preds",
    "metric",
    "metrics",
    "eval",
    "evals",
    "evaluation",
    "generations",
    "confusion",
    "plots",
];

/// The same, but directories that are called so may have anything in them.
const NOTES: [&str; 9] =
    ["result", "results", "output", "outputs", "report", "history", "stats", "log", "losses"];

/// What programs call that which they go on from.
const STATES: [&str; 8] = ["checkpoint", "ckpt", "chkpt", "model", "state", "weights", "params", "net"];

impl Thing<'_> {
    fn name(&self) -> &str {
        tree::name(self.path)
    }

    fn is_data(&self) -> bool {
        let mut states = self.files.iter().filter(|file| layouts::may_be_state(file)).peekable();
        let is_loose = self.layout == Some(Layout::Files) && states.peek().is_some();
        is_loose && states.all(|file| DATA.contains(&layouts::ending(file).as_str()))
    }

    fn is_called_output(&self) -> bool {
        let name = self.name();
        let mut above = tree::parent(self.path).split('/');
        above.any(|directory| OUTPUTS.contains(&directory.to_lowercase().as_str()))
            || has_word(name, &OUTPUTS)
            || has_word(name, &NOTES)
            || self.has_only_outputs()
    }

    /// A directory that says how far it is, with nothing but predictions in it.
    fn has_only_outputs(&self) -> bool {
        let mut states = self.files.iter().filter(|file| layouts::may_be_state(file)).peekable();
        states.peek().is_some() && states.all(|file| has_word(tree::name(file), &OUTPUTS))
    }

    fn is_called_state(&self) -> bool {
        has_word(self.name(), &STATES)
    }

    fn is_of_a_model(&self) -> bool {
        self.files.iter().any(|file| MODELS.contains(&layouts::ending(file).as_str()))
    }
}

/// Is it called what a program goes on from?
pub(crate) fn is_current(name: &str) -> bool {
    has_word(name, &STATES) || has_word(name, &["last", "latest"])
}

fn has_word(text: &str, words: &[&str]) -> bool {
    let lower = text.to_lowercase();
    lower.split(|c: char| !c.is_alphabetic()).any(|word| words.contains(&word))
}

/// What shows that a program saves its state as a framework does.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evidence {
    /// By name and format.
    is_sure: bool,
    /// When a `last.pt` or a `checkpoint.pt` was saved, which a program writes over every time, or has got from elsewhere.
    current: Option<Timestamp>,
    /// Since when there is data.
    data_since: Option<Timestamp>,
}

impl Evidence {
    pub(crate) fn of<'a>(things: impl IntoIterator<Item = Thing<'a>>) -> Self {
        let mut evidence = Self::default();
        for thing in things {
            evidence.add(&thing);
        }
        evidence
    }

    pub(crate) fn add(&mut self, thing: &Thing<'_>) {
        let is_apart = upkeep::is_special(thing.name()) && !has_word(thing.name(), &["last", "latest"]);
        if is_apart || upkeep::is_origin(thing.path) || thing.is_called_output() {
            return;
        }
        let is_counted = !numbers::is_part(thing.name());
        if thing.is_data() {
            self.data_since = self.data_since.into_iter().chain(thing.time).min();
        }
        match thing.layout {
            Some(
                Layout::Megatron | Layout::DeepSpeed | Layout::HuggingFace | Layout::Orbax | Layout::Dcp,
            ) => {
                self.is_sure = true;
            }
            Some(Layout::TensorFlow) if is_counted => self.is_sure = true,
            Some(Layout::Torch | Layout::XgBoost | Layout::Files) if thing.is_of_a_model() => {
                self.is_sure |= is_counted;
                self.current = self.current.max(thing.time.filter(|_| is_current(thing.name())));
            }
            _ => {}
        }
    }

    /// Is it no checkpoint, beside what there is?
    pub(crate) fn is_against(self, thing: &Thing<'_>) -> bool {
        // What was there before there was any data is what the program began with.
        let is_written_over = self.current.is_some() && self.current >= self.data_since;
        let is_beside = self.is_sure || is_written_over && !thing.is_called_state();
        thing.is_data() && (is_beside || thing.is_called_output())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thing(path: &str) -> Thing<'_> {
        let is_torch = [".pt", ".ckpt"].iter().any(|ending| path.ends_with(ending));
        let layout = Some(if is_torch { Layout::Torch } else { Layout::Files });
        Thing { layout, path, files: vec![path], time: Some(Timestamp::UNIX_EPOCH) }
    }

    #[test]
    fn what_was_there_before_the_data_says_nothing_about_it() {
        let at = |path, second| {
            let time = Timestamp::from_second(second).ok();
            Thing { time, ..thing(path) }
        };
        for (model, is_output) in [(5, false), (10, true), (20, true)] {
            let things = [at("model.pt", model), at("embeddings-1.npz", 10), at("embeddings-2.npz", 20)];
            let evidence = Evidence::of(things);
            assert_eq!(evidence.is_against(&at("embeddings-2.npz", 20)), is_output, "{model}");
        }
    }

    #[test]
    fn a_directory_of_predictions_is_no_checkpoint() {
        for (files, is_output) in [
            (vec!["step-3/sample-1-prediction.json", "step-3/sample-2-prediction.json"], true),
            (vec!["step-3/weights.npz", "step-3/metrics.json"], false),
        ] {
            let thing = Thing { layout: Some(Layout::Files), path: "step-3", files, time: None };
            assert_eq!(Evidence::default().is_against(&thing), is_output, "{:?}", thing.files);
        }
    }

    #[test]
    fn data_is_a_checkpoint_only_where_nothing_else_is() {
        for (others, data, is_output) in [
            (&[][..], "checkpoint-epoch-3.json", false),
            (&[], "step-3.npz", false),
            (&[], "embeddings-epoch-3.npy", false),
            (&[], "outputs/2026-11-18/step-3.npz", false),
            (&[], "samples/step-3.json", true),
            (&[], "metric-learning/step-3.npz", false),
            (&[], "metrics-epoch-3.json", true),
            (&["step-1.pt"], "gallery/step-3.json", true),
            (&["step-1.pt"], "checkpoint-epoch-3.json", true),
            (&["model.pt"], "embeddings-epoch-3.npy", true),
            (&["last.ckpt"], "gallery/epoch-3.json", true),
            // What it was begun with, what it was run for, and what is beside its state.
            (&["model.pt"], "checkpoint-epoch-3.json", false),
            (&["pretrained-step-9.pt"], "checkpoint-epoch-3.json", false),
            (&["init-step-0.pt", "pretrained/model.pt"], "step-3.npz", false),
            (&["tokenizer.pt"], "step-3.npz", false),
            (&["final.pt", "best-epoch-2.pt"], "step-3.npz", false),
            (&["samples-epoch-2.pt"], "checkpoint-epoch-3.json", false),
            // Other data says nothing about it.
            (&["step-1.npz", "step-2.pkl"], "gallery/step-3.json", false),
        ] {
            let evidence = Evidence::of(others.iter().chain([&data]).map(|path| thing(path)));
            assert_eq!(evidence.is_against(&thing(data)), is_output, "{others:?}, {data}");
        }
    }
}
