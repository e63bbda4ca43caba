//! Listening sockets: one per core on the same port, and proof that the port is nobody else's.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::TcpStream;

const BACKLOG: i32 = 4096;
/// When a peer that is silent is asked whether it is still there, and how long unacknowledged bytes are waited for.
const PEER_GONE: Duration = Duration::from_secs(60);

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

/// Allows this process as many open connections as it may have: each request takes two descriptors, and the usual
/// soft limit of 1,024 is there for programs that use `select`. Engines inherit it. What cannot be had is not missed
/// before it is used up, and then new connections wait.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
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
    fn a_port_is_shared_by_the_cores_of_one_gateway_and_by_nobody_else() {
        let first = bind(([127, 0, 0, 1], 0).into(), 2).unwrap();
        let address = first[0].local_addr().unwrap();
        assert_eq!(first[1].local_addr().unwrap(), address);
        assert_eq!(bind(address, 2).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
