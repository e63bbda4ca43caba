//! Listening sockets: one per core on the same port, and proof that the port is nobody else's.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

const BACKLOG: i32 = 4096;
/// When a peer that is silent is asked whether it is still there, and how long unacknowledged bytes are waited for.
const PEER_GONE: Duration = Duration::from_secs(60);

/// Descriptors that neither clients nor their requests take.
const RESERVE: usize = 64;
/// Clients that may be connected however few descriptors there are.
const CLIENTS_MIN: usize = 16;

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
/// that use `select`. Engines inherit it. Gives how many clients may be connected at a time, [`clients`] of that.
pub fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    clients(getrlimit(Resource::Nofile).current)
}

/// How many clients may be connected at a time with so many descriptors (`None`: no limit). A request takes one here
/// and one to its replica, so half of them, less a reserve: listeners, probes, files, the operator's side.
fn clients(descriptors: Option<u64>) -> usize {
    let descriptors =
        descriptors.and_then(|most| usize::try_from(most).ok()).unwrap_or(Semaphore::MAX_PERMITS);
    (descriptors.saturating_sub(RESERVE) / 2).clamp(CLIENTS_MIN, Semaphore::MAX_PERMITS)
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
    fn h6_clients_leave_a_descriptor_for_each_of_their_requests() {
        assert_eq!([Some(1024), Some(524_288), Some(64)].map(clients), [480, 262_112, 16]);
        assert!(clients(None) > 1 << 30);
    }

    #[test]
    fn a_port_is_shared_by_the_cores_of_one_gateway_and_by_nobody_else() {
        let first = bind(([127, 0, 0, 1], 0).into(), 2).unwrap();
        let address = first[0].local_addr().unwrap();
        assert_eq!(first[1].local_addr().unwrap(), address);
        assert_eq!(bind(address, 2).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
