//! A bucket of an object store: `s3://bucket/prefix` or `gs://bucket/prefix`, with the credentials of the pod.
//!
//! There are no directories in a bucket: they are made up from the names. There is no renaming either: what is moved is
//! copied first and deleted then.

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use object_store::aws::AmazonS3Builder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path as Key;
use object_store::{BackoffConfig, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig, WriteMultipart};
use tokio::runtime::Runtime;

use super::foreign::Foreign;
use super::http::{Connector, NO_AUTHORITIES};
use super::{Entry, Kind, Listing, OURS, Store, StoreError};
use crate::layouts::is_written_last;
use crate::tree;

/// Smaller files are sent in one request.
const PART: usize = 8 << 20;

/// S3 takes no more parts than 10,000.
const MOST_PARTS: u64 = 9_000;

/// Parts on their way at the same time, if they are small.
const PARTS_AT_ONCE: usize = 4;

/// Bytes in memory at the same time: half of what the agent's container has.
const IN_MEMORY: usize = 256 << 20;

#[derive(Debug)]
pub struct Bucket {
    place: String,
    name: String,
    prefix: Key,
    objects: Arc<dyn ObjectStore>,
    foreign: Foreign,
    runtime: Runtime,
}

impl Bucket {
    /// Is this the URL of a bucket, and not a path?
    pub fn is_url(place: &str) -> bool {
        place.starts_with("s3://") || place.starts_with("gs://")
    }

