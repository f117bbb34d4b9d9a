//! Steps and epochs, as names tell them.

use std::ops::Range;

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

const STEP_WORDS: [&str; 9] =
    ["step", "steps", "iter", "iters", "iteration", "it", "update", "updates", "round"];
/// These count where none of the above does.
const CHECKPOINT_WORDS: [&str; 4] = ["checkpoint", "ckpt", "chkpt", "snapshot"];
/// How far it is in an epoch (`epoch1_batch500`), or how large they are (`batch32_step1000`).
const BATCH_WORDS: [&str; 2] = ["batch", "batches"];
/// And these where nothing else says how far it is: `model_1_epoch_3.pt` is the first of several models.
const THING_WORDS: [&str; 2] = ["model", "state"];
const EPOCH_WORDS: [&str; 4] = ["epoch", "epochs", "ep", "e"];

/// What is done so many times, one after the other.
const COURSE_WORDS: [&str; 11] =
    ["fold", "split", "stage", "phase", "run", "seed", "trial", "task", "cycle", "exp", "member"];

/// What a run was started with.
const SETTING_WORDS: [&str; 15] = [
    "lr",
    "wd",
    "bs",
    "bsz",
    "batch",
    "batches",
    "batchsize",
    "seed",
    "dropout",
    "warmup",
    "decay",
    "dim",
    "layers",
    "heads",
    "hidden",
];

/// So many of them in all, or up to this one: `epochs100`.
const MANY_WORDS: [&str; 4] = ["steps", "iters", "updates", "epochs"];

/// What came out, which is another with every save.
const RESULT_WORDS: [&str; 16] = [
    "loss", "acc", "accuracy", "err", "error", "score", "metric", "val", "auc", "iou", "map", "bleu", "ppl",
    "reward", "mae", "mse",
];

/// Those of them that have other meanings, too.
const WEAK_WORDS: [&str; 5] = ["e", "ep", "it", "model", "state"];

/// Reads `checkpoint-epoch-3-step-610.pt`, `epoch=3-step=610.ckpt`, `global_step30`, `iter_0000100`, `model_5.ubj`, `1000`.
///
/// A number counts only after a word that says what it is, or when it is the whole name: `resnet-50.pt` is not the 50th step.
/// After a word that has other meanings, too, letters right behind the number must not make another word of it: `e2e`,
/// `model-7b`.
pub fn of_name(name: &str) -> Numbers {
    let (numbers, thing) = read(name);
    if numbers.is_empty() { Numbers { step: thing, epoch: None } } else { numbers }
}

/// The same of a path: the directory may say in which epoch a step was (`epoch_2/step_100.pt`).
pub fn of_path(path: &str) -> Numbers {
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = parent.rsplit_once('/').map_or(parent, |(_, last)| last);
    let above = if is_strong(name) && is_pure(parent) { of_name(parent).epoch } else { None };
    of_name(name).or(Numbers { step: None, epoch: above })
}

/// Does it say nothing about how far it is, or no more than which one of several things it is (`model_1.pt`)?
pub fn is_part(name: &str) -> bool {
    read(name).0.is_empty()
}

/// Is it a number and nothing else? That may be anything: of a run, of a job, or of a year.
pub fn is_bare(name: &str) -> bool {
    let stem = stem(name);
    !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_digit())
}

/// Does it say in words how far it is, as a directory?
pub fn is_explicit(name: &str) -> bool {
    !is_part(name) && !is_bare(name) && !is_setting(name)
}

/// Does it say how far it is, and nothing else? `global_step30`, `checkpoint-epoch-3`; not `bert-step-30`.
pub fn is_pure(name: &str) -> bool {
    let is_known = |word: &str| {
        let word = word.to_lowercase();
        let word = word.as_str();
        let is_word =
            STEP_WORDS.contains(&word) || EPOCH_WORDS.contains(&word) || CHECKPOINT_WORDS.contains(&word);
        (is_word || matches!(word, "global" | "model")) && !MANY_WORDS.contains(&word)
    };
    let mut words = stem(name).split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    let is_of_words = words.clone().next().is_some();
    is_of_words && !is_setting(name) && words.all(is_known)
}

