//! Real nodes: kubelet, containerd and kube-proxy, with real containers, all on this machine.
//!
//! A node is a set of namespaces around one idle process; killing that process is a power cut.
//! What a node keeps over one (images, containers, logs) is its directory in the cluster's. The
//! files that its programs see at their usual places (`/var/lib`, `/var/log`, `/run`, `/tmp`) are its own.

mod config;
mod inside;
mod network;
pub(crate) mod requirements;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as core;
use kube::Client;
use kube::api::Api;

pub(crate) use config::GRACE;
use inside::{Init, Inside};
pub(crate) use network::{Addresses, Network};

use crate::cluster::read_config;
use crate::image::Archive;
use crate::pki::Pki;
use crate::process::{Component, write_private};
use crate::{Binaries, Error, command};

/// Where the name server says that it is ready.
pub(crate) const NAME_SERVER_READY: u16 = 8181;

const POLL: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_mins(2);

/// Gives a new mount namespace the node's own files. `$1` is the node's directory, then come
/// binaries, certificates and volumes. They are bound below the node's directory first, since
/// any of them may be below a directory that is about to be covered.
const FURNISH: &str = r#"
mount -t tmpfs -o mode=755 tmpfs "$1/run"
cd "$1/run"
mkdir node bin pki volumes
mount --bind "$1" node
mount --bind "$2" bin
mount --bind "$3" pki
mount --bind "$4" volumes
mount --rbind "$1/run" /run
mount --bind /run/node/lib /var/lib
mount --bind /run/node/log /var/log
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir /tmp/hostpath_pv
mount --bind /run/volumes /tmp/hostpath_pv
for file in /run/node/kernel/*; do
    setting=/proc/sys/$(basename "$file" | tr . /)
    [ ! -e "$setting" ] || mount --bind "$file" "$setting"
done
echo 1 >/proc/sys/net/ipv4/ip_forward
mount --make-rshared /
"#;

/// What all nodes of a cluster have in common.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) addresses: Addresses,
    pub(crate) dir: PathBuf,
    pub(crate) binaries: Binaries,
    pub(crate) feature_gates: Vec<String>,
    pub(crate) nodes: u8,
}

impl Site {
    /// Certificates for the nodes, and for what the API server asks them.
    pub(crate) fn issue(&self, pki: &Pki, server: &str) -> Result<(), Error> {
        pki.issue("kubelet-client", "kube-apiserver-kubelet-client", &["system:masters"], &[])?;
        pki.kubeconfig(&pki.path("kube-proxy.kubeconfig"), server, "system:kube-proxy", &[])?;
        for node in 0..self.nodes {
            let name = node_name(node);
            let user = format!("system:node:{name}");
            let names = [name.clone(), self.addresses.node(node).to_string()];
            pki.issue(&name, &user, &["system:nodes"], &names)?;
            pki.kubeconfig(&pki.path(&format!("{name}.kubeconfig")), server, &user, &["system:nodes"])?;
        }
        Ok(())
    }

    /// The node's control group, without the leading slash.
    fn group(&self, node: u8) -> String {
        format!("{}/{}", self.addresses.bridge(), node_name(node))
    }

    fn volumes(&self) -> PathBuf {
        self.dir.join("tmp/hostpath_pv")
    }
}

fn node_name(node: u8) -> String {
    format!("node-{node}")
}

/// One real node of a test cluster.
#[derive(Debug)]
pub struct Node {
    site: Arc<Site>,
    number: u8,
    /// Absent while the node is off.
    machine: Arc<Mutex<Option<Machine>>>,
    kubeconfig: PathBuf,
}

/// The nodes of a cluster. They end together: the kernel writes a container's files to the disk
/// before it lets go of them, which takes a second or two.
#[derive(Debug, Default)]
pub(crate) struct Nodes(pub(crate) Vec<Node>);

impl Nodes {
    pub(crate) fn kill(&self) {
        std::thread::scope(|scope| {
            for node in &self.0 {
                scope.spawn(|| node.kill());
            }
        });
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What runs while a node is on.
#[derive(Debug)]
struct Machine {
    // Dropped in this order; the last one takes everything with it.
    kubelet: Option<Inside>,
    proxy: Inside,
    containerd: Inside,
    init: Init,
    site: Arc<Site>,
    number: u8,
}

impl Node {
    pub(crate) fn new(site: Arc<Site>, number: u8, kubeconfig: PathBuf) -> Self {
        Self { site, number, machine: Arc::default(), kubeconfig }
    }

    /// Its name in the cluster: `node-0` and so on.
    pub fn name(&self) -> String {
        node_name(self.number)
    }

    pub fn address(&self) -> Ipv4Addr {
        self.site.addresses.node(self.number)
    }

    /// The id of the process that holds the node: what `kill -9` would be aimed at. None when it is off.
    pub fn pid(&self) -> Option<u32> {
        self.lock().as_ref().map(|machine| machine.init.pid())
    }

    /// The kubelet's process id; none when it is stopped.
    pub fn kubelet_pid(&self) -> Option<u32> {
        self.lock().as_ref()?.kubelet.as_ref().map(Inside::pid)
    }

    /// Cuts the power: every process in the node dies at once, and nobody is told.
    pub fn kill(&self) {
        *self.lock() = None;
    }

    /// Kills the kubelet; containers go on without it.
    pub fn stop_kubelet(&self) {
        if let Some(machine) = self.lock().as_mut() {
            machine.kubelet = None;
        }
    }

    /// Starts what does not run, the whole node or its kubelet, and waits until the node is ready.
    pub async fn start(&self) -> Result<(), Error> {
        let now = Timestamp::now();
        self.boot().await?;
        self.until_ready(now).await
    }

    /// Runs a command inside the node to its end, as root of that machine.
    pub async fn run(&self, line: &[&str]) -> Result<Output, Error> {
        let mut command = {
            let machine = self.lock();
            let machine = machine.as_ref().ok_or_else(|| Error::NodeOff(self.name()))?;
            let mut command = machine.init.enter();
            command.args(line).stdin(Stdio::null());
            command
        };
        blocking(move || command.output().map_err(Error::io("run", "nsenter"))).await
    }

    /// Kills the first process of a container with `kill -9`, by the container's id.
    pub async fn kill_container(&self, id: &str) -> Result<(), Error> {
        let script =
            r#"kill -9 "$(ctr --namespace k8s.io tasks list | awk -v id="$1" '$1 == id { print $2 }')""#;
        let output = self.run(&["sh", "-euc", script, "sh", id]).await?;
        if output.status.success() {
            return Ok(());
        }
        let mut command = Command::new("kill");
        command.args(["-9", id]);
        Err(command::failed(&command, output.status.to_string(), &output.stderr))
    }

    pub(crate) async fn load(&self, archive: Arc<Archive>) -> Result<(), Error> {
        let machine = Arc::clone(&self.machine);
        let name = self.name();
        blocking(move || {
            let machine = machine.lock().unwrap_or_else(PoisonError::into_inner);
            let machine = machine.as_ref().ok_or(Error::NodeOff(name))?;
            machine.init.load(&archive)
        })
        .await
    }

    pub(crate) async fn boot(&self) -> Result<(), Error> {
        let (machine, site, number) = (Arc::clone(&self.machine), Arc::clone(&self.site), self.number);
        blocking(move || {
            let mut machine = machine.lock().unwrap_or_else(PoisonError::into_inner);
            match machine.as_mut() {
                None => *machine = Some(Machine::start(site, number)?),
                Some(on) if on.kubelet.is_none() => {
                    on.kubelet = Some(on.site.start_kubelet(number, &on.init)?);
                }
                Some(_) => {}
            }
            Ok(())
        })
        .await
    }

    /// Ready in the eyes of the API server, said by a kubelet that was alive after `since`.
    pub(crate) async fn until_ready(&self, since: Timestamp) -> Result<(), Error> {
        // A client belongs to the runtime it is made on, so none is kept.
        let client = Client::try_from(read_config(&self.kubeconfig).await?)?;
        let nodes: Api<core::Node> = Api::all(client.clone());
        let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
        let started = Instant::now();
        loop {
            let ready = async {
                let renewed = leases.get_opt(&self.name()).await?.and_then(|lease| lease.spec?.renew_time);
                let node = nodes.get_opt(&self.name()).await?;
                Ok::<_, kube::Error>(
                    renewed.is_some_and(|time| time.0 >= since) && node.is_some_and(|node| is_ready(&node)),
                )
            };
            let last = match ready.await {
                Ok(true) => return Ok(()),
                Ok(false) => None,
                Err(error) => Some(error.to_string()),
            };
            self.check()?;
            if started.elapsed() > PATIENCE {
                let mut machine = self.lock();
                let kubelet = machine.as_mut().and_then(|machine| machine.kubelet.as_mut());
                let kubelet = kubelet.ok_or_else(|| Error::NodeOff(self.name()))?.component();
                let (log, tail) = (kubelet.log().to_owned(), kubelet.tail());
                let (name, what) = ("kubelet", "its node's readiness");
                return Err(Error::Timeout { name, what, after: PATIENCE, last, log, tail });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// An error when something has ended that should run.
    fn check(&self) -> Result<(), Error> {
        let mut machine = self.lock();
        let machine = machine.as_mut().ok_or_else(|| Error::NodeOff(self.name()))?;
        machine.init.check()?;
        let daemons = [Some(&mut machine.containerd), machine.kubelet.as_mut(), Some(&mut machine.proxy)];
        daemons.into_iter().flatten().map(Inside::component).try_for_each(Component::check)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Machine>> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_ready(node: &core::Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

impl Machine {
    fn start(site: Arc<Site>, number: u8) -> Result<Self, Error> {
        let dir = site.write_files(number)?;
        let init = Init::start(&site.binaries.path("pause"), site.log(number, "init"))?;
        site.make_groups(number)?;
        network::connect(site.addresses, number, site.nodes, init.pid())?;
        init.script(FURNISH, &[&dir, site.binaries.dir(), &site.dir.join("pki"), &site.volumes()])?;

        let containerd = ["containerd", "--config", "/run/node/containerd.toml"];
        let mut containerd = Inside::start("containerd", &init, &containerd, site.log(number, "containerd"))?;
        let started = Instant::now();
        while let Err(error) = command::run(init.enter().args(["ctr", "version"])) {
            containerd.component().check()?;
            if started.elapsed() > PATIENCE {
                return Err(error);
            }
            std::thread::sleep(POLL);
        }
        init.load(&Archive::pause(config::PAUSE_IMAGE, &site.binaries.path("pause"))?)?;

        let kubelet = Some(site.start_kubelet(number, &init)?);
        let name = format!("--hostname-override={}", node_name(number));
        let proxy = ["/run/bin/kube-proxy", "--config=/run/node/proxy.json", &name];
        let proxy = Inside::start("kube-proxy", &init, &proxy, site.log(number, "kube-proxy"))?;
        Ok(Self { kubelet, proxy, containerd, init, site, number })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // A power cut takes everything at once: the kubelet must not see containers go and tell, nor the kernel tell the
        // other end of a connection that its program is gone. So the cable goes first.
        network::disconnect(self.site.addresses, self.number);
        self.init.kill();
        self.site.remove_groups(self.number);
    }
}

impl Init {
    /// Imports an image, streamed so that nothing is written twice.
    fn load(&self, archive: &Archive) -> Result<(), Error> {
        let mut pack = archive.pack();
        let mut packing: Child = pack.spawn().map_err(Error::io("run", "tar"))?;
        let Some(stream) = packing.stdout.take() else { return Ok(()) };
        let mut import = self.enter();
        import.args(["ctr", "--namespace", "k8s.io", "images", "import", "-"]).stdin(stream);
        let output = import.output().map_err(Error::io("run", "nsenter"))?;
        let packed = packing.wait().map_err(Error::io("wait for", "tar"))?;
        if !output.status.success() {
            return Err(command::failed(&import, output.status.to_string(), &output.stderr));
        }
        if !packed.success() {
            return Err(command::failed(&pack, packed.to_string(), b""));
        }
        Ok(())
    }
}

impl Site {
    fn log(&self, node: u8, what: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{}-{what}.log", node_name(node)))
    }

    /// The node's directory, with everything that its programs read.
    fn write_files(&self, node: u8) -> Result<PathBuf, Error> {
        let dir = self.dir.join(node_name(node));
        for part in ["run", "lib", "log", "cni", "kernel"].map(|part| dir.join(part)) {
            std::fs::create_dir_all(&part).map_err(Error::io("create", &part))?;
        }
        let volumes = self.volumes();
        std::fs::create_dir_all(&volumes).map_err(Error::io("create", &volumes))?;
        let write = |file: &str, text: &str| write_private(&dir.join(file), text);
        for (setting, value) in config::KERNEL_SETTINGS {
            write(&format!("kernel/{}", setting.replace('/', ".")), &format!("{value}\n"))?;
        }
        write("resolv.conf", &format!("nameserver {}\n", self.addresses.machine()))?;
        write("containerd.toml", &config::containerd(requirements::plugins()?, !may_lower_oom_scores()))?;
        write("cni/pods.conflist", &self.pod_network(node).to_string())?;
        write("kubelet.json", &self.kubelet(node).to_string())?;
        write("proxy.json", &self.proxy(node).to_string())?;
        Ok(dir)
    }

    fn start_kubelet(&self, node: u8, init: &Init) -> Result<Inside, Error> {
        let name = node_name(node);
        let line = [
            "/run/bin/kubelet",
            "--config=/run/node/kubelet.json",
            &format!("--kubeconfig=/run/pki/{name}.kubeconfig"),
            &format!("--hostname-override={name}"),
            &format!("--node-ip={}", self.addresses.node(node)),
        ];
        Inside::start("kubelet", init, &line, self.log(node, "kubelet"))
    }

    /// A control group of the node's own in every hierarchy. In a hierarchy of version 2 the
    /// controllers have to be handed down to it.
    fn make_groups(&self, node: u8) -> Result<(), Error> {
        for group in network::groups(&self.group(node))? {
            std::fs::create_dir_all(&group).map_err(Error::io("create", &group))?;
            let line: Vec<&Path> = group.ancestors().take(3).collect();
            for dir in line.into_iter().rev() {
                let Ok(controllers) = std::fs::read_to_string(dir.join("cgroup.controllers")) else {
                    continue;
                };
                for controller in controllers.split_whitespace() {
                    // Some cannot be handed down on some machines; the kubelet says what it misses.
                    let _ = std::fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
                }
            }
        }
        Ok(())
    }

    /// Processes that were just killed leave their groups a moment later. What is still there
    /// after a while goes with the cluster's network.
    fn remove_groups(&self, node: u8) {
        let Ok(groups) = network::groups(&self.group(node)) else { return };
        let started = Instant::now();
        for group in groups {
            while !remove_group(&group) && started.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Whether the group is gone with all below it.
fn remove_group(group: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(group) else { return true };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_group(&entry.path());
    }
    std::fs::remove_dir(group).is_ok()
}

/// Without CAP_SYS_RESOURCE a process cannot lower its OOM score, and containerd must not try.
fn may_lower_oom_scores() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|bits| bits >> CAP_SYS_RESOURCE & 1 == 1)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}