    /// Makes no request yet. `variables` are those that the vendors' own tools read: `AWS_…` and `GOOGLE_…`.
    pub fn open(
        url: &str,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, StoreError> {
        let place = url.trim_end_matches('/');
        let wrong = |reason: String| StoreError::NoPlace { place: place.to_owned(), reason };
        let Some((scheme, rest)) = place.split_once("://") else {
            return Err(wrong("write s3://bucket/prefix or gs://bucket/prefix".to_owned()));
        };
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if name.is_empty() {
            return Err(wrong(format!("the bucket is missing: write {scheme}://bucket/prefix")));
        }
        let variables = variables.into_iter().map(|(key, value)| (key.to_lowercase(), value));
        let foreign = Foreign::default();
        let connector = Connector(foreign.clone());
        let objects: Arc<dyn ObjectStore> = match scheme {
            "s3" => {
                let mut builder = AmazonS3Builder::new();
                for (key, value) in variables.filter(|(key, _)| key.starts_with("aws_")) {
                    if let Ok(key) = key.parse() {
                        builder = builder.with_config(key, value);
                    }
                }
                let builder =
                    builder.with_bucket_name(name).with_http_connector(connector).with_retry(retries());
                Arc::new(builder.with_allow_http(true).build().map_err(|error| wrong(error.to_string()))?)
            }
            "gs" => {
                let mut builder = GoogleCloudStorageBuilder::new();
                for (key, value) in variables.filter(|(key, _)| key.starts_with("google_")) {
                    if let Ok(key) = key.parse() {
                        builder = builder.with_config(key, value);
                    }
                }
                let builder =
                    builder.with_bucket_name(name).with_http_connector(connector).with_retry(retries());
                // A bucket without a name has been told already: what is left to fail is the reading of the credentials.
                let unusable = |error: object_store::Error| {
                    let reason = without_store(&error.to_string());
                    StoreError::BadCredentials { place: place.to_owned(), reason }
                };
                Arc::new(builder.build().map_err(unusable)?)
            }
            other => {
                return Err(wrong(format!(
                    "{other}:// is not known: write s3://bucket/prefix or gs://bucket/prefix"
                )));
            }
        };
        Ok(Self { foreign, ..Self::over(place, name, prefix, objects)? })
    }

    /// A bucket in any object store.
    pub fn over(
        place: &str,
        name: &str,
        prefix: &str,
        objects: Arc<dyn ObjectStore>,
    ) -> Result<Self, StoreError> {
        let wrong = |reason: String| StoreError::NoPlace { place: place.to_owned(), reason };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        let prefix = Key::parse(prefix.trim_matches('/')).map_err(|error| wrong(error.to_string()))?;
        let foreign = Foreign::default();
        Ok(Self { place: place.to_owned(), name: name.to_owned(), prefix, objects, foreign, runtime })
    }

    fn key(&self, path: &str) -> Result<Key, StoreError> {
        let key =
            if self.prefix.as_ref().is_empty() { path.to_owned() } else { format!("{}/{path}", self.prefix) };
        Key::parse(key)
            .map_err(|error| StoreError::BadName { path: path.to_owned(), reason: error.to_string() })
    }

    fn wait<T>(
        &self,
        path: &str,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, StoreError> {
        self.runtime.block_on(work).map_err(|error| self.failed(path, &error))
    }

    /// What the object store says, in our words. The vendors' codes are in the text only.
    fn failed(&self, path: &str, error: &object_store::Error) -> StoreError {
        use object_store::Error;
        let text = causes(error);
        let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
        if says(&[NO_AUTHORITIES]) {
            return StoreError::NoAuthorities(self.place.clone());
        }
        if says(&["NoSuchBucket", "bucket does not exist", "InvalidBucketName"]) {
            return StoreError::NoBucket(self.name.clone());
        }
        if says(&["169.254.169.254", "/computeMetadata/", "metadata.google.internal", "NoCredentials"]) {
            return StoreError::NoCredentials(self.place.clone());
        }
        let refusals = [
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "AccessDenied",
            "ExpiredToken",
            "403 Forbidden",
            "401 Un",
        ];
        match error {
            Error::NotFound { .. } => StoreError::Vanished(format!("{}/{path}", self.place)),
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                StoreError::Refused(self.place.clone())
            }
            _ if says(&refusals) => StoreError::Refused(self.place.clone()),
            _ => StoreError::Unreachable { place: self.place.clone(), reason: shortened(&text) },
        }
    }

    /// All objects below a path, or all.
    fn objects_below(&self, path: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        let prefix = if path.is_empty() { self.prefix.clone() } else { self.key(path)? };
        let prefix = (!prefix.as_ref().is_empty()).then_some(prefix);
        self.wait(path, self.objects.list(prefix.as_ref()).try_collect())
    }

    /// What the last listing had that is none of ours.
    pub fn foreign(&self) -> Option<StoreError> {
        self.foreign.first().map(|name| StoreError::Foreign { place: self.place.clone(), name })
    }

    /// The path that an object has here.
    fn path_of(&self, key: &Key) -> String {
        let key = key.as_ref();
        key.strip_prefix(self.prefix.as_ref()).unwrap_or(key).trim_start_matches('/').to_owned()
    }

    fn copy_and_delete(&self, moves: Vec<(Key, Key)>) -> Result<(), StoreError> {
        for (from, to) in &moves {
            self.wait(from.as_ref(), self.objects.copy(from, to))?;
        }
        for (from, _) in &moves {
            self.wait(from.as_ref(), self.objects.delete(from))?;
        }
        Ok(())
    }

    /// Sends a file, in parts if it is large. The object is there as a whole or not at all.
    ///
    /// Nothing changes in the bucket unless the file is as expected, both before and after it is read, for somebody may write
    /// over it meanwhile. Tells whether it was. The file is the one that was opened: another one may take its name.
    pub fn upload(
        &self,
        from: &Path,
        to: &str,
        is_expected: &dyn Fn(&Metadata) -> bool,
    ) -> Result<bool, StoreError> {
        let unreadable = |error: std::io::Error| StoreError::of_io(&from.to_string_lossy(), &error);
        let mut file = File::open(from).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if !is_expected(&metadata) {
            return Ok(false);
        }
        let size = metadata.len();
        let key = self.key(to)?;
        if size <= PART as u64 {
            let mut content = Vec::new();
            file.read_to_end(&mut content).map_err(unreadable)?;
            if !is_expected(&file.metadata().map_err(unreadable)?) {
                return Ok(false);
            }
            self.wait(to, self.objects.put(&key, content.into()))?;
            return Ok(true);
        }
        let Some((part, parts_at_once)) = parts(size) else {
            return Err(StoreError::TooLarge {
                file: from.to_string_lossy().into_owned(),
                limit: MOST_PARTS * IN_MEMORY as u64,
            });
        };
        let upload = self.wait(to, self.objects.put_multipart(&key))?;
        let sent = self.runtime.block_on(async {
            let mut upload = WriteMultipart::new_with_chunk_size(upload, part);
            let mut buffer = vec![0; 1 << 20];
            loop {
                let length = match file.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(length) => length,
                    Err(error) => {
                        // Parts that were sent cost money until somebody says that nothing will come of them.
                        let _ = upload.abort().await;
                        return Err(Sending::File(error));
                    }
                };
                if let Err(error) = upload.wait_for_capacity(parts_at_once).await {
                    let _ = upload.abort().await;
                    return Err(Sending::Bucket(error));
                }
                upload.write(&buffer[..length]);
            }
            if !file.metadata().is_ok_and(|metadata| is_expected(&metadata)) {
                let _ = upload.abort().await;
                return Ok(false);
            }
            upload.finish().await.map(|_| true).map_err(Sending::Bucket)
        });
        match sent {
            Ok(is_sent) => Ok(is_sent),
            Err(Sending::File(error)) => Err(unreadable(error)),
            Err(Sending::Bucket(error)) => Err(self.failed(to, &error)),
        }
    }