/// By a step or an epoch, and not only as the so-many-th checkpoint.
pub fn is_strong(name: &str) -> bool {
    told(stem(name)).iter().any(|told| matches!(told.what, What::Step | What::Epoch))
}

/// Does it say no more than what a run was started with? `batch32`, `resnet50-epochs100-lr1e-4`.
pub fn is_setting(name: &str) -> bool {
    let told = told(stem(name));
    let has_setting = told.iter().any(|told| told.is_after(&SETTING_WORDS));
    let mut counts = told.iter().filter(|told| told.is_count());
    has_setting && counts.all(|count| count.is_after(&MANY_WORDS))
}

/// The row that it is one of: its directory and its name, in which only how far it is, which rank it is of, and what came out are left
/// out. `resnet50-epoch-3.pt` and `resnet101-epoch-3.pt` are of two.
pub fn row(path: &str) -> String {
    let (parent, name) = path.rsplit_once('/').map_or(("", path), |(parent, name)| (parent, name));
    // Lightning calls a second save of the same thing so.
    let again = |stem: &str| stem.rsplit_once("-v").is_some_and(|(_, number)| is_bare(number));
    let stem = stem(name);
    let ending = &name[stem.len()..];
    let stem = if again(stem) { stem.rsplit_once("-v").map_or(stem, |(first, _)| first) } else { stem };
    let mut row = format!("{}/", without_ranks(parent));
    if is_bare(stem) {
        return row + "#" + ending;
    }
    let told = told(stem);
    let is_part = is_part(name);
    let is_alone = !told.iter().any(Told::is_count);
    let counts = |told: &Told| match told.what {
        What::Step | What::Epoch | What::Checkpoint => true,
        What::Batch => is_alone || !told.is_before_all(stem),
        What::Thing => is_part,
        What::Other => false,
    };
    let (mut at, mut is_behind) = (0, false);
    for told in &told {
        let between = stem[at..told.at.start].trim_matches(|letter: char| !letter.is_alphanumeric());
        if is_behind && counts(told) && between.eq_ignore_ascii_case(&told.word) {
            // Saved in the middle of an epoch (`epoch-3-step-100`), and otherwise like those at its end.
            at = told.at.end;
            continue;
        }
        is_behind |= counts(told);
        let is_own = !is_behind || told.is_after(&COURSE_WORDS) || told.is_after(&SETTING_WORDS);
        let is_left_out =
            counts(told) || told.is_after(&RANK_WORDS) || told.is_after(&RESULT_WORDS) || !is_own;
        let is_left_out = is_left_out || is_part_of(&told.word, &stem[told.at.end..]) || told.is_total(stem);
        row.push_str(&stem[at..told.at.start]);
        row.push_str(if is_left_out { "#" } else { &stem[told.at.clone()] });
        at = told.at.end;
    }
    row + &stem[at..] + ending
}

/// What a number in a name is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Step,
    Epoch,
    Checkpoint,
    Batch,
    Thing,
    Other,
}

/// A number in a name, and the word before it.
#[derive(Debug)]
struct Told {
    at: Range<usize>,
    word: String,
    what: What,
    value: Option<i64>,
}

impl Told {
    fn is_after(&self, words: &[&str]) -> bool {
        words.contains(&self.word.as_str())
    }

    /// Does it say by itself how far it is?
    fn is_count(&self) -> bool {
        matches!(self.what, What::Step | What::Epoch | What::Checkpoint)
    }

    /// Is nothing before it that says how far it is?
    fn is_before_all(&self, stem: &str) -> bool {
        !told(&stem[..self.at.start]).iter().any(Self::is_count)
    }

    /// Of how many parts it is one.
    fn is_total(&self, stem: &str) -> bool {
        stem[..self.at.start].ends_with("-of-") || stem[..self.at.start].ends_with("_of_")
    }
}

