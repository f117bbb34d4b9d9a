//! One control plane: etcd and the API server, usually the controller manager and the scheduler
//! too, in a directory of its own and on loopback ports of its own. With real nodes, the API server
//! is on the cluster's own network instead, where pods reach it, and a name server beside it.

mod flags;
mod real;

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, GetParams, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::nodes::{Addresses, Network, Nodes, Site, requirements};
use crate::pki::Pki;
use crate::process::{Component, Port, Workspace, argv, write_private};
use crate::volumes::Volumes;
use crate::{Binaries, Error, HollowNodes, Kubectl, Node, Script};

/// How often readiness is looked at, and for how long: a loaded machine gets its time.
const POLL: Duration = Duration::from_millis(25);
const PATIENCE: Duration = Duration::from_mins(2);
/// How long one answer may take while the other components are to be looked at too.
const ANSWER: Duration = Duration::from_secs(5);

const API_SERVER: &str = "kube-apiserver";
const MANAGER: &str = "kube-controller-manager";
const SCHEDULER: &str = "kube-scheduler";
const NAME_SERVER: &str = "name-server";

/// How a cluster is to be started.
#[derive(Debug, Clone)]
pub struct Builder {
    controllers: bool,
    dir: Option<PathBuf>,
    feature_gates: Vec<String>,
    api_server_args: Vec<String>,
    manager_args: Vec<String>,
    real_nodes: usize,
}

impl Builder {
    /// Adds real nodes, `node-0` and so on: kubelet, containerd and kube-proxy, with names by DNS,
    /// claims that both nodes can share, and no way to anything outside. Takes root, and a name
    /// server's worth of Go to build the first time. Images come by [`TestCluster::image`].
    #[must_use]
    pub fn real_nodes(mut self, nodes: usize) -> Self {
        self.real_nodes = nodes;
        self
    }

    /// Whether to run the controller manager and the scheduler (default: yes). Without them
    /// nothing is scheduled or collected, and pods may be created without a service account.
    #[must_use]
    pub fn controllers(mut self, on: bool) -> Self {
        self.controllers = on;
        self
    }

    /// Where to keep everything (default: a new temporary directory). It must be empty or absent,
    /// and is removed with the cluster.
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Turns a feature gate on or off in all components. An alpha gate usually needs its API group
    /// too: `.apiserver_arg("--runtime-config=scheduling.k8s.io/v1alpha2=true")`.
    #[must_use]
    pub fn feature_gate(mut self, name: &str, on: bool) -> Self {
        self.feature_gates.push(format!("{name}={on}"));
        self
    }

    /// One more flag for the API server.
    #[must_use]
    pub fn apiserver_arg(mut self, arg: impl Into<String>) -> Self {
        self.api_server_args.push(arg.into());
        self
    }

    /// One more flag for the controller manager, such as `--node-monitor-grace-period=10s`.
    #[must_use]
    pub fn controller_manager_arg(mut self, arg: impl Into<String>) -> Self {
        self.manager_args.push(arg.into());
        self
    }

    /// Starts the cluster, building the binaries first if need be (progress goes to standard
    /// error), and returns when pods can be created in the namespace `default`.
    pub async fn start(self) -> Result<TestCluster, Error> {
        let with_nodes = self.real_nodes > 0;
        let ensure = move || {
            let progress = &mut |line: &str| eprintln!("{line}");
            if with_nodes { Binaries::ensure_for_nodes(progress) } else { Binaries::ensure(progress) }
        };
        let binaries = tokio::task::spawn_blocking(ensure)
            .await
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        self.start_with(binaries).await
    }

    /// Starts the cluster with binaries that are there already.
    pub async fn start_with(self, binaries: Binaries) -> Result<TestCluster, Error> {
        let mut cluster = TestCluster::prepare(self, binaries)?;
        match cluster.bring_up().await {
            Ok(()) => Ok(cluster),
            Err(error) => {
                cluster.abandon();
                Err(error)
            }
        }
    }
}

/// A running cluster. Dropping it ends it and removes its directory.
#[derive(Debug)]
pub struct TestCluster {
    // Dropped in this order: the clients of the API server, then it, then what it stores in.
    nodes: Nodes,
    name_server: Option<Component>,
    scheduler: Option<Component>,
    manager: Option<Component>,
    api_server: Option<Component>,
    etcd: Option<Component>,
    volumes: Option<Volumes>,
    network: Option<Network>,
    workspace: Workspace,
    api_port: Port,
    etcd_port: Port,
    pki: Pki,
    binaries: Binaries,
    options: Builder,
    kubeconfig: PathBuf,
    users: AtomicUsize,
}