    /// Fetches an object into a new file.
    pub fn download(&self, from: &str, to: &Path) -> Result<(), StoreError> {
        let unwritable = |error: std::io::Error| StoreError::of_io(&to.to_string_lossy(), &error);
        to.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(unwritable)?;
        let mut file = File::create(to).map_err(unwritable)?;
        let key = self.key(from)?;
        let fetched = self.runtime.block_on(async {
            let mut stream = self.objects.get(&key).await.map_err(Sending::Bucket)?.into_stream();
            while let Some(chunk) = stream.next().await {
                file.write_all(&chunk.map_err(Sending::Bucket)?).map_err(Sending::File)?;
            }
            file.sync_all().map_err(Sending::File)
        });
        match fetched {
            Ok(()) => Ok(()),
            Err(Sending::File(error)) => Err(unwritable(error)),
            Err(Sending::Bucket(error)) => Err(self.failed(from, &error)),
        }
    }
}

/// How large each part of a file is, and how many of them may be in memory: each is until it has arrived. Nothing if not even
/// one fits.
fn parts(size: u64) -> Option<(usize, usize)> {
    let part = usize::try_from(size.div_ceil(MOST_PARTS)).ok()?.max(PART);
    let at_once = (IN_MEMORY / part).min(PARTS_AT_ONCE);
    (at_once > 0).then_some((part, at_once))
}

/// Which end broke.
enum Sending {
    File(std::io::Error),
    Bucket(object_store::Error),
}

/// A few, and not for minutes: the agent looks again anyway.
fn retries() -> RetryConfig {
    RetryConfig { max_retries: 4, retry_timeout: Duration::from_secs(20), backoff: BackoffConfig::default() }
}

/// The error with all that caused it: the vendors' own words are at the end.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// What happened, without the library's name for where.
fn without_store(text: &str) -> String {
    let of_a_store = text.strip_prefix("Generic ").and_then(|text| text.split_once(" error: "));
    of_a_store.map_or(text, |(_, what)| what).to_owned()
}