/// The numbers of a name without its ending.
fn told(stem: &str) -> Vec<Told> {
    let mut all: Vec<Told> = Vec::new();
    let mut word = String::new();
    let mut at = 0;
    while let Some(first) = stem[at..].chars().next() {
        let rest = &stem[at..];
        let of_a_kind =
            |kind: fn(&char) -> bool| rest.chars().take_while(kind).map(char::len_utf8).sum::<usize>();
        if first.is_alphabetic() {
            let length = of_a_kind(|c| c.is_alphabetic());
            let before = all.last().filter(|before| before.at.end == at);
            word = match before {
                // The exponent of the number before: `lr1e-4`.
                Some(before) if is_exponent(rest) => before.word.clone(),
                _ => rest[..length].to_lowercase(),
            };
            at += length;
        } else if first.is_ascii_digit() {
            let length = of_a_kind(char::is_ascii_digit);
            let after = &rest[length..];
            let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).count();
            let decimals = after.strip_prefix('.').map_or(0, digits);
            // The digits behind the point belong to the same number, which counts nothing.
            let end = if decimals > 0 { at + length + 1 + decimals } else { at + length };
            let is_behind_exponent = all.last().is_some_and(|before| is_exponent(&stem[before.at.end..]));
            let unit = unit(&word, &stem[end..]);
            let is_fraction = decimals > 0 && unit.is_none();
            let what = if is_fraction || is_behind_exponent { What::Other } else { what_is(&word, after) };
            let value = scaled(&stem[at..end], unit.unwrap_or(1));
            let end = end + usize::from(unit.is_some());
            all.push(Told { at: at..end, word: std::mem::take(&mut word), what, value });
            at = end;
        } else {
            at += first.len_utf8();
        }
    }
    all
}

/// What the letter right behind a number makes of it: `step_900k`, `step_2M`. Elsewhere than behind a step, millions and more are the size of
/// a model.
fn unit(word: &str, rest: &str) -> Option<i64> {
    let mut letters = rest.chars();
    let unit = letters.next()?.to_ascii_lowercase();
    if letters.next().is_some_and(char::is_alphanumeric) {
        return None;
    }
    match unit {
        'k' => Some(1_000),
        'm' if STEP_WORDS.contains(&word) => Some(1_000_000),
        'b' if STEP_WORDS.contains(&word) => Some(1_000_000_000),
        _ => None,
    }
}

/// `1.5` times a thousand, without what is behind the point then.
fn scaled(number: &str, unit: i64) -> Option<i64> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let parts = decimals.parse::<i64>().unwrap_or_default();
    let of = 10_i64.checked_pow(u32::try_from(decimals.len()).ok()?)?;
    let rest = parts.checked_mul(unit)? / of;
    whole.parse::<i64>().ok()?.checked_mul(unit)?.checked_add(rest)
}

/// Is this, right behind a number, its exponent?
fn is_exponent(rest: &str) -> bool {
    let digits = rest.strip_prefix(['e', 'E']).map(|rest| rest.strip_prefix(['-', '+']).unwrap_or(rest));
    digits.is_some_and(|digits| digits.starts_with(|c: char| c.is_ascii_digit()))
}

/// What a number between these counts.
fn what_is(word: &str, after: &str) -> What {
    let is_weak = WEAK_WORDS.contains(&word) && is_within_a_word(after);
    if is_part_of(word, after) || is_weak || word == "e" && is_name_of_a_model(after) {
        // Nothing, or parts.
        return What::Other;
    }
    let kinds: [(&[&str], What); 5] = [
        (&STEP_WORDS, What::Step),
        (&CHECKPOINT_WORDS, What::Checkpoint),
        (&BATCH_WORDS, What::Batch),
        (&THING_WORDS, What::Thing),
        (&EPOCH_WORDS, What::Epoch),
    ];
    kinds.iter().find(|(words, _)| words.contains(&word)).map_or(What::Other, |(_, what)| *what)
}

/// `e5-large`: what is behind an epoch are numbers, or words for them.
fn is_name_of_a_model(after: &str) -> bool {
    let next = after.trim_start_matches(['-', '_', '=', '.']);
    let word = next[..next.len() - next.trim_start_matches(char::is_alphabetic).len()].to_lowercase();
    let is_known = |words: &[&str]| words.contains(&word.as_str());
    let is_known = is_known(&STEP_WORDS)
        || is_known(&CHECKPOINT_WORDS)
        || is_known(&RESULT_WORDS)
        || is_known(&BATCH_WORDS)
        || is_known(&RANK_WORDS);
    // Right behind the number, the next word has been looked at.
    next.len() < after.len() && !word.is_empty() && !is_known
}

