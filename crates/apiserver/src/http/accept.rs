//! Which form of the answer a client accepts.

use crate::error::{ApiError, Result};
use crate::read::render::{Form, Included};

/// The `Accept` header, taken apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accept(Vec<Media>);

#[derive(Clone, Debug, Default)]
struct Media {
    name: String,
    shown_as: String,
    version: String,
    group: String,
}

impl Accept {
    pub(crate) fn parse(header: &str) -> Self {
        let medias = header.split(',').map(str::trim).filter(|media| !media.is_empty());
        Self(
            medias
                .map(|media| {
                    let mut parts = media.split(';').map(str::trim);
                    let mut media =
                        Media { name: parts.next().unwrap_or_default().to_owned(), ..Media::default() };
                    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
                        match key {
                            "as" => value.clone_into(&mut media.shown_as),
                            "v" => value.clone_into(&mut media.version),
                            "g" => value.clone_into(&mut media.group),
                            _ => {}
                        }
                    }
                    media
                })
                .collect(),
        )
    }

    /// Whether this very type is asked for.
    pub(crate) fn names(&self, media_type: &str) -> bool {
        self.0.iter().any(|media| media.name == media_type)
    }

    /// The version of aggregated discovery that is asked for.
    pub(crate) fn aggregated(&self) -> Option<&'static str> {
        self.0.iter().filter(|media| media.shown_as == "APIGroupDiscoveryList").find_map(|media| match media
            .version
            .as_str()
        {
            "v2" => Some("v2"),
            "v2beta1" => Some("v2beta1"),
            _ => None,
        })
    }

    /// The form in which objects are shown.
    pub(crate) fn form(&self, include_object: &str) -> Result<Form> {
        if self.0.is_empty() {
            return Ok(Form::Whole);
        }
        for media in &self.0 {
            if !matches!(media.name.as_str(), "application/json" | "*/*" | "application/*") {
                continue;
            }
            match (media.shown_as.as_str(), media.group.as_str(), media.version.as_str()) {
                ("", ..) => return Ok(Form::Whole),
                ("Table", "meta.k8s.io", "v1") => {
                    return match include_object {
                        "" | "Metadata" => Ok(Form::Table(Included::Metadata)),
                        "Object" => Ok(Form::Table(Included::Object)),
                        "None" => Ok(Form::Table(Included::Nothing)),
                        other => Err(ApiError::bad_request(format!(
                            "Unable to convert to Table as requested: includeObject: Invalid value: \"{other}\": must be 'Metadata', 'Object', 'None', or empty"
                        ))),
                    };
                }
                ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => {
                    return Ok(Form::Metadata);
                }
                _ => {}
            }
        }
        Err(ApiError::new(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/json;as=Table;v=v1;g=meta.k8s.io, application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ))
    }

    /// Whether plain JSON will do.
    pub(crate) fn json(&self) -> Result<()> {
        let any = self.0.is_empty()
            || self
                .0
                .iter()
                .any(|media| matches!(media.name.as_str(), "application/json" | "*/*" | "application/*"));
        if any {
            return Ok(());
        }
        Err(ApiError::new(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json",
        ))
    }
}

pub(crate) fn aggregated_type(version: &str) -> &'static str {
    match version {
        "v2" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        _ => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_is_known_is_taken() {
        let form = |header: &str| Accept::parse(header).form("").map_err(|error| error.code());
        assert_eq!(form(""), Ok(Form::Whole));
        assert_eq!(
            form("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"),
            Ok(Form::Table(Included::Metadata))
        );
        assert_eq!(form("application/vnd.kubernetes.protobuf,application/json"), Ok(Form::Whole));
        assert_eq!(
            form("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
            Ok(Form::Metadata)
        );
        assert_eq!(form("application/vnd.kubernetes.protobuf"), Err(406));
        assert_eq!(form("text/html"), Err(406));
    }
}
