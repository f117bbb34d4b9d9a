//! The names, labels and annotations of everything a job makes.
//!
//! They are part of the contract with users (selectors, DNS names, scripts) and of the planner's
//! correctness (a pod's name is its rank), so they stand in one place.

pub const GROUP: &str = "ml.example.com";
pub const KIND: &str = "TrainingJob";
pub const PLURAL: &str = "trainingjobs";
pub const STORAGE_VERSION: &str = "v1";
pub const LAB_VERSION: &str = "v1alpha1";
pub const API_VERSION: &str = "ml.example.com/v1";

pub const FINALIZER: &str = "trainingjob.ml.example.com/finalizer";

/// The label that every object of ours carries, and that our watches select on.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
pub const MANAGED_BY: &str = "trainyard";
/// `spec.managedBy` of jobs that are ours although it is set.
pub const CONTROLLER_NAME: &str = "trainingjob.ml.example.com/trainyard";

pub const APP_LABEL: &str = "app";
pub const APP: &str = "trainingjob";
pub const JOB_LABEL: &str = "trainingjob";
pub const COMPONENT_LABEL: &str = "component";
pub const WORKER_LABEL: &str = "trainingjob.ml.example.com/worker";
pub const ROLE_LABEL: &str = "trainingjob.ml.example.com/role";
pub const ATTEMPT_LABEL: &str = "trainingjob.ml.example.com/attempt";

/// What the pod was made of, as a hash: another value in the spec means another pod.
pub const INPUTS_ANNOTATION: &str = "trainingjob.ml.example.com/inputs";
/// How many pods of each role the attempt has (`workers=4`): another value means another world.
pub const SHAPE_ANNOTATION: &str = "trainingjob.ml.example.com/shape";
/// Of these, those that are made at the same time as this pod, where a start order keeps others back. Without it: all.
pub const TOGETHER_ANNOTATION: &str = "trainingjob.ml.example.com/starts-with";

/// The nodes of which it was known when the pod was made that they will be taken away: put there all the same, it stays.
pub const ANNOUNCED_ANNOTATION: &str = "trainingjob.ml.example.com/announced-nodes";
/// Instead of names, if there were too many.
pub const ALL_NODES: &str = "*";

/// When the pod was changed so that its kubelet looks at it again. It is the change.
pub const NUDGED_ANNOTATION: &str = "trainingjob.ml.example.com/nudged";

/// The training container of every pod.
pub const CONTAINER: &str = "training-worker";
/// The role that `numWorkers` makes.
pub const WORKERS: &str = "workers";

/// A DNS label has at most this many characters.
pub const DNS_LABEL_MAX: usize = 63;
/// The most replicas a role can have, and the digits of its last index.
pub const REPLICAS_MAX: i32 = 1024;
const INDEX_DIGITS: usize = 4;
/// `{job}-workers-1023` must be a DNS label, whatever the number of workers is now: scaling never breaks a name.
pub const JOB_NAME_MAX: usize = DNS_LABEL_MAX - "-workers-".len() - INDEX_DIGITS;

/// How long a role's name may be beside this job's.
pub fn role_name_max(job: &str) -> usize {
    (DNS_LABEL_MAX - "--".len() - INDEX_DIGITS).saturating_sub(job.len())
}

pub fn pod(job: &str, role: &str, index: u32) -> String {
    // Asked for many times in every plan: in one allocation, with room for two dashes and the largest number.
    let mut name = String::with_capacity(job.len() + role.len() + 6);
    for part in [job, "-", role, "-"] {
        name.push_str(part);
    }
    push_number(&mut name, index);
    name
}

fn push_number(text: &mut String, number: u32) {
    if number > 9 {
        push_number(text, number / 10);
    }
    text.extend(char::from_digit(number % 10, 10));
}

/// Where a job keeps its checkpoints in a bucket. Two jobs never share a place, and a job that is created again finds its own.
pub fn place_in_bucket(url: &str, namespace: &str, job: &str) -> String {
    format!("{}/{namespace}/{job}", url.trim_end_matches('/'))
}

pub fn service(job: &str) -> String {
    format!("{job}-workers")
}

pub fn config_map(job: &str) -> String {
    format!("{job}-config")
}

pub fn claim(job: &str) -> String {
    format!("{job}-checkpoints")
}

/// The PodDisruptionBudget over all pods of a job.
pub fn budget(job: &str) -> String {
    job.to_owned()
}

/// A DNS label that starts with a letter, as a service's name must.
pub fn is_dns_label(name: &str) -> bool {
    let bytes = name.as_bytes();
    !bytes.is_empty()
        && bytes.len() <= DNS_LABEL_MAX
        && bytes[0].is_ascii_lowercase()
        && bytes[bytes.len() - 1] != b'-'
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_names_fit_a_dns_label() {
        let job = "j".repeat(JOB_NAME_MAX);
        assert_eq!(pod(&job, WORKERS, 1023).len(), DNS_LABEL_MAX);
        assert_eq!(pod("bert", WORKERS, 0), "bert-workers-0");
        assert_eq!(pod("bert", WORKERS, 1023), "bert-workers-1023");
        assert_eq!(pod("bert", WORKERS, u32::MAX), "bert-workers-4294967295");
        let role = "r".repeat(role_name_max("bert"));
        assert_eq!(pod("bert", &role, 1023).len(), DNS_LABEL_MAX);
    }

    #[test]
    fn dns_labels() {
        for good in ["a", "bert", "a-1"] {
            assert!(is_dns_label(good), "{good}");
        }
        for bad in ["", "1a", "a-", "A", "a.b", "a_b", &"a".repeat(64)] {
            assert!(!is_dns_label(bad), "{bad}");
        }
    }
}
