//! What single files say about themselves, by their endings. Used by every layout that is made of files.

use crate::formats::json::Sketch;
use crate::formats::zip::Archive;
use crate::formats::{READ_WHOLE, Wholeness, hdf5, json, npy, packed, pickle, safetensors, ubjson, zip};
use crate::numbers::Numbers;
use crate::store::StoreError;

use super::{Reader, SMALL};
use crate::tree;

/// A file, judged by its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    pub(crate) wholeness: Wholeness,
    pub(crate) numbers: Numbers,
}

impl Judged {
    fn plain(wholeness: Wholeness) -> Self {
        Self { wholeness, numbers: Numbers::default() }
    }

    fn cut(why: impl Into<String>) -> Self {
        Self::plain(Wholeness::Cut(why.into()))
    }
}

/// The ending of a file's name, in lower case. People call what torch saves `.pth.tar`, which is no archive of tar.
pub(crate) fn ending(path: &str) -> String {
    let of = |path: &str| {
        tree::name(path).rsplit_once('.').map(|(_, ending)| ending.to_lowercase()).unwrap_or_default()
    };
    let last = of(path);
    if last == "tar" {
        let before = of(&path[..path.len() - ".tar".len()]);
        if matches!(before.as_str(), "pt" | "pth" | "ckpt") {
            return before;
        }
    }
    last
}

/// What a file has to be, if its ending says that and it can be told.
pub(crate) fn promised(path: &str) -> Option<&'static str> {
    Some(match ending(path).as_str() {
        "safetensors" => "a file of safetensors",
        "npz" => "an archive of NumPy",
        "npy" => "an array of NumPy",
        "keras" => "a model of Keras",
        "h5" | "hdf5" => "HDF5",
        "json" => "JSON",
        "pkl" | "pickle" => "a pickle",
        _ => return None,
    })
}

/// Judges a file by what its name says it should be. `Other` if its name promises nothing that could be checked, or the
/// content is something else altogether.
pub(crate) fn judge(reader: &Reader<'_>, path: &str) -> Result<Judged, StoreError> {
    let store = reader.store;
    let Some(size) = reader.size(path) else { return Err(StoreError::Vanished(path.to_owned())) };
    if size == 0 {
        return Ok(Judged::cut("it is empty"));
    }
    Ok(match ending(path).as_str() {
        "pt" | "pth" | "ckpt" | "bin" | "tar" => torch(reader, path, size)?,
        "safetensors" => Judged::plain(safetensors::read(store, path, size)?),
        "json" => {
            let (wholeness, sketch) = json::read(store, path, size)?;
            Judged { wholeness, numbers: sketch.as_ref().map(numbers_of_json).unwrap_or_default() }
        }
        "ubj" => Judged::plain(ubjson::read(store, path, size)?),
        "npz" | "keras" | "zip" => Judged::plain(archive(reader, path, size)?),
        "npy" => Judged::plain(npy::read(store, path, size)?),
        "h5" | "hdf5" => Judged::plain(hdf5::read(store, path, size)?),
        "pkl" | "pickle" | "pdparams" | "pdopt" | "joblib" => pickled(reader, path, size)?,
        "txt" => Judged::plain(lightgbm(reader, path, size)?),
        "msgpack" | "params" | "model" => Judged::plain(hole_or_other(reader, path, size)?),
        "" => unnamed(reader, path, size)?,
        _ => Judged::plain(Wholeness::Other),
    })
}

/// Without an ending, the first bytes tell.
fn unnamed(reader: &Reader<'_>, path: &str, size: u64) -> Result<Judged, StoreError> {
    let head = reader.store.read(path, 0..size.min(9))?;
    Ok(match head.as_slice() {
        [b'P', b'K', ..] => torch(reader, path, size)?,
        // The length of a header, and its first byte.
        [.., 0, 0, 0, b'{'] => Judged::plain(safetensors::read(reader.store, path, size)?),
        [0x80, 2..=5, ..] => pickled(reader, path, size)?,
        _ => Judged::plain(hole_or_other(reader, path, size)?),
    })
}

