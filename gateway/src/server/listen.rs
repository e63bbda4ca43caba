//! Listening sockets: one per core on the same port, and proof that the port is nobody else's.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

const BACKLOG: i32 = 4096;
/// When a peer that is silent is asked whether it is still there, and how long unacknowledged bytes are waited for.
const PEER_GONE: Duration = Duration::from_secs(60);

/// Descriptors that neither clients, nor their requests, nor operators take.
const RESERVE: usize = 64;
/// Clients that may be connected however few descriptors there are.
const CLIENTS_MIN: usize = 16;
/// The operator's connections, of any number of descriptors: at least so many, and at most.
const OPERATORS: RangeInclusive<usize> = 4..=256;

/// How many connections may be open at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Of clients.
    pub clients: usize,
    /// Of the operator's side.
    pub operators: usize,
}

/// One listener per core, all on one address.
pub type Listeners = Vec<TcpListener>;

/// Listens on `address`, `count` times. Port 0 takes a free port, the same for all.
///
/// # Errors
/// The operating system's; "address in use" also when another process shares its port with whoever asks, as a second
/// gateway would.
pub fn bind(address: SocketAddr, count: usize) -> io::Result<Listeners> {
    // Sockets that share a port would let two gateways listen on one; a socket that does not share shows that nobody
    // else is there.
    let probe = socket(address, false)?;
    probe.bind(&address.into())?;
    probe.listen(BACKLOG)?;
    let address = probe.local_addr()?.as_socket().unwrap_or(address);
    drop(probe);
    (0..count.max(1))
        .map(|_| {
            let socket = socket(address, true)?;
            socket.bind(&address.into())?;
            socket.listen(BACKLOG)?;
            Ok(socket.into())
        })
        .collect()
}

/// Allows this process as many open descriptors as it may have: the usual soft limit of 1,024 is there for programs
/// that use `select`. Engines inherit it. Gives the [`room`] that there is with them.
pub fn raise_descriptor_limit() -> Room {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    room(getrlimit(Resource::Nofile).current)
}

/// How many connections there may be with so many descriptors (`None`: no limit): a share for operators; a request takes one
/// here and one to its replica, so half of the rest for clients, less a reserve: listeners, probes, files.
fn room(descriptors: Option<u64>) -> Room {
    let descriptors =
        descriptors.and_then(|most| usize::try_from(most).ok()).unwrap_or(Semaphore::MAX_PERMITS);
    let operators = (descriptors / 32).clamp(*OPERATORS.start(), *OPERATORS.end());
    let clients = descriptors.saturating_sub(RESERVE + operators) / 2;
    Room { clients: clients.clamp(CLIENTS_MIN, Semaphore::MAX_PERMITS), operators }
}

fn socket(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// What every accepted connection gets: no delay, and an end when the peer has vanished.
///
/// # Errors
/// The operating system's, when the peer is gone already.
pub(super) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(PEER_GONE))?;
    socket.set_tcp_user_timeout(Some(PEER_GONE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h6_clients_and_operators_leave_a_descriptor_for_each_request() {
        let room = |descriptors| {
            let Room { clients, operators } = room(descriptors);
            (clients, operators)
        };
        assert_eq!([64, 1024].map(|limit| room(Some(limit))), [(16, 4), (464, 32)]);
        assert_eq!(room(Some(524_288)), (261_984, 256));
        assert!(room(None).0 > 1 << 30);
        for limit in 128..10_000 {
            let (clients, operators) = room(Some(limit));
            assert!(2 * clients + operators + RESERVE <= usize::try_from(limit).expect("small"), "{limit}");
        }
    }

    #[test]
    fn a_port_is_shared_by_the_cores_of_one_gateway_and_by_nobody_else() {
        let first = bind(([127, 0, 0, 1], 0).into(), 2).unwrap();
        let address = first[0].local_addr().unwrap();
        assert_eq!(first[1].local_addr().unwrap(), address);
        assert_eq!(bind(address, 2).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