impl TestCluster {
    pub fn builder() -> Builder {
        Builder {
            controllers: true,
            dir: None,
            feature_gates: Vec::new(),
            api_server_args: Vec::new(),
            manager_args: Vec::new(),
            real_nodes: 0,
        }
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Everything of this cluster: `logs/` has one file per component.
    pub fn dir(&self) -> &Path {
        self.workspace.dir()
    }

    /// The address of the API server.
    pub fn server(&self) -> String {
        format!("https://{}:{}", self.address(), self.api_port.number())
    }

    /// Where the API server listens: with real nodes, the address by which pods reach this machine.
    pub fn address(&self) -> Ipv4Addr {
        self.network.as_ref().map_or(Ipv4Addr::LOCALHOST, |network| network.addresses().machine())
    }

    /// The components that run now, with their process ids. A real node is one of them, whatever runs in it.
    pub fn processes(&self) -> Vec<(&'static str, u32)> {
        [&self.etcd, &self.api_server, &self.manager, &self.scheduler, &self.name_server]
            .into_iter()
            .flatten()
            .map(|component| (component.name(), component.pid()))
            .chain(self.nodes().iter().filter_map(|node| Some(("node", node.pid()?))))
            .collect()
    }

    /// A client of the administrator. Each call makes a new one, which belongs to the runtime it
    /// is called on: tests of one process have a runtime each, and must not share a client.
    pub async fn client(&self) -> Result<Client, Error> {
        Ok(Client::try_from(self.config().await?)?)
    }

    /// The administrator's configuration, for a client with settings of its own.
    pub async fn config(&self) -> Result<Config, Error> {
        read_config(&self.kubeconfig).await
    }

    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(self.binaries.path("kubectl"), self.kubeconfig.clone(), self.dir().join("kubectl-cache"))
    }

    /// Waits until the kind of a definition that was applied is served. Its names are accepted first: `kubectl wait` fails on an
    /// object that has no conditions yet.
    pub async fn await_kind(&self, definition: &str) -> Result<(), Error> {
        let definition = format!("crd/{definition}");
        for awaited in ["--for=jsonpath={.status.acceptedNames.kind}", "--for=condition=Established"] {
            let wait = ["wait", awaited, &definition, "--timeout=60s"];
            self.kubectl().run(&wait).await?.expect("the definition is established");
        }
        Ok(())
    }

    /// Writes a kubeconfig for a user, who is in at most two groups (and in `system:authenticated`).
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<PathBuf, Error> {
        let number = self.users.fetch_add(1, Ordering::Relaxed);
        let file = self.pki.path(&format!("user-{number}.kubeconfig"));
        self.pki.kubeconfig(&file, &self.server(), user, groups)?;
        Ok(file)
    }

    /// Writes a kubeconfig that RBAC takes for the service account's, whether that exists or not.
    pub fn kubeconfig_for_service_account(&self, namespace: &str, name: &str) -> Result<PathBuf, Error> {
        let group = format!("system:serviceaccounts:{namespace}");
        self.kubeconfig_for(
            &format!("system:serviceaccount:{namespace}:{name}"),
            &["system:serviceaccounts", &group],
        )
    }

    /// The configuration of a user, for a client under RBAC.
    pub async fn config_for(&self, user: &str, groups: &[&str]) -> Result<Config, Error> {
        read_config(&self.kubeconfig_for(user, groups)?).await
    }

    /// The configuration of a service account, for a client under RBAC.
    pub async fn config_for_service_account(&self, namespace: &str, name: &str) -> Result<Config, Error> {
        read_config(&self.kubeconfig_for_service_account(namespace, name)?).await
    }

    /// Hollow nodes on a thread of their own, independent of the caller's runtime: the way to give
    /// the [`shared`](crate::shared) cluster nodes that every test uses.
    pub async fn hollow_nodes(
        &self,
        nodes: usize,
        capacity: &[(&str, &str)],
        script: impl Fn(&Pod) -> Script + Send + Sync + 'static,
    ) -> Result<HollowNodes, Error> {
        HollowNodes::start_on_thread(self.config().await?, nodes, capacity, script).await
    }

    /// Kills the API server, as a crash would.
    pub fn stop_apiserver(&mut self) {
        self.api_server = None;
    }

    /// Starts the API server again, on the same port, and waits until it is ready.
    pub async fn start_apiserver(&mut self) -> Result<(), Error> {
        if self.api_server.is_none() {
            self.api_server = Some(self.run(API_SERVER, self.api_server_flags())?);
        }
        self.wait_for_api_server().await
    }

