//! Bodies: JSON or YAML, by what the client says it sends.

use serde_json::Value;

use super::Incoming;
use crate::error::{ApiError, Result};
use crate::write::Patch;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const UNKNOWN: &str = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml";

/// The media type of a body, without its parameters.
pub(super) fn media(incoming: &Incoming) -> &str {
    incoming.content_type.split(';').next().unwrap_or_default().trim()
}

/// The body as an object.
pub(super) fn object(incoming: &Incoming) -> Result<Value> {
    match media(incoming) {
        "" | "application/json" | "*/*" => json(&incoming.body),
        PROTOBUF => super::protobuf::object(&incoming.body).ok_or_else(|| {
            ApiError::unsupported(
                "this protobuf body cannot be read here - accepted media types include: application/json, application/yaml",
            )
        }),
        "application/yaml" | "application/x-yaml" | "text/yaml" => yaml(&incoming.body),
        _ => Err(ApiError::unsupported(UNKNOWN)),
    }
}

/// The body as a patch, and of which kind.
pub(super) fn patch(incoming: &Incoming) -> Result<(Patch, Value)> {
    let media = media(incoming);
    let how = Patch::from_content_type(media).ok_or_else(|| {
        ApiError::unsupported(
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, \
             application/apply-patch+yaml",
        )
    })?;
    let value = match how {
        Patch::Apply => match serde_json::from_slice(&incoming.body) {
            Ok(value) => value,
            Err(_) => yaml(&incoming.body)?,
        },
        _ => serde_json::from_slice(&incoming.body)
            .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?,
    };
    Ok((how, value))
}

fn json(bytes: &[u8]) -> Result<Value> {
    serde_json::from_slice(bytes).map_err(|error| {
        ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
    })
}

fn yaml(bytes: &[u8]) -> Result<Value> {
    let text = std::str::from_utf8(bytes).map_err(|_| ApiError::bad_request("the body is not UTF-8"))?;
    serde_saphyr::from_str(text)
        .map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))
}
