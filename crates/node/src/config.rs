//! What whoever starts a node decides.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::logs::LogLimits;

/// Settings of a node. [`Config::new`] fills in what fits most machines.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the Node object.
    pub name: String,
    /// Everything that is kept: logs, volumes, claims. One node at a time may use it.
    pub state_dir: PathBuf,
    /// Where programs run whose pods give no `workingDir`.
    pub working_dir: PathBuf,
    /// Program and first arguments of the helper process; `trainyard shim` by default, whatever that binary is called.
    pub shim: Vec<String>,
    /// What programs find in their environment besides what their pods say.
    pub environment: Vec<(String, String)>,
    /// Further labels of the Node object.
    pub labels: BTreeMap<String, String>,
    /// CPUs to give to pods instead of all, as an amount (`4`, `500m`).
    pub cpu: Option<String>,
    /// Memory to give to pods instead of all, as an amount (`8Gi`).
    pub memory: Option<String>,
    /// GPUs to give to pods instead of those that are found.
    pub gpus: Option<u32>,
    /// The resource by which pods ask for GPUs.
    pub gpu_resource: String,
    /// The most pods at a time.
    pub max_pods: u32,
    pub isolation: Isolation,
    pub log_limits: LogLimits,
}

/// Whether containers get namespaces of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Where the machine allows it; tried out once, at the start.
    #[default]
    WherePossible,
    /// Never: paths and names are rewritten instead.
    Off,
}

impl Config {
    /// Settings for a node with this state directory: the whole machine, in this process's working directory and environment.
    pub fn new(state_dir: impl Into<PathBuf>) -> Self {
        Self {
            name: machine_name(),
            state_dir: state_dir.into(),
            working_dir: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            shim: vec!["/proc/self/exe".to_owned(), "shim".to_owned()],
            environment: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            labels: BTreeMap::new(),
            cpu: None,
            memory: None,
            gpus: None,
            gpu_resource: "nvidia.com/gpu".to_owned(),
            max_pods: 250,
            isolation: Isolation::default(),
            log_limits: LogLimits::default(),
        }
    }
}

/// The host name as an object's name.
fn machine_name() -> String {
    let name =
        nix::unistd::gethostname().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let name: String = name.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
    let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}
