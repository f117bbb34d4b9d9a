//! JSON files: parsed as a whole, or judged by their ends when they are huge.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::store::{Store, StoreError};

use super::{READ_WHOLE, Wholeness, hole_or_other};

/// The keys that anybody asks for. A few megabytes of JSON may have a million others, and the agent has little memory.
const KNOWN: [&str; 16] = [
    "global_step",
    "step",
    "iteration",
    "iter_num",
    "iter",
    "num_updates",
    "global_steps",
    "current_step",
    "epoch",
    "current_epoch",
    "epochs_done",
    "state",
    "best_model_checkpoint",
    "learner",
    "init_timestamp_nsecs",
    "commit_timestamp_nsecs",
];

/// A document without its lists, which are what makes a checkpoint large, and with nothing but the keys that are
/// [known](KNOWN).
#[derive(Debug, PartialEq)]
pub(crate) enum Sketch {
    Object(BTreeMap<&'static str, Sketch>),
    Number(f64),
    Text(String),
    Other,
}

impl Sketch {
    /// Only what is [known](KNOWN) can be found.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        debug_assert!(KNOWN.contains(&key), "{key} is not kept");
        match self {
            Self::Object(items) => items.get(key),
            Self::Number(_) | Self::Text(_) | Self::Other => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Object(_) | Self::Number(_) | Self::Other => None,
        }
    }

    /// A number without its fraction.
    pub(crate) fn integer(&self) -> Option<i64> {
        match self {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "out of range saturates, which is as good as any number"
            )]
            Self::Number(number) if number.is_finite() => Some(*number as i64),
            _ => None,
        }
    }
}

/// What a JSON file is, and what is in it if it is not too large to say.
pub(crate) fn read(
    store: &dyn Store,
    path: &str,
    size: u64,
) -> Result<(Wholeness, Option<Sketch>), StoreError> {
    let head = store.read(path, 0..size.min(64))?;
    let begins = head.iter().find(|byte| !byte.is_ascii_whitespace()).copied();
    let Some(b'{' | b'[') = begins else { return Ok((hole_or_other(store, path, size)?, None)) };
    if size > READ_WHOLE {
        return Ok((by_its_end(store, path, size)?, None));
    }
    let content = store.read(path, 0..size)?;
    let parsed = serde_json::from_slice::<Sketch>(&content)
        // Python writes NaN and Infinity, which are not JSON.
        .or_else(|_| serde_json::from_slice(&without_python_numbers(&content)));
    Ok(match parsed {
        Ok(sketch) => (Wholeness::Whole, Some(sketch)),
        Err(error) if error.is_eof() || !is_closed(&content) => {
            (Wholeness::Cut("it ends in the middle".to_owned()), None)
        }
        Err(_) if content.contains(&0) => (Wholeness::Cut("there is a hole in it".to_owned()), None),
        // Lines of JSON, for example: not cut off, only not a document.
        Err(_) => (Wholeness::Other, None),
    })
}

/// Is each line a document of its own, as in notes that are added to?
pub(crate) fn is_lines(store: &dyn Store, path: &str) -> Result<bool, StoreError> {
    let head = store.read(path, 0..64 << 10)?;
    let first = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(serde_json::from_slice::<IgnoredAny>(first).is_ok())
}

fn by_its_end(store: &dyn Store, path: &str, size: u64) -> Result<Wholeness, StoreError> {
    let tail = store.read(path, size - 64..size)?;
    let is_closed = is_closed(&tail);
    Ok(if is_closed { Wholeness::Likely } else { Wholeness::Cut("it ends in the middle".to_owned()) })
}

/// Does it end as an object or a list does?
fn is_closed(content: &[u8]) -> bool {
    matches!(content.trim_ascii_end().last(), Some(b'}' | b']'))
}

/// The same, with Python's own numbers replaced. In a text it does no harm: such texts are not used.
fn without_python_numbers(content: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(content);
    text.replace("-Infinity", "null").replace("Infinity", "null").replace("NaN", "null").into_bytes()
}

impl<'de> Deserialize<'de> for Sketch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SketchVisitor)
    }
}

struct SketchVisitor;

impl<'de> Visitor<'de> for SketchVisitor {
    type Value = Sketch;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Sketch, E> {
        Ok(Sketch::Other)
    }

    fn visit_unit<E>(self) -> Result<Sketch, E> {
        Ok(Sketch::Other)
    }

    #[expect(clippy::cast_precision_loss, reason = "steps are far below 2^53")]
    fn visit_i64<E>(self, number: i64) -> Result<Sketch, E> {
        Ok(Sketch::Number(number as f64))
    }

    #[expect(clippy::cast_precision_loss, reason = "steps are far below 2^53")]
    fn visit_u64<E>(self, number: u64) -> Result<Sketch, E> {
        Ok(Sketch::Number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Sketch, E> {
        Ok(Sketch::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Sketch, E> {
        Ok(Sketch::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Sketch, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Sketch::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Sketch, A::Error> {
        let mut kept = BTreeMap::new();
        while let Some(Key(key)) = items.next_key()? {
            match key {
                Some(key) => _ = kept.insert(key, items.next_value()?),
                None => _ = items.next_value::<IgnoredAny>()?,
            }
        }
        Ok(Sketch::Object(kept))
    }
}

/// A key, if it is one of those that are [known](KNOWN).
struct Key(Option<&'static str>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(KeyVisitor)
    }
}

struct KeyVisitor;

impl Visitor<'_> for KeyVisitor {
    type Value = Key;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E>(self, text: &str) -> Result<Key, E> {
        Ok(Key(KNOWN.into_iter().find(|known| *known == text)))
    }
}
