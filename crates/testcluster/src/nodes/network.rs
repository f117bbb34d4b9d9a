//! The network of a cluster with real nodes: one bridge of its own with a network `10.X.0.0/16`
//! behind it, and no way out of the machine.
//!
//! The bridge's name is the claim on its X: the kernel gives a name once. What is outside the
//! nodes' namespaces (the bridge, the cables to it, control groups) is removed by a shell that
//! waits for the end of this value or of this process, whichever comes first.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::process::shell;
use crate::{Error, command};

/// `$1` is the bridge, `$2` its address; then come the control groups. All of it belongs to
/// processes that die at the same moment, so removing it is tried for a while.
const CARETAKER: &str = r#"
bridge=$1
ip link add "$bridge" type bridge || exit
ip address add "$2/24" dev "$bridge" && ip link set "$bridge" up && echo made || echo failed
shift 2
read -r _
try=0
while [ "$try" -lt 200 ]; do
    left=
    for link in /sys/class/net/"$bridge" /sys/class/net/"$bridge"-*; do
        [ -e "$link" ] || continue
        left=1
        ip link delete "${link##*/}"
    done
    for group in "$@"; do
        [ -d "$group" ] || continue
        left=1
        find "$group" -depth -type d -exec rmdir {} +
    done
    [ -n "$left" ] || exit 0
    sleep 0.05
    try=$((try + 1))
done
"#;

/// The addresses in one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addresses(u8);

impl Addresses {
    /// Pods and services share the upper and the lower half of the network.
    pub(crate) const MOST_NODES: usize = 100;

    /// The name of the bridge, of the control group, and of what else is told apart by cluster.
    pub(crate) fn bridge(self) -> String {
        format!("yard{}", self.0)
    }

    /// The cable of a node, at this machine's end.
    pub(crate) fn cable(self, node: u8) -> String {
        format!("{}-{node}", self.bridge())
    }

    /// This machine, as nodes and pods see it.
    pub(crate) fn machine(self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.0, 0, 1)
    }

    pub(crate) fn node(self, node: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, self.0, 0, node + 2)
    }

    pub(crate) fn pods_of(self, node: u8) -> String {
        format!("10.{}.{}.0/24", self.0, node + 1)
    }

    pub(crate) fn services(self) -> String {
        format!("10.{}.128.0/17", self.0)
    }

    /// The service `kubernetes`, which has the first address.
    pub(crate) fn api_service(self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.0, 128, 1)
    }

    /// Everything at the node's end of the cable. Without a default route, what wants to leave
    /// fails at once. Service addresses are rewritten on their way out, but a process of the node
    /// itself needs a route for them first.
    fn node_batch(self, node: u8, nodes: u8) -> String {
        let mut batch = format!(
            "link set lo up\naddress add {}/24 dev eth0\nlink set eth0 up\nroute add {} via {}\n",
            self.node(node),
            self.services(),
            self.machine()
        );
        for other in (0..nodes).filter(|other| *other != node) {
            let _ = writeln!(batch, "route add {} via {}", self.pods_of(other), self.node(other));
        }
        batch
    }

    /// What this machine needs to reach the node's pods; services are reached through the first.
    fn machine_batch(self, node: u8) -> String {
        let mut batch = format!(
            "link set {cable} master {bridge} up\nroute replace {pods} via {address}\n",
            cable = self.cable(node),
            bridge = self.bridge(),
            pods = self.pods_of(node),
            address = self.node(node)
        );
        if node == 0 {
            let _ = writeln!(batch, "route replace {} via {}", self.services(), self.node(node));
        }
        batch
    }
}

/// A bridge that is ours until this value goes.
#[derive(Debug)]
pub(crate) struct Network {
    addresses: Addresses,
    caretaker: Child,
}