    /// Ends the cluster without blocking the runtime; dropping it does the same.
    pub async fn stop(self) {
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }

    fn prepare(options: Builder, binaries: Binaries) -> Result<Self, Error> {
        let workspace = Workspace::new(make_dir(options.dir.as_deref())?)?;
        let dir = workspace.dir().to_owned();
        let logs = dir.join("logs");
        std::fs::create_dir_all(&logs).map_err(Error::io("create", &logs))?;
        let nodes = u8::try_from(options.real_nodes).unwrap_or(u8::MAX);
        if usize::from(nodes) > Addresses::MOST_NODES {
            return Err(Error::TooManyNodes);
        }
        if nodes > 0 {
            requirements::ensure(&mut |line| eprintln!("{line}"))?;
        }
        let network = (nodes > 0).then(Network::claim).transpose()?;
        let addresses = network.as_ref().map(Network::addresses);
        let names = addresses.map(|all| [all.machine().to_string(), all.api_service().to_string()]);
        let pki = Pki::create(dir.join("pki"), names.as_ref().map_or(&[], |names| &names[..]))?;
        let api_address = addresses.map_or(Ipv4Addr::LOCALHOST, Addresses::machine);
        let mut cluster = Self {
            nodes: Nodes::default(),
            name_server: None,
            scheduler: None,
            manager: None,
            api_server: None,
            etcd: None,
            volumes: options.controllers.then(|| Volumes::new(&dir, binaries.dir())).transpose()?,
            network,
            workspace,
            api_port: Port::reserve(api_address)?,
            etcd_port: Port::reserve(Ipv4Addr::LOCALHOST)?,
            pki,
            binaries,
            options,
            kubeconfig: dir.join("kubeconfig"),
            users: AtomicUsize::new(0),
        };
        let server = cluster.server();
        cluster.pki.kubeconfig(&cluster.kubeconfig, &server, "admin", &["system:masters"])?;
        for (file, user) in [
            ("manager.kubeconfig", "system:kube-controller-manager"),
            ("scheduler.kubeconfig", "system:kube-scheduler"),
        ] {
            cluster.pki.kubeconfig(&cluster.pki.path(file), &server, user, &[])?;
        }
        if let Some(addresses) = addresses {
            let (binaries, feature_gates) = (cluster.binaries.clone(), cluster.options.feature_gates.clone());
            let site = Arc::new(Site { addresses, dir, binaries, feature_gates, nodes });
            site.issue(&cluster.pki, &server)?;
            let kubeconfig = cluster.pki.path("name-server.kubeconfig");
            cluster.pki.kubeconfig(&kubeconfig, &server, NAME_SERVER, &[])?;
            let zones = site.name_server(&kubeconfig.to_string_lossy());
            write_private(&cluster.name_server_config(), &zones)?;
            let node = |number| Node::new(Arc::clone(&site), number, cluster.kubeconfig.clone());
            cluster.nodes = Nodes((0..nodes).map(node).collect());
        }
        Ok(cluster)
    }