/// What a name says, and a number after the name of a thing.
fn read(name: &str) -> (Numbers, Option<i64>) {
    let text = stem(name);
    if is_bare(name) {
        return (Numbers { step: text.parse().ok(), epoch: None }, None);
    }
    let told = told(text);
    let first = |what: What| told.iter().find(|told| told.what == what && told.value.is_some());
    let value = |what: What| first(what).and_then(|told| told.value);
    let epoch = value(What::Epoch);
    // Before an epoch, it is how large they are.
    let batch = first(What::Batch).filter(|batch| epoch.is_none() || !batch.is_before_all(text));
    let step = value(What::Step).or_else(|| value(What::Checkpoint)).or_else(|| batch?.value);
    (Numbers { step, epoch }, value(What::Thing))
}

/// Is the number between these that of a part, of so many? `epoch-3-of-10` is not: that is how far it is.
fn is_part_of(word: &str, rest: &str) -> bool {
    let is_number = |total: &str| total.starts_with(|c: char| c.is_ascii_digit());
    ["-of-", "_of_"].iter().any(|of| rest.strip_prefix(of).is_some_and(is_number))
        && !STEP_WORDS
            .iter()
            .chain(&EPOCH_WORDS)
            .chain(&COURSE_WORDS)
            .any(|known| known.eq_ignore_ascii_case(word))
}

/// A path apart from how far it is, so that it is known again in the rest of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// With `#` for every number.
    pub series: String,
    /// Which part of several it is: numbers after such a word as `rank`, or before `-of-`.
    pub ranks: Vec<u64>,
    /// Of how many, if it says so.
    pub of: Option<u64>,
    /// As programs write that: `00001-of-00004`. `1-of-4` may have another meaning.
    pub is_padded: bool,
    /// All other numbers.
    pub others: Vec<u64>,
}

/// Reads `step-3-rank-1.pt`, `worker-2/epoch-5.pt`, `step-3-00001-of-00004.safetensors`.
pub fn shape(path: &str) -> Shape {
    let mut shape = Shape {
        series: String::with_capacity(path.len()),
        ranks: Vec::new(),
        of: None,
        is_padded: false,
        others: Vec::new(),
    };
    for piece in pieces(path) {
        match piece {
            Piece::Text(text) => shape.series.push_str(text),
            Piece::Number(number) => {
                shape.series.push('#');
                shape.others.extend(number.parse::<u64>());
            }
            Piece::Rank(number) => {
                shape.series.push('#');
                shape.ranks.extend(number.parse::<u64>());
            }
            Piece::Of(number) => {
                shape.series.push('#');
                shape.of = number.parse().ok();
                shape.is_padded = number.starts_with('0');
            }
        }
    }
    // Lightning calls a second save of the same thing so.
    if let Some((stem, ending)) = shape.series.rsplit_once('.')
        && let Some(first) = stem.strip_suffix("-v#")
    {
        shape.series = format!("{first}.{ending}");
    }
    shape
}

/// The same for all ranks, with all other numbers as they are.
pub fn without_ranks(path: &str) -> String {
    let text = |piece| match piece {
        Piece::Text(text) | Piece::Number(text) | Piece::Of(text) => text,
        Piece::Rank(_) => "#",
    };
    pieces(path).into_iter().map(text).collect()
}

const RANK_WORDS: [&str; 13] =
    ["rank", "worker", "process", "proc", "shard", "part", "node", "host", "gpu", "tp", "pp", "dp", "mp"];