/// Is it text of a few lines?
pub(crate) fn is_note(reader: &Reader<'_>, path: &str) -> Result<bool, StoreError> {
    let Some(size) = reader.size(path).filter(|size| *size <= SMALL) else { return Ok(false) };
    let content = reader.store.read(path, 0..size)?;
    let is_text = |text: &str| !text.contains(|c: char| c.is_control() && !c.is_whitespace());
    Ok(std::str::from_utf8(&content).is_ok_and(is_text))
}

fn archive(reader: &Reader<'_>, path: &str, size: u64) -> Result<Wholeness, StoreError> {
    Ok(match zip::read(reader.store, path, size)? {
        Archive::Whole(_) => Wholeness::Whole,
        Archive::Huge(_) => Wholeness::Likely,
        Archive::Cut { why, .. } => Wholeness::Cut(why),
        Archive::Other => hole_or_other(reader, path, size)?,
    })
}

/// torch.save writes a ZIP archive whose first member is `<name>/data.pkl`; before 1.6 it wrote a row of pickles.
fn torch(reader: &Reader<'_>, path: &str, size: u64) -> Result<Judged, StoreError> {
    let is_pickle_of_torch = |name: &str| name.ends_with("/data.pkl");
    Ok(match zip::read(reader.store, path, size)? {
        Archive::Whole(members) => match members.iter().find(|member| is_pickle_of_torch(&member.name)) {
            Some(member) if member.is_stored && member.size <= READ_WHOLE => {
                let content = member.content(reader.store, path)?;
                let mut found = Keys::default();
                match pickle::outermost_integers(&content, |key, value| found.note(key, value)) {
                    Some(_) => Judged { wholeness: Wholeness::Whole, numbers: found.numbers() },
                    None => Judged::cut("its data.pkl does not read"),
                }
            }
            Some(_) => Judged::plain(Wholeness::Whole),
            None => Judged::plain(Wholeness::Other),
        },
        Archive::Huge(first) => {
            let is_torchs = first.is_some_and(|name| is_pickle_of_torch(&name));
            Judged::plain(if is_torchs { Wholeness::Likely } else { Wholeness::Other })
        }
        // Nothing but an archive of torch is ours to judge; the first member tells, if that much is there.
        Archive::Cut { why, first: Some(first) } if is_pickle_of_torch(&first) => Judged::cut(why),
        Archive::Cut { why, first: None } if !matches!(ending(path).as_str(), "bin" | "tar") => {
            Judged::cut(why)
        }
        Archive::Cut { .. } => Judged::plain(Wholeness::Other),
        Archive::Other if reader.store.read(path, 0..1)? == [0x80] => pickled(reader, path, size)?,
        Archive::Other => Judged::plain(hole_or_other(reader, path, size)?),
    })
}

/// The dictionary that torch.save wrote; nothing if it is something else, or too large.
pub(crate) fn pickle_of_torch(
    reader: &Reader<'_>,
    path: &str,
    size: u64,
) -> Result<Option<Vec<u8>>, StoreError> {
    let Archive::Whole(members) = zip::read(reader.store, path, size)? else { return Ok(None) };
    let member = members.iter().find(|member| member.name.ends_with("/data.pkl"));
    let member = member.filter(|member| member.is_stored && member.size <= READ_WHOLE);
    member.map(|member| member.content(reader.store, path)).transpose()
}

/// A model of LightGBM: text with its parameters at the end.
fn lightgbm(reader: &Reader<'_>, path: &str, size: u64) -> Result<Wholeness, StoreError> {
    // Python adds a line of its own behind the parameters.
    let (head, end, parameters) = (b"tree\nversion=", "\npandas_categorical:", "\nend of parameters\n");
    if reader.store.read(path, 0..size.min(head.len() as u64))? != head {
        return Ok(Wholeness::Other);
    }
    let tail = reader.store.read(path, size.saturating_sub(READ_WHOLE)..size)?;
    let tail = String::from_utf8_lossy(&tail);
    let is_whole = tail.rsplit_once(end).is_some_and(|(_, last)| last.ends_with('\n'));
    Ok(match is_whole {
        true => Wholeness::Whole,
        false if tail.trim_end().ends_with(parameters.trim_end()) => Wholeness::Likely,
        false => Wholeness::Cut("it ends in the middle".to_owned()),
    })
}

