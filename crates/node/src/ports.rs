//! Ports that pods declare, on a machine that all pods share: PURE but for the question whether a port is free.
//!
//! The first who declares a port gets it; for the next job another one is chosen, once, and its pods are told that one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use k8s_openapi::api::core::v1::Pod;
use socket2::{Domain, Socket, Type};

/// Who holds which port.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    held: BTreeMap<u16, String>,
    chosen: BTreeMap<(String, u16), u16>,
}

impl Ports {
    /// Decides about the ports that a holder (a job's attempt, or a single pod) declares. The answer has those that
    /// were replaced; asking again gives the same answer.
    pub(crate) fn take(
        &mut self,
        holder: &str,
        declared: &BTreeSet<u16>,
        is_free: impl Fn(u16) -> bool,
        mut any_free: impl FnMut() -> Option<u16>,
    ) {
        for port in declared {
            if self.chosen.contains_key(&(holder.to_owned(), *port)) {
                continue;
            }
            let mut choice = *port;
            if self.held.contains_key(port) || !is_free(*port) {
                // What the system hands out may be promised to a pod that has not bound it yet.
                let other = (0..64).find_map(|_| any_free().filter(|port| !self.held.contains_key(port)));
                choice = other.unwrap_or(*port);
            }
            self.held.entry(choice).or_insert_with(|| holder.to_owned());
            self.chosen.insert((holder.to_owned(), *port), choice);
        }
    }

    /// The ports of a holder that were replaced.
    pub(crate) fn replaced(&self, holder: &str) -> BTreeMap<u16, u16> {
        let own = self.chosen.iter().filter(|((owner, from), to)| owner == holder && *to != from);
        own.map(|((_, from), to)| (*from, *to)).collect()
    }

    pub(crate) fn release(&mut self, holder: &str) {
        self.held.retain(|_, owner| owner != holder);
        self.chosen.retain(|(owner, _), _| owner != holder);
    }
}

/// The TCP ports that a pod's containers declare.
pub(crate) fn declared(pod: &Pod) -> BTreeSet<u16> {
    let Some(spec) = &pod.spec else { return BTreeSet::new() };
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports
        .filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP")
        .filter_map(|port| u16::try_from(port.container_port).ok())
        .collect()
}

/// Whether any program could listen on a port. The standard library would reuse one whose last connection has only just ended; many
/// programs do not, and would be refused.
pub(crate) fn is_free(port: u16) -> bool {
    let addresses: [SocketAddr; 2] =
        [(Ipv4Addr::UNSPECIFIED, port).into(), (Ipv6Addr::UNSPECIFIED, port).into()];
    addresses.into_iter().all(|address| {
        let bound = Socket::new(Domain::for_address(address), Type::STREAM, None)
            .and_then(|socket| socket.bind(&address.into()));
        !bound.is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
    })
}

/// A port that nobody listens on.
pub(crate) fn any_free() -> Option<u16> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    Some(listener.local_addr().ok()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_whose_last_connection_has_only_just_ended_is_not_free() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert!(!is_free(port), "somebody listens");
        // Who ends first keeps the port for a while.
        drop((server, listener));
        drop(client);
        assert!(!is_free(port));
        assert!(is_free(any_free().unwrap()));
    }

    #[test]
    fn the_first_keeps_the_port_and_the_choice_stays() {
        let mut ports = Ports::default();
        let declared = BTreeSet::from([29500]);
        let mut next = 41000;
        let mut take = |ports: &mut Ports, holder: &str, free: bool| {
            ports.take(
                holder,
                &declared,
                |_| free,
                || {
                    next += 1;
                    Some(next)
                },
            );
            ports.replaced(holder)
        };
        assert_eq!(take(&mut ports, "a", true), BTreeMap::new());
        assert_eq!(take(&mut ports, "b", true), BTreeMap::from([(29500, 41001)]));
        assert_eq!(take(&mut ports, "b", true), BTreeMap::from([(29500, 41001)]));
        assert_eq!(take(&mut ports, "a", false), BTreeMap::new(), "its own program listens by now");
        ports.release("a");
        assert_eq!(take(&mut ports, "c", true), BTreeMap::new());
        assert_eq!(take(&mut ports, "d", false), BTreeMap::from([(29500, 41002)]));
    }
}
