//! A bucket on a real server, and pods with directories of their own.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use tempfile::TempDir;
use trainyard_agent::scan::Moment;
use trainyard_agent::store::{Bucket, Directory};
use trainyard_agent::{Agent, Layout, Options, Resume, mirror};
use trainyard_testbucket::{Server, Vendor};

use crate::support::files::{self, Files, file};

/// The job's place in the bucket.
pub(crate) const PLACE: &str = "s3://bucket/ml/bert";

pub(crate) struct World {
    pub(crate) disk: TempDir,
    pub(crate) server: Server,
    /// [`PLACE`], with the vendor's own beginning.
    pub(crate) place: String,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::of(Vendor::Amazon)
    }

    pub(crate) fn of(vendor: Vendor) -> Self {
        let disk = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(disk.path().join("buckets/bucket")).unwrap();
        let server = Server::of(vendor, &disk.path().join("buckets"));
        let scheme = match vendor {
            Vendor::Amazon => "s3:",
            Vendor::Google => "gs:",
        };
        Self { disk, server, place: PLACE.replace("s3:", scheme) }
    }

    /// One after another.
    pub(crate) fn of_every_vendor() -> impl Iterator<Item = Self> {
        [Vendor::Amazon, Vendor::Google].into_iter().map(Self::of)
    }

    /// The directory of a pod.
    pub(crate) fn pod(&self, name: &str) -> PathBuf {
        let path = self.disk.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// The options of a pod that was told to go on from this, in its own directory.
    pub(crate) fn told_in(&self, pod: &str, name: &str) -> Options {
        let path = self.pod(pod).join(name).to_str().unwrap().to_owned();
        Options { resumed_from: Some(path), ..options() }
    }

    pub(crate) fn save(&self, pod: &str, files: &Files) {
        files::write(&self.pod(pod), files);
    }

    pub(crate) fn has(&self, pod: &str, path: &str) -> bool {
        self.pod(pod).join(path).exists()
    }

    pub(crate) fn ready_file(&self) -> PathBuf {
        self.disk.path().join("ready")
    }

    /// An agent with the directory of a pod, and a copy of it in the bucket.
    pub(crate) fn agent(&self, pod: &str, options: Options) -> Agent {
        self.agent_with(pod, &self.place, "secret", options)
    }

    pub(crate) fn agent_with(&self, pod: &str, url: &str, secret: &str, options: Options) -> Agent {
        let store = Box::new(Directory::new(self.pod(pod).to_str().unwrap()));
        Agent::new(store, options).with_copy_in(url, self.server.variables(secret), true)
    }

    pub(crate) fn bucket(&self) -> Bucket {
        Bucket::open(&self.place, self.server.variables("secret")).unwrap()
    }

    /// What is whole in the bucket, newest first.
    pub(crate) fn kept(&self) -> Vec<String> {
        mirror::markers(&self.bucket()).unwrap().into_iter().map(|marker| marker.path).collect()
    }

    /// Has these saved by an earlier attempt.
    pub(crate) fn with_saved(self, names: &[&str]) -> Self {
        let mut agent = self.agent("before", options());
        agent.begin(at(0));
        for name in names {
            self.save("before", &vec![file(*name, files::torch(&[]))]);
            agent.finish(at(10));
        }
        self
    }
}

pub(crate) fn options() -> Options {
    Options {
        layouts: Layout::ALL.to_vec(),
        keep_last: 0,
        resumed_from: None,
        resume: Resume::Auto,
        ready_file: None,
        attempt: None,
    }
}

/// Told to go on from this, in the bucket.
pub(crate) fn told(name: &str) -> Options {
    Options { resumed_from: Some(format!("{PLACE}/{name}")), ..options() }
}

pub(crate) fn at(seconds: u64) -> Moment {
    Moment { wall: Timestamp::now(), elapsed: Duration::from_secs(seconds) }
}

/// The environment by which an agent reaches the bucket, as the command takes it.
pub(crate) fn variables_of_this_process() -> Vec<(String, String)> {
    std::env::vars().filter(|(key, _)| key.starts_with("AWS_") || key.starts_with("GOOGLE_")).collect()
}
