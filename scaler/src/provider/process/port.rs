//! Finds a free port on loopback and proves whose process listens on one.
//!
//! Never connects to a port and never listens on one for longer than it takes to learn its number.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use procfs::process::{FDTarget, Process};

use super::table::{self, Identity};

/// How often the kernel is asked for a port before all that it names are taken to be in use.
const ATTEMPTS: u32 = 64;

/// The ports that the replicas of one gateway have, so that two starts at one moment get two ports.
#[derive(Clone, Debug, Default)]
pub(in crate::provider) struct Ports(Arc<Mutex<BTreeSet<u16>>>);

/// A port that no other replica of this gateway gets until this is dropped.
#[derive(Debug)]
pub(in crate::provider) struct PortLease {
    ports: Ports,
    number: u16,
}

impl Ports {
    /// A port of 127.0.0.1 that is free now.
    pub(in crate::provider) fn free(&self) -> io::Result<PortLease> {
        for _ in 0..ATTEMPTS {
            let number = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
            if let Some(lease) = self.claim(number) {
                return Ok(lease);
            }
        }
        Err(io::Error::other(format!("no free port on 127.0.0.1 after {ATTEMPTS} attempts")))
    }

    /// This very port; `None` if another replica has it.
    pub(in crate::provider) fn claim(&self, number: u16) -> Option<PortLease> {
        let new = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(number);
        new.then(|| PortLease { ports: self.clone(), number })
    }
}

impl PortLease {
    /// The port.
    pub(in crate::provider) fn number(&self) -> u16 {
        self.number
    }
}

