//! Reads a Kubernetes type and notes every field that the type does not know.
//!
//! The types of `k8s_openapi` pass over such fields in silence. But they tell whoever reads for them which fields they
//! know, so no schema has to be kept in memory for this.

use std::cell::RefCell;
use std::iter::Enumerate;
use std::slice;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};
use serde_json::{Error, Value};

use crate::problem::{At, Problem};
use crate::schema::nearest;

/// A value and where it stands.
pub(crate) struct Checked<'de, 'p> {
    pub(crate) value: &'de Value,
    pub(crate) at: At<'p>,
    pub(crate) unknown: &'p RefCell<Vec<Problem>>,
}

impl<'de> Deserializer<'de> for Checked<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Self { value, at, unknown } = self;
        match value {
            Value::Array(items) => {
                visitor.visit_seq(Items { rest: items.iter().enumerate(), at: &at, unknown })
            }
            Value::Object(fields) => {
                visitor.visit_map(Fields { rest: fields.iter(), next: None, at: &at, unknown })
            }
            single => single.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        for (name, value) in self.value.as_object().into_iter().flatten() {
            if !known.contains(&name.as_str()) {
                let hint = nearest(name, known.iter().copied())
                    .map(|near| format!("; did you mean {near}?"))
                    .unwrap_or_default();
                let (path, message) = (self.at.key(name).path(), format!("unknown field{hint}"));
                // What is empty changes nothing: jobs with such a field have always run, and go on.
                let is_empty = value.is_null()
                    || value.as_array().is_some_and(Vec::is_empty)
                    || value.as_object().is_some_and(serde_json::Map::is_empty);
                let problem =
                    if is_empty { Problem::warning(path, message) } else { Problem::error(path, message) };
                self.unknown.borrow_mut().push(problem);
            }
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.value.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

struct Items<'de, 'p> {
    rest: Enumerate<slice::Iter<'de, Value>>,
    at: &'p At<'p>,
    unknown: &'p RefCell<Vec<Problem>>,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some((index, value)) = self.rest.next() else { return Ok(None) };
        let at = self.at.index(index);
        seed.deserialize(Checked { value, at, unknown: self.unknown }).map(Some)
    }
}

struct Fields<'de, 'p> {
    rest: serde_json::map::Iter<'de>,
    /// The field whose key has been read.
    next: Option<(&'de str, &'de Value)>,
    at: &'p At<'p>,
    unknown: &'p RefCell<Vec<Problem>>,
}

impl<'de> MapAccess<'de> for Fields<'de, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((name, value)) = self.rest.next() else { return Ok(None) };
        self.next = Some((name, value));
        seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (name, value) = self.next.take().ok_or_else(|| Error::custom("a value before its key"))?;
        let at = self.at.key(name);
        seed.deserialize(Checked { value, at, unknown: self.unknown })
    }
}
