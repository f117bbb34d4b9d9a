//! What an agent knows about the bucket that has the copy: what is there, what of it is not to be used, and whether it answers.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::{LET_GO, Resume};
use crate::ignored::Ignored;
use crate::jobs::Job;
use crate::mirror::{self, Marker, Mirror, Open};
use crate::scan::Moment;
use crate::store::{Bucket, Store, StoreError};

/// A bucket that could not be read is asked again after this.
const BREAK: Duration = Duration::from_secs(15);

/// The copy in a bucket.
pub(crate) struct Copy {
    pub(crate) mirror: Mirror,
    /// The bucket as the user wrote it; reported paths begin with it.
    pub(crate) place: String,
    open: Arc<Open>,
    bucket: Option<Bucket>,
    pub(crate) restores: bool,
    /// What is there already is known. Nothing is sent before.
    pub(crate) is_known: bool,
    /// The attempt has been noted there.
    is_noted: bool,
    pub(crate) let_go_by: Who,
    pub(crate) problem: Option<StoreError>,
    ask_again: Duration,
}

/// Which agent lets an attempt go: it may have been one before this one.
#[derive(PartialEq, Eq)]
pub(crate) enum Who {
    This,
    Before,
}

impl Copy {
    /// Makes no request yet. `variables` are those by which the bucket is reached.
    pub(crate) fn new(url: &str, variables: Vec<(String, String)>, restores: bool) -> Self {
        let place = url.trim_end_matches('/').to_owned();
        let url = place.clone();
        let open: Arc<Open> = Arc::new(move || Bucket::open(&url, variables.clone()));
        Self {
            mirror: Mirror::new(open.clone()),
            place,
            open,
            bucket: None,
            restores,
            is_known: false,
            is_noted: !restores,
            let_go_by: Who::This,
            problem: None,
            ask_again: Duration::ZERO,
        }
    }

    pub(crate) fn bucket(&mut self) -> Result<&Bucket, StoreError> {
        let bucket = match self.bucket.take() {
            Some(bucket) => bucket,
            None => (self.open)()?,
        };
        Ok(self.bucket.insert(bucket))
    }

    /// Learns what is there. What was there before a start afresh is spared, now and by all later agents of the job.
    pub(crate) fn knows(
        &mut self,
        markers: Vec<Marker>,
        resume: Resume,
        job: &Job,
    ) -> Result<(), StoreError> {
        let is_first = self.let_go_by == Who::This;
        let noted = Ignored::read(self.bucket()?, job)?;
        let mut spared = noted.clone().unwrap_or_default();
        if resume == Resume::Never && (noted.is_none() || is_first) {
            spared.add_copies(&markers);
            if is_first {
                spared.write(self.bucket()?, job)?;
            }
        }
        let old: Vec<Marker> = markers.iter().filter(|marker| spared.has_copy(marker)).cloned().collect();
        self.mirror.spares(&old);
        self.mirror.knows(markers);
        self.is_known = true;
        Ok(())
    }

    /// Asks the bucket what is there, and notes the attempt in it, if that has not been done yet.
    pub(crate) fn tend(&mut self, attempt: &str, (resume, job): (Resume, &Job), now: Moment) {
        if (self.is_known && self.is_noted) || now.elapsed < self.ask_again {
            return;
        }
        self.problem = self.try_to_tend(attempt, resume, job).err();
        if self.problem.as_ref().is_some_and(StoreError::is_about_credentials) {
            self.forget_credentials();
        }
        self.ask_again = now.elapsed + BREAK;
    }

    fn try_to_tend(&mut self, attempt: &str, resume: Resume, job: &Job) -> Result<(), StoreError> {
        if !self.is_known {
            let markers = mirror::markers(self.bucket()?)?;
            self.knows(markers, resume, job)?;
        }
        if !attempt.is_empty() && !self.is_noted {
            self.bucket()?.write(LET_GO, attempt.as_bytes())?;
        }
        self.is_noted = true;
        Ok(())
    }

    /// What is wrong with it, as far as this has been told.
    pub(crate) fn problems(&self) -> Vec<String> {
        let foreign = self.bucket.as_ref().and_then(Bucket::foreign);
        let own = self.problem.iter().cloned().chain(foreign).map(|error| error.to_string());
        own.chain(self.mirror.problems()).collect()
    }

    /// Has credentials read anew: files may have been corrected.
    pub(crate) fn forget_credentials(&mut self) {
        self.bucket = None;
    }

    pub(crate) fn hurry(&mut self) {
        self.ask_again = Duration::ZERO;
        self.mirror.hurry();
    }
}