impl Drop for PortLease {
    fn drop(&mut self) {
        self.ports.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

/// Who answers at a port of 127.0.0.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::provider) enum Owner {
    /// Nobody listens.
    Nobody,
    /// Only processes of the replica listen.
    Replica,
    /// Somebody else listens; the text says who, for people.
    Other(String),
    /// Somebody listens whose open files this user may not read; the text says so, for people.
    Hidden(String),
}

/// Who answers at `port`, where `members` tells the processes of the replica; it is asked only if somebody listens.
pub(in crate::provider) fn owner(
    port: u16,
    members: impl FnOnce() -> io::Result<Vec<Identity>>,
) -> io::Result<Owner> {
    let mut sockets = listeners(port)?;
    if sockets.is_empty() {
        return Ok(Owner::Nobody);
    }
    let mut blind = None;
    for member in members()? {
        match sockets_of(member) {
            Ok(held) => sockets.retain(|socket| !held.contains(socket)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => blind = Some(member.pid),
            Err(_) => {} // It ended in between.
        }
    }
    let Some(socket) = sockets.first() else { return Ok(Owner::Replica) };
    Ok(match (blind, holder(*socket)) {
        (_, Some(pid)) => Owner::Other(format!("process {pid} ({})", table::name(pid))),
        (Some(pid), None) => Owner::Hidden(format!(
            "a process that cannot be made out: the open files of {pid} may not be read"
        )),
        (None, None) => Owner::Hidden("a process of another user".to_owned()),
    })
}

/// The inodes of the sockets that get the connections to 127.0.0.1:`port`. The kernel prefers the exact address to
/// the IPv4 wildcard, and that to the IPv6 wildcard.
fn listeners(port: u16) -> io::Result<BTreeSet<u64>> {
    let localhost = format!("{:08X}", u32::from_ne_bytes([127, 0, 0, 1]));
    let mapped = format!("{:016X}{:08X}{localhost}", 0, u32::from_ne_bytes([0, 0, 0xff, 0xff]));
    let (any4, any6) = ("0".repeat(8), "0".repeat(32));
    let mut tiers: [BTreeSet<u64>; 3] = Default::default();
    let [exact, wildcard4, wildcard6] = &mut tiers;
    for (address, inode) in
        listening("/proc/net/tcp", port)?.into_iter().chain(listening("/proc/net/tcp6", port)?)
    {
        if address == localhost || address == mapped {
            exact.insert(inode);
        } else if address == any4 {
            wildcard4.insert(inode);
        } else if address == any6 {
            wildcard6.insert(inode);
        }
    }
    Ok(tiers.into_iter().find(|tier| !tier.is_empty()).unwrap_or_default())
}

/// Address and inode of each socket in `file` that listens on `port`.
fn listening(file: &str, port: u16) -> io::Result<Vec<(String, u64)>> {
    match File::open(file) {
        Ok(file) => parse(BufReader::new(file), port),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()), // No IPv6 here.
        Err(error) => Err(error),
    }
}

fn parse(table: impl BufRead, port: u16) -> io::Result<Vec<(String, u64)>> {
    const LISTEN: &str = "0A";
    let suffix = format!(":{port:04X}");
    let mut found = Vec::new();
    for line in table.lines().skip(1) {
        let line = line?;
        let mut fields = line.split_ascii_whitespace();
        let (Some(local), Some(LISTEN)) = (fields.nth(1), fields.nth(1)) else {
            break; // The kernel lists what listens first; thousands of connections may follow.
        };
        let inode = fields.nth(5).and_then(|inode| inode.parse().ok());
        if let (Some(address), Some(inode)) = (local.strip_suffix(&suffix), inode) {
            found.push((address.to_owned(), inode));
        }
    }
    Ok(found)
}

/// The sockets that a process has open.
fn sockets_of(identity: Identity) -> io::Result<BTreeSet<u64>> {
    let process = Process::new(identity.pid).map_err(table::into_io)?;
    if process.stat().map_err(table::into_io)?.starttime != identity.start {
        return Err(io::ErrorKind::NotFound.into());
    }
    sockets(&process)
}

fn sockets(process: &Process) -> io::Result<BTreeSet<u64>> {
    let files = process.fd().map_err(table::into_io)?;
    let sockets = files.filter_map(|file| match file.ok()?.target {
        FDTarget::Socket(inode) => Some(inode),
        _ => None,
    });
    Ok(sockets.collect())
}

/// Some process that has the socket open, among those that may be looked into.
fn holder(socket: u64) -> Option<i32> {
    let processes = procfs::process::all_processes().ok()?;
    let mut holders = processes
        .filter_map(Result::ok)
        .filter(|process| sockets(process).is_ok_and(|all| all.contains(&socket)));
    holders.next().map(|process| process.pid())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ourselves() -> io::Result<Vec<Identity>> {
        Ok(Identity::of(std::process::id().try_into().unwrap()).into_iter().collect())
    }

    #[test]
    fn c005_a_port_belongs_to_the_process_that_listens_on_it() {
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().unwrap().port();
            assert_eq!(owner(port, ourselves).unwrap(), Owner::Replica, "{address}");
            let Owner::Other(who) = owner(port, || Ok(Vec::new())).unwrap() else { panic!("{address}") };
            assert!(who.contains(&std::process::id().to_string()), "{who}");
            drop(listener);
            assert_eq!(owner(port, ourselves).unwrap(), Owner::Nobody, "{address}");
        }
    }

    #[test]
    fn reads_only_what_listens() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0\n\
            1: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0\n\
            2: 0100007F:1F90 0100007F:C000 01 00000000:00000000 00:00000000 00000000     0        0 4713 1 0\n";
        assert_eq!(parse(table.as_bytes(), 8080).unwrap(), [("0100007F".to_owned(), 4711)]);
    }

    #[test]
    fn two_leases_are_two_ports() {
        let ports = Ports::default();
        let (one, two) = (ports.free().unwrap(), ports.free().unwrap());
        assert_ne!(one.number(), two.number());
        assert!(ports.claim(one.number()).is_none());
        let number = one.number();
        drop(one);
        assert!(ports.claim(number).is_some());
    }
}