/// One pickle, or several and raw data behind them: only the first can be followed. Accelerate calls an archive of torch so.
fn pickled(reader: &Reader<'_>, path: &str, size: u64) -> Result<Judged, StoreError> {
    let head = reader.store.read(path, 0..size.min(READ_WHOLE))?;
    if head.starts_with(b"PK") {
        return torch(reader, path, size);
    }
    if head.first() != Some(&0x80) {
        return Ok(Judged::plain(match hole_or_other(reader, path, size)? {
            Wholeness::Other if is_text(&head) => Wholeness::Likely,
            Wholeness::Other => packed::read(reader.store, path, size)?,
            other => other,
        }));
    }
    let mut found = Keys::default();
    let end = pickle::outermost_integers(&head, |key, value| found.note(key, value));
    let wholeness = match end {
        Some(end) if end as u64 == size => Wholeness::Whole,
        // joblib puts arrays between the opcodes, so that they cannot be followed. Here, too, the last one is the last byte.
        None if size <= READ_WHOLE && is_joblibs(&head) && head.ends_with(b".") => Wholeness::Likely,
        None if size <= READ_WHOLE => Wholeness::Cut("it ends in the middle".to_owned()),
        _ => Wholeness::Likely,
    };
    Ok(Judged { wholeness, numbers: found.numbers() })
}

fn is_joblibs(head: &[u8]) -> bool {
    let mark = b"joblib.numpy_pickle";
    head.windows(mark.len()).any(|window| window == mark)
}

/// A pickle in the first of its forms, which is text.
fn is_text(head: &[u8]) -> bool {
    matches!(head.first(), Some(b'(' | b'c' | b']' | b'}' | b')' | b'l' | b'd'))
}

/// A file of zeros is what a machine that lost power leaves of one that was not on the disk yet.
fn hole_or_other(reader: &Reader<'_>, path: &str, size: u64) -> Result<Wholeness, StoreError> {
    let mut ends = reader.store.read(path, 0..size.min(4096))?;
    ends.extend(reader.store.read(path, size.saturating_sub(4096)..size)?);
    let is_hole = ends.iter().all(|byte| *byte == 0);
    Ok(if is_hole { Wholeness::Cut("it is full of zeros".to_owned()) } else { Wholeness::Other })
}

/// The keys under which programs keep how far they are, best first.
const STEP_KEYS: [&str; 8] =
    ["global_step", "step", "iteration", "iter_num", "iter", "num_updates", "global_steps", "current_step"];
const EPOCH_KEYS: [&str; 3] = ["epoch", "current_epoch", "epochs_done"];

#[derive(Default)]
struct Keys {
    steps: [Option<i64>; STEP_KEYS.len()],
    epochs: [Option<i64>; EPOCH_KEYS.len()],
}

impl Keys {
    fn note(&mut self, key: &str, value: i64) {
        let places = STEP_KEYS.iter().zip(&mut self.steps).chain(EPOCH_KEYS.iter().zip(&mut self.epochs));
        for (known, place) in places {
            if *known == key && value >= 0 {
                place.get_or_insert(value);
            }
        }
    }

    fn numbers(&self) -> Numbers {
        Numbers {
            step: self.steps.iter().copied().flatten().next(),
            epoch: self.epochs.iter().copied().flatten().next(),
        }
    }
}

/// From the outermost object, or from one in it that is called `state`.
pub(crate) fn numbers_of_json(sketch: &Sketch) -> Numbers {
    let at = |sketch: &Sketch| {
        let first = |keys: &[&str]| {
            keys.iter().find_map(|key| sketch.get(key).and_then(Sketch::integer).filter(|value| *value >= 0))
        };
        Numbers { step: first(&STEP_KEYS), epoch: first(&EPOCH_KEYS) }
    };
    at(sketch).or(sketch.get("state").map(at).unwrap_or_default())
}
