//! Ports that pods declare, on a machine that all pods share: PURE but for the question whether a port can be had.
//!
//! The first who declares a port gets it; for the next job another one is chosen, once, and its pods are told that one. A program
//! may listen only seconds after it was told its port, so ports are reserved between all trainyards of a machine.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixDatagram;

use k8s_openapi::api::core::v1::Pod;
use socket2::{Domain, Socket, Type};

/// Who holds which port.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    held: BTreeMap<u16, (String, Reservation)>,
    chosen: BTreeMap<(String, u16), u16>,
}

/// A port that no other trainyard on this machine gives to a job, whoever has started it, until this is dropped.
///
/// It is a socket whose name is the port's, in the abstract namespace: nothing has to be cleaned up, it is as wide as the network in
/// which two programs can meet, and it goes with its process however that ends.
#[derive(Debug, Default)]
pub(crate) struct Reservation {
    _socket: Option<UnixDatagram>,
}

impl Ports {
    /// Decides about the ports that a holder (a job's attempt, or a single pod) declares. The answer has those that
    /// were replaced; asking again gives the same answer.
    pub(crate) fn take(
        &mut self,
        holder: &str,
        declared: &BTreeSet<u16>,
        reserve: impl Fn(u16) -> Option<Reservation>,
        mut any_free: impl FnMut() -> Option<u16>,
    ) {
        for port in declared {
            if self.chosen.contains_key(&(holder.to_owned(), *port)) {
                continue;
            }
            let obtain = |port: u16| {
                let reserved = if self.held.contains_key(&port) { None } else { reserve(port) };
                reserved.map(|reservation| (port, reservation))
            };
            // What the system hands out may be promised to a pod that has not bound it yet.
            let other = || (0..64).find_map(|_| any_free().and_then(obtain));
            let (choice, reservation) =
                obtain(*port).or_else(other).unwrap_or((*port, Reservation::default()));
            self.held.entry(choice).or_insert_with(|| (holder.to_owned(), reservation));
            self.chosen.insert((holder.to_owned(), *port), choice);
        }
    }

    /// The ports of a holder that were replaced.
    pub(crate) fn replaced(&self, holder: &str) -> BTreeMap<u16, u16> {
        let own = self.chosen.iter().filter(|((owner, from), to)| owner == holder && *to != from);
        own.map(|((_, from), to)| (*from, *to)).collect()
    }

    pub(crate) fn release(&mut self, holder: &str) {
        self.held.retain(|_, (owner, _)| owner != holder);
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

/// Reserves a port that is free and that nobody else has reserved.
pub(crate) fn reserve(port: u16) -> Option<Reservation> {
    let name = std::os::unix::net::SocketAddr::from_abstract_name(format!("trainyard/port/{port}"));
    let socket = match name.and_then(|name| UnixDatagram::bind_addr(&name)) {
        Ok(socket) => Some(socket),
        Err(error) if error.kind() == ErrorKind::AddrInUse => return None,
        // Where there are no such sockets, nobody else has one.
        Err(_) => None,
    };
    is_free(port).then_some(Reservation { _socket: socket })
}

/// Whether any program could listen on a port. The standard library would reuse one whose last connection has only just ended; many
/// programs do not, and would be refused.
fn is_free(port: u16) -> bool {
    let addresses: [SocketAddr; 2] =
        [(Ipv4Addr::UNSPECIFIED, port).into(), (Ipv6Addr::UNSPECIFIED, port).into()];
    addresses.into_iter().all(|address| {
        let bound = Socket::new(Domain::for_address(address), Type::STREAM, None)
            .and_then(|socket| socket.bind(&address.into()));
        !bound.is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
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
                |port| (free || port != 29500).then(Reservation::default),
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

    #[test]
    fn a_port_that_another_trainyard_has_given_to_a_job_is_not_given_again() {
        let (mut ours, mut theirs) = (Ports::default(), Ports::default());
        let declared = BTreeSet::from([any_free().unwrap()]);
        let take = |ports: &mut Ports, holder: &str| {
            ports.take(holder, &declared, reserve, any_free);
            ports.replaced(holder)
        };
        assert_eq!(take(&mut ours, "a"), BTreeMap::new());
        assert_eq!(take(&mut theirs, "a").len(), 1, "nobody listens yet, but somebody will");
        drop(ours);
        assert_eq!(take(&mut theirs, "b"), BTreeMap::new(), "it went with its process");
    }
}
