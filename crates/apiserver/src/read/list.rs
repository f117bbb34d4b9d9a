//! Lists, in pages that show one moment however long the reading takes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::select::Selection;
use crate::error::{ApiError, Result};
use crate::kinds::Kind;
use crate::state::State;
use crate::store::{Object, key};

/// What a list is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListOptions {
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    pub(crate) resource_version: String,
    pub(crate) version_match: String,
    /// Only watches have initial events.
    pub(crate) send_initial: bool,
}

/// One page.
pub(crate) struct Page {
    pub(crate) metadata: Value,
    pub(crate) objects: Vec<Arc<Object>>,
}

/// Where the next page begins.
#[derive(Serialize, Deserialize)]
struct Token {
    v: String,
    rv: u64,
    start: String,
}

impl State {
    /// The objects that are selected.
    pub(crate) fn list(&self, kind: &Kind, selection: &Selection, options: &ListOptions) -> Result<Page> {
        let current = self.store.revision();
        let (revision, start) = if options.continue_token.is_empty() {
            (self.list_revision(options)?, String::new())
        } else {
            if !options.resource_version.is_empty() && options.resource_version != "0" {
                return Err(ApiError::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let token = read_token(&options.continue_token)?;
            (token.rv, token.start)
        };
        let all = if revision == current {
            self.present(kind, selection)
        } else {
            self.store.list_at(&kind.resource, &selection.namespace, revision).map_err(|_| {
                let expired = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
                if options.continue_token.is_empty() {
                    ApiError::expired("The resourceVersion for the provided list is too old.")
                } else {
                    ApiError::expired(expired).with_continue(token(current, start.clone()))
                }
            })?
        };
        let selected = all.into_iter().filter(|object| selection.matches(object));
        let mut objects: Vec<Arc<Object>> = if start.is_empty() {
            selected.collect()
        } else {
            selected.skip_while(|object| key(&object.facts.namespace, &object.facts.name) < start).collect()
        };
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if options.limit > 0 && objects.len() > options.limit {
            let next = &objects[options.limit].facts;
            metadata["continue"] = token(revision, key(&next.namespace, &next.name)).into();
            if selection.is_everything() {
                metadata["remainingItemCount"] = (objects.len() - options.limit).into();
            }
            objects.truncate(options.limit);
        }
        Ok(Page { metadata, objects })
    }

    fn present(&self, kind: &Kind, selection: &Selection) -> Vec<Arc<Object>> {
        if let Some(name) = selection.name()
            && (!selection.namespace.is_empty() || !kind.namespaced)
        {
            return self
                .store
                .get(&kind.resource, &key(&selection.namespace, name))
                .cloned()
                .into_iter()
                .collect();
        }
        self.store.list(&kind.resource, &selection.namespace).cloned().collect()
    }

    /// The moment that a first page shows.
    fn list_revision(&self, options: &ListOptions) -> Result<u64> {
        let current = self.store.revision();
        let given = options.resource_version.as_str();
        if options.send_initial {
            let forbidden = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list";
            return Err(if !options.version_match.is_empty() && given.is_empty() {
                invalid_list(&format!(
                    "[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided, {forbidden}]"
                ))
            } else {
                invalid_list(forbidden)
            });
        }
        match options.version_match.as_str() {
            "Exact" | "NotOlderThan" if given.is_empty() => {
                return Err(invalid_list(
                    "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            "Exact" if given == "0" => {
                return Err(invalid_list(
                    "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
            "" | "Exact" | "NotOlderThan" => {}
            other => {
                return Err(invalid_list(&format!(
                    "resourceVersionMatch: Unsupported value: \"{other}\": supported values: \"Exact\", \"NotOlderThan\", \"\""
                )));
            }
        }
        if given.is_empty() || given == "0" {
            return Ok(current);
        }
        let wanted = parse_revision(given)?;
        if wanted > current {
            return Err(too_large(wanted, current));
        }
        let exact =
            options.version_match == "Exact" || (options.version_match.is_empty() && options.limit > 0);
        Ok(if exact { wanted } else { current })
    }
}

pub(crate) fn invalid_list(why: &str) -> ApiError {
    ApiError::new(422, "Invalid", format!("ListOptions.meta.k8s.io \"\" is invalid: {why}"))
}

pub(crate) fn parse_revision(text: &str) -> Result<u64> {
    text.parse().map_err(|_| {
        ApiError::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
        ))
    })
}

pub(crate) fn too_large(wanted: u64, current: u64) -> ApiError {
    let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
    ApiError::new(504, "Timeout", message).with_causes(vec![
        json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}),
    ])
}

fn token(revision: u64, start: String) -> String {
    let token = Token { v: "meta.k8s.io/v1".to_owned(), rv: revision, start };
    // Plain data is always written.
    crate::rules::base64(&serde_json::to_vec(&token).unwrap_or_default()).replace('+', "-").replace('/', "_")
}

fn read_token(text: &str) -> Result<Token> {
    let wrong = || {
        ApiError::bad_request(
            "invalid continue token: continue key is not valid: this server did not give it out",
        )
    };
    let bytes = decode(text).ok_or_else(wrong)?;
    serde_json::from_slice(&bytes).map_err(|_| wrong())
}

/// Base64 for addresses, with or without padding.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let (mut word, mut bits) = (0u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'-' | b'+' => 62,
            b'_' | b'/' => 63,
            _ => return None,
        };
        word = (word << 6) | u32::from(six);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push(u8::try_from((word >> bits) & 0xff).ok()?);
        }
    }
    Some(out)
}