impl Network {
    /// Takes the first network that nobody uses.
    pub(crate) fn claim() -> Result<Self, Error> {
        let routes = command::run(Command::new("ip").args(["-4", "route", "show", "table", "all"]))?;
        for number in (1..=254).filter(|number| !routed(&routes, *number)) {
            let addresses = Addresses(number);
            let mut command = shell(CARETAKER);
            command.arg(addresses.bridge()).arg(addresses.machine().to_string());
            command.args(groups(&addresses.bridge())?);
            command.stdout(Stdio::piped()).stderr(Stdio::null());
            let mut caretaker = command.spawn().map_err(Error::io("start", "sh"))?;
            let mut said = String::new();
            if let Some(output) = caretaker.stdout.take() {
                let _ = BufReader::new(output).read_line(&mut said);
            }
            // Held in any case: dropping it is what ends the caretaker.
            let network = Self { addresses, caretaker };
            if said == "made\n" {
                return Ok(network);
            }
        }
        Err(Error::NoNetwork)
    }

    pub(crate) fn addresses(&self) -> Addresses {
        self.addresses
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.caretaker.stdin.take());
        let _ = self.caretaker.wait();
    }
}

/// Connects a node whose network namespace is that of process `init`.
pub(crate) fn connect(addresses: Addresses, node: u8, nodes: u8, init: u32) -> Result<(), Error> {
    disconnect(addresses, node);
    let (cable, init) = (addresses.cable(node), init.to_string());
    let add = ["link", "add", &cable, "type", "veth", "peer", "name", "eth0", "netns", &init];
    command::run(Command::new("ip").args(add))?;
    let mut inside = Command::new("nsenter");
    inside.args(["--target", &init, "--net", "ip", "-batch", "-"]);
    command::feed(&mut inside, &addresses.node_batch(node, nodes))?;
    command::feed(Command::new("ip").args(["-batch", "-"]), &addresses.machine_batch(node))
}

/// The cable goes with the node's namespace, some time later; its name is needed at once.
pub(crate) fn disconnect(addresses: Addresses, node: u8) {
    // Failing means that it is gone already.
    let _ = command::run(Command::new("ip").args(["link", "delete", &addresses.cable(node)]));
}

/// A control group's directory in every hierarchy of this machine, version 1 or 2.
pub(crate) fn groups(name: &str) -> Result<Vec<PathBuf>, Error> {
    let mounts =
        std::fs::read_to_string("/proc/self/mounts").map_err(Error::io("read", "/proc/self/mounts"))?;
    let hierarchies = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        matches!(kind, "cgroup" | "cgroup2").then(|| PathBuf::from(place).join(name))
    });
    Ok(hierarchies.collect())
}

/// Whether this machine has a route to some of `10.X.0.0/16` other than the default one.
fn routed(routes: &str, number: u8) -> bool {
    routes.split_whitespace().any(|word| {
        let (address, length) = word.split_once('/').unwrap_or((word, "32"));
        let (Ok(address), Ok(length)) = (address.parse::<Ipv4Addr>(), length.parse::<u32>()) else {
            return false;
        };
        let common = length.min(16);
        let mask = u32::MAX.checked_shl(32 - common).unwrap_or(0);
        length > 0 && (u32::from(address) ^ u32::from(Ipv4Addr::new(10, number, 0, 0))) & mask == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_that_are_in_use_are_passed_over() {
        let routes = "default via 192.0.2.1 dev eth0\n10.3.4.0/24 dev x proto kernel src 10.3.4.1\n\
                      10.64.0.0/10 via 192.0.2.9 dev eth0\nlocal 10.9.8.7 dev y table local\n0.0.0.0/0 dev z\n";
        let taken: Vec<u8> = (1..=254).filter(|number| routed(routes, *number)).collect();
        let expected: Vec<u8> = [3, 9].into_iter().chain(64..=127).collect();
        assert_eq!(taken, expected);
    }

    #[test]
    fn nodes_know_the_pods_of_the_others_and_no_way_out() {
        let batch = Addresses(7).node_batch(1, 3);
        assert_eq!(
            batch,
            "link set lo up\naddress add 10.7.0.3/24 dev eth0\nlink set eth0 up\n\
             route add 10.7.128.0/17 via 10.7.0.1\nroute add 10.7.1.0/24 via 10.7.0.2\n\
             route add 10.7.3.0/24 via 10.7.0.4\n"
        );
    }
}