/// What happened, without how the library went about it: how long that took differs every time, and nobody can act on it.
fn shortened(text: &str) -> String {
    const MOST: usize = 160;
    let is_about_tries = |(before, _): &(&str, &str)| before.contains("Error performing");
    let text = text.split_once(" - ").filter(is_about_tries).map_or(text, |(_, after)| after);
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    let text = text.trim_end_matches(':').to_owned();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

impl Store for Bucket {
    fn place(&self) -> &str {
        &self.place
    }

    fn list(&self) -> Result<Listing, StoreError> {
        let mut listing = Listing::default();
        let mut directories = BTreeSet::new();
        self.foreign.forget();
        let objects = self.objects_below("")?;
        listing.problems.extend(self.foreign());
        for object in objects {
            let path = self.path_of(&object.location);
            if path.is_empty() || path == OURS || path.starts_with(&format!("{OURS}/")) {
                continue;
            }
            let mut directory = tree::parent(&path);
            while !directory.is_empty() && directories.insert(directory.to_owned()) {
                directory = tree::parent(directory);
            }
            let time = object.last_modified;
            let nanoseconds = i32::try_from(time.timestamp_subsec_nanos()).unwrap_or_default();
            let mut tag = DefaultHasher::new();
            object.e_tag.hash(&mut tag);
            listing.entries.push(Entry {
                path,
                kind: Kind::File { size: object.size },
                modified: Timestamp::new(time.timestamp(), nanoseconds).ok(),
                tag: tag.finish(),
            });
        }
        // Some tools make objects in the place of directories.
        listing.entries.retain(|entry| !directories.contains(&entry.path));
        let made_up = |path| Entry { path, kind: Kind::Directory, modified: None, tag: 0 };
        listing.entries.extend(directories.into_iter().map(made_up));
        Ok(listing)
    }

    fn read(&self, path: &str, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let key = self.key(path)?;
        Ok(self.wait(path, self.objects.get_range(&key, range))?.into())
    }

    fn write(&self, path: &str, content: &[u8]) -> Result<(), StoreError> {
        let key = self.key(path)?;
        self.wait(path, self.objects.put(&key, content.to_vec().into()))?;
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let key = self.key(from)?;
        match self.wait(from, self.objects.head(&key)) {
            Ok(_) => return self.copy_and_delete(vec![(key, self.key(to)?)]),
            Err(StoreError::Vanished(_)) => {}
            Err(error) => return Err(error),
        }
        let mut moves = Vec::new();
        for object in self.objects_below(from)? {
            let path = self.path_of(&object.location);
            let inside = path.strip_prefix(from).unwrap_or_default();
            moves.push((object.location, self.key(&format!("{to}{inside}"))?));
        }
        moves.sort_by_key(|(from, _)| !is_written_last(from.as_ref()));
        self.copy_and_delete(moves)
    }

    fn exists(&self, path: &str) -> Result<bool, StoreError> {
        let key = self.key(path)?;
        match self.wait(path, self.objects.head(&key)) {
            Ok(_) => Ok(true),
            Err(StoreError::Vanished(_)) => Ok(!self.objects_below(path)?.is_empty()),
            Err(error) => Err(error),
        }
    }

    fn renames_at_once(&self) -> bool {
        false
    }

    fn remove(&self, _: &str, files: &[&str]) -> Result<(), StoreError> {
        for path in files {
            let key = self.key(path)?;
            match self.wait(path, self.objects.delete(&key)) {
                Ok(()) | Err(StoreError::Vanished(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_file_of_any_size_fit_into_memory() {
        assert_eq!(parts(PART as u64 + 1), Some((PART, PARTS_AT_ONCE)));
        for gigabytes in [10, 100, 1000, 2000] {
            let size = gigabytes << 30;
            let (part, at_once) = parts(size).unwrap();
            assert!(part * at_once <= IN_MEMORY && at_once > 0, "{gigabytes}: {at_once} of {part}");
            assert!(part as u64 * MOST_PARTS >= size, "{gigabytes}");
        }
        assert_eq!(parts(5 << 40), None);
    }
}