enum Piece<'a> {
    Text(&'a str),
    Number(&'a str),
    Rank(&'a str),
    Of(&'a str),
}

fn pieces(path: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = path;
    let mut is_of = false;
    while !rest.is_empty() {
        let before = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, from) = rest.split_at(before);
        let after = from.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = &from[..from.len() - after.len()];
        rest = after;
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        if number.is_empty() {
            break;
        }
        let word = text.trim_end_matches(['-', '_', '=', '.']);
        let word = &word[word.trim_end_matches(char::is_alphabetic).len()..];
        let is_rank = RANK_WORDS.iter().any(|known| known.eq_ignore_ascii_case(word));
        let is_total = std::mem::take(&mut is_of) && matches!(text, "-of-" | "_of_");
        let is_part_of = is_part_of(word, rest);
        pieces.push(if is_total {
            Piece::Of(number)
        } else if is_part_of || is_rank {
            is_of = is_part_of;
            Piece::Rank(number)
        } else {
            Piece::Number(number)
        });
    }
    pieces
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

/// A name without its ending, if that is one: a dot, a letter, and more of them or digits. `.pth.tar` is one, `.ckpt-1000` is not.
fn stem(name: &str) -> &str {
    let name = name.strip_suffix(".tar").unwrap_or(name);
    match name.rsplit_once('.') {
        Some((stem, ending)) if !stem.is_empty() && is_ending(ending) => stem,
        _ => name,
    }
}

fn is_ending(text: &str) -> bool {
    text.starts_with(char::is_alphabetic) && text.chars().all(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_ranks() {
        let cases = [
            ("step-3-rank-1.pt", "step-#-rank-#.pt", vec![1], None),
            ("rank0_step-30.pt", "rank#_step-#.pt", vec![0], None),
            ("Worker-2/epoch-5.pt", "Worker-#/epoch-#.pt", vec![2], None),
            ("step-3-00001-of-00004.safetensors", "step-#-#-of-#.safetensors", vec![1], Some(4)),
            ("step-3-tp-0-pp-12.pt", "step-#-tp-#-pp-#.pt", vec![0, 12], None),
            ("epoch=3-step=610-val_loss=0.35.ckpt", "epoch=#-step=#-val_loss=#.#.ckpt", vec![], None),
            ("epoch=3-step=610-v2.ckpt", "epoch=#-step=#.ckpt", vec![], None),
            ("frank-1.pt", "frank-#.pt", vec![], None),
            ("best-of-3.pt", "best-of-#.pt", vec![], None),
            ("epoch_3_of_10.pt", "epoch_#_of_#.pt", vec![], None),
            ("a-1-of-x", "a-#-of-x", vec![], None),
            ("rank-99999999999999999999.pt", "rank-#.pt", vec![], None),
            ("ränk-1", "ränk-#", vec![], None),
            ("", "", vec![], None),
        ];
        for (path, series, ranks, of) in cases {
            let found = shape(path);
            assert_eq!((found.series.as_str(), found.ranks, found.of), (series, ranks, of), "{path}");
        }
        assert_eq!(without_ranks("run-2/rank-3"), "run-2/rank-#");
    }

    #[test]
    fn a_row_is_told_apart_by_all_but_how_far_it_is() {
        let cases = [
            ("models/epoch-10.pt", "models/epoch-#.pt"),
            ("epoch=3-step=610-val_loss=0.35-v2.ckpt", "/epoch=#-val_loss=#.ckpt"),
            ("checkpoint-epoch-6.json", "/checkpoint-epoch-#.json"),
            ("checkpoint-epoch-6-step-229.json", "/checkpoint-epoch-#.json"),
            ("loss0.35-epoch3.pt", "/loss#-epoch#.pt"),
            ("resnet50-epoch-3.pt", "/resnet50-epoch-#.pt"),
            ("fold-2-epoch-3.pt", "/fold-2-epoch-#.pt"),
            ("epoch-3-fold-2.pt", "/epoch-#-fold-2.pt"),
            ("epoch-3-lr1e-4.pt", "/epoch-#-lr1e-4.pt"),
            ("lr1e-4_epoch-3.pt", "/lr1e-4_epoch-#.pt"),
            ("bert_batch32_step1000.pt", "/bert_batch32_step#.pt"),
            ("model_epoch1_batch500.pt", "/model_epoch#.pt"),
            ("batch_5.pt", "/batch_#.pt"),
            ("checkpoint_1_500.pt", "/checkpoint_#_#.pt"),
            ("model.ckpt-1000", "/model.ckpt-#"),
            ("step_900k.pt", "/step_#.pt"),
            ("step_2M.pt", "/step_#.pt"),
            ("model_1_epoch_3.pt", "/model_1_epoch_#.pt"),
            ("model_5.pt", "/model_#.pt"),
            ("1000.pth.tar", "/#.pth.tar"),
            ("run-2/rank-3/step-5-rank-3.pt", "run-2/rank-#/step-#-rank-#.pt"),
            ("step-3-00001-of-00004.pt", "/step-#-#-of-#.pt"),
            ("00001-of-00004-step-3.pt", "/#-of-#-step-#.pt"),
            ("épöque-5-step-7", "/épöque-5-step-#"),
            ("", "/"),
        ];
        for (path, expected) in cases {
            assert_eq!(row(path), expected, "{path}");
        }
    }

    #[test]
    fn what_a_run_was_started_with_is_not_how_far_it_is() {
        for name in
            ["lr1e-4", "batch32", "resnet50-epochs100-batch32", "seed3", "482913", "model_3", "e5-large"]
        {
            assert!(!is_explicit(name), "{name}");
        }
        for name in ["step-100", "epoch_3", "checkpoint-500", "global_step30", "lr1e-4-step-500", "epochs-3"]
        {
            assert!(is_explicit(name), "{name}");
        }
    }

    #[test]
    fn a_directory_tells_the_epoch_of_a_step() {
        for (path, step, epoch) in [
            ("a/epoch_2/step_100.pt", Some(100), Some(2)),
            ("epoch-2/epoch-3-step-100.pt", Some(100), Some(3)),
            ("epoch-2/epoch-3.pt", None, Some(3)),
            // What is in a row of epochs, or a setting.
            ("epoch-2/model_1.pt", Some(1), None),
            ("run-epochs100/step-500.pt", Some(500), None),
            ("step_100.pt", Some(100), None),
        ] {
            assert_eq!(of_path(path), Numbers { step, epoch }, "{path}");
        }
    }

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
            ("model.ckpt-1000", Some(1000), None),
            ("weights.h5", None, None),
            ("resnet-50.pt", None, None),
            ("e2e-example-config.json", None, None),
            ("model-7b-config.json", None, None),
            ("e3s100.pt", None, Some(3)),
            ("e3.pt", None, Some(3)),
            ("e3_loss0.5.pt", None, Some(3)),
            ("lr1e-4", None, None),
            ("lr1.5e-4_e3.pt", None, Some(3)),
            ("wd1E-2", None, None),
            ("e5-large", None, None),
            ("multilingual-e5-base_step_100.pt", Some(100), None),
            ("batch32_epoch3.pt", None, Some(3)),
            ("ep3it500.pt", Some(500), Some(3)),
            ("ep3_acc0.9.h5", None, Some(3)),
            ("model_10k.pt", Some(10_000), None),
            ("step_900k.pt", Some(900_000), None),
            ("step_2M.pt", Some(2_000_000), None),
            ("step_1.5M", Some(1_500_000), None),
            ("step_1.5.pt", None, None),
            ("checkpoint-7b.pt", Some(7), None),
            ("epoch3step610.pt", Some(610), Some(3)),
            ("checkpoint-500steps.pt", Some(500), None),
            ("best.pt", None, None),
            ("bert_batch32_step1000.pt", Some(1000), None),
            ("unet-model-64-step-5.pt", Some(5), None),
            ("model_epoch1_batch500.pt", Some(500), Some(1)),
            ("checkpoint-500-epoch-3.pt", Some(500), Some(3)),
            ("checkpoint-1-step-500.pt", Some(500), None),
            ("model_1_epoch_3.pt", None, Some(3)),
            ("model-00001-of-00002.safetensors", None, None),
            ("epoch-3-of-10.pt", None, Some(3)),
            ("model-00001-of-00002-step-100.pt", Some(100), None),
            ("ft-model-00001-of-00002.safetensors", None, None),
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