    async fn bring_up(&mut self) -> Result<(), Error> {
        self.etcd = Some(self.run("etcd", self.etcd_flags())?);
        self.api_server = Some(self.run(API_SERVER, self.api_server_flags())?);
        self.wait_for_api_server().await?;
        if self.options.controllers {
            self.manager = Some(self.run(MANAGER, self.manager_flags())?);
            let flags = self.scheduler_flags()?;
            self.scheduler = Some(self.run(SCHEDULER, flags)?);
            self.create_storage_class().await?;
            // Pods are refused until the manager has made the account they run as.
            let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, "default");
            let what = "the service account default/default";
            self.wait(MANAGER, what, || async {
                accounts.get_opt("default").await.map(|found| found.is_some())
            })
            .await?;
        }
        if self.network.is_some() {
            self.start_nodes().await?;
        }
        // The scheduler serves nothing to ask for; at least it must not have ended.
        self.components().try_for_each(Component::check)?;
        write_private(&self.up_file(), "")
    }

    async fn wait_for_api_server(&mut self) -> Result<(), Error> {
        let client = self.client().await?;
        self.wait(API_SERVER, "readiness", || ready(&client)).await
    }

    /// The class of claims that name none; the manager makes their volumes.
    async fn create_storage_class(&mut self) -> Result<(), Error> {
        let classes: Api<StorageClass> = Api::all(self.client().await?);
        let class = StorageClass {
            metadata: ObjectMeta {
                name: Some("standard".into()),
                annotations: Some(
                    [("storageclass.kubernetes.io/is-default-class".into(), "true".into())].into(),
                ),
                ..ObjectMeta::default()
            },
            provisioner: "kubernetes.io/host-path".into(),
            reclaim_policy: Some("Delete".into()),
            volume_binding_mode: Some("Immediate".into()),
            ..StorageClass::default()
        };
        let create = || async {
            match classes.create(&PostParams::default(), &class).await {
                Ok(_) => Ok(true),
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(true),
                Err(error) => Err(error),
            }
        };
        self.wait(API_SERVER, "the storage class `standard`", create).await
    }

    /// Polls until `done`; fails at once when any component has ended meanwhile.
    async fn wait<F>(
        &mut self,
        name: &'static str,
        what: &'static str,
        done: impl Fn() -> F,
    ) -> Result<(), Error>
    where
        F: Future<Output = Result<bool, kube::Error>>,
    {
        let start = Instant::now();
        loop {
            let last = match tokio::time::timeout(ANSWER, done()).await {
                Ok(Ok(true)) => return Ok(()),
                Ok(Ok(false)) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("none".into()),
            };
            self.components().try_for_each(Component::check)?;
            if start.elapsed() > PATIENCE {
                let component =
                    self.components().find(|c| c.name() == name).ok_or(Error::NotRunning(name))?;
                let (log, tail) = (component.log().to_owned(), component.tail());
                return Err(Error::Timeout { name, what, after: PATIENCE, last, log, tail });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn components(&mut self) -> impl Iterator<Item = &mut Component> {
        [&mut self.etcd, &mut self.api_server, &mut self.manager, &mut self.scheduler, &mut self.name_server]
            .into_iter()
            .flatten()
    }

    /// Ends everything but leaves the logs, which the error is about.
    fn abandon(mut self) {
        self.nodes.kill();
        for component in self.components() {
            component.kill();
        }
        for node in self.nodes() {
            let _ = std::fs::remove_dir_all(self.dir().join(node.name()));
        }
        for part in ["etcd", "pki", "tmp", "kubectl-cache"] {
            let _ = std::fs::remove_dir_all(self.dir().join(part));
        }
        self.workspace.keep();
    }

    fn run(&self, name: &'static str, flags: Vec<String>) -> Result<Component, Error> {
        let mut command: Vec<OsString> = argv(&self.binaries.path(name), flags);
        if let (MANAGER, Some(volumes)) = (name, &self.volumes) {
            command = volumes.wrap(command);
        }
        let log = self.dir().join("logs").join(format!("{name}.log"));
        match name {
            // They end themselves when they do not trust what they know any more: the scheduler of Kubernetes 1.36 does when a pod
            // was deleted and made again under the same name while its watch was away.
            MANAGER | SCHEDULER => Component::keep_up(&self.up_file(), name, &command, log),
            _ => Component::start(name, &command, log),
        }
    }

    /// There once the cluster has been brought up.
    fn up_file(&self) -> PathBuf {
        self.dir().join("up")
    }
}

/// An absolute directory without symbolic links, since paths in it are compared with others.
fn make_dir(wanted: Option<&Path>) -> Result<PathBuf, Error> {
    let dir = if let Some(dir) = wanted {
        std::fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
        if std::fs::read_dir(dir).map_err(Error::io("read", dir))?.next().is_some() {
            return Err(Error::DirectoryInUse(dir.to_owned()));
        }
        dir.to_owned()
    } else {
        let tmp = std::env::temp_dir();
        let made = tempfile::Builder::new().prefix("trainyard-cluster-").tempdir_in(&tmp);
        made.map_err(Error::io("create a directory in", tmp))?.keep()
    };
    dir.canonicalize().map_err(Error::io("find", &dir))
}

pub(crate) async fn read_config(kubeconfig: &Path) -> Result<Config, Error> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    Ok(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
}

async fn ready(client: &Client) -> Result<bool, kube::Error> {
    let request = kube::core::Request::new("")
        .get("readyz", &GetParams::default())
        .map_err(kube::Error::BuildRequest)?;
    client.request_text(request).await.map(|_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_can_be_started_from_any_task() {
        fn sendable<T: Send>(_: &T) {}
        sendable(&TestCluster::builder().start());
    }

    #[test]
    fn a_directory_with_something_in_it_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(make_dir(Some(dir.path())).unwrap(), dir.path().canonicalize().unwrap());
        std::fs::write(dir.path().join("precious"), "").unwrap();
        assert!(matches!(make_dir(Some(dir.path())), Err(Error::DirectoryInUse(_))));
    }
}
