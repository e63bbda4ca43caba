//! A wire between a client and a server that keeps all that the server says, as it says it.
//!
//! Never changes a byte and never waits for more than the next one.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::deadline::within;
use crate::wire::find;

/// See the module. Dropped, it is cut.
pub struct Tap {
    address: SocketAddr,
    heard: Arc<watch::Sender<Vec<u8>>>,
    life: JoinHandle<()>,
}

impl Tap {
    /// A wire to this server.
    pub async fn on(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind");
        let address = listener.local_addr().expect("address");
        let heard = Arc::new(watch::Sender::new(Vec::new()));
        let kept = Arc::clone(&heard);
        let life = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(relay(client, server, Arc::clone(&kept)));
            }
        });
        Self { address, heard, life }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until `look` is content with what was said so far.
    pub async fn until(&self, what: &str, mut look: impl FnMut(&str) -> bool) {
        let mut heard = self.heard.subscribe();
        let content = heard.wait_for(|heard| look(&String::from_utf8_lossy(heard)));
        drop(within(what, content).await.expect("the wire is there"));
    }

    /// The body of the only answer that was said, which came in chunks of HTTP/1.1.
    pub fn chunked(&self) -> String {
        let heard = self.heard.borrow();
        let from = find(&heard, b"\r\n\r\n").expect("a head") + 4;
        let (mut rest, mut body) = (&heard[from..], Vec::new());
        loop {
            let end = find(rest, b"\r\n").expect("the size of a chunk");
            let size = std::str::from_utf8(&rest[..end]).expect("text");
            let size = usize::from_str_radix(size, 16).expect("a size");
            if size == 0 {
                return String::from_utf8(body).expect("text");
            }
            body.extend_from_slice(&rest[end + 2..end + 2 + size]);
            rest = &rest[end + 2 + size + 2..];
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.life.abort();
    }
}

/// Ends when either side does.
async fn relay(client: TcpStream, server: SocketAddr, heard: Arc<watch::Sender<Vec<u8>>>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    client.set_nodelay(true).expect("no delay");
    server.set_nodelay(true).expect("no delay");
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let asks = copy(&mut from_client, &mut to_server);
    let says = async move {
        let mut bytes = vec![0; 16 << 10];
        while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
            heard.send_modify(|heard| heard.extend_from_slice(&bytes[..count]));
            if to_client.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = asks => {}
        () = says => {}
    }
}
