//! TLS between clients and the gateway: the files that it shows, which may change, and clients that trust their issuer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::certificates::{Identity, Issuer};
use crate::deadline::within;

/// The hosts by which tests reach a gateway.
pub const HOSTS: &[&str] = &["127.0.0.1", "localhost"];

/// Whom a client trusts, and what it shows if it is asked. Sessions are taken up again.
#[derive(Debug)]
pub struct Trust {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

impl Trust {
    /// Trust in this issuer; kept as long as the process, so that clients stay easy to copy.
    pub fn of(issuer: &Issuer, shows: Option<&Identity>) -> &'static Self {
        Self::in_versions(issuer, shows, rustls::ALL_VERSIONS)
    }

    /// The same with these versions of TLS only.
    pub fn in_versions(
        issuer: &Issuer,
        shows: Option<&Identity>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> &'static Self {
        let config = |speaks: &[u8]| {
            let mut roots = RootCertStore::empty();
            roots.add(issuer.der()).expect("an issuer");
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(versions)
                .expect("versions")
                .with_root_certificates(roots);
            let mut config = match shows {
                None => builder.with_no_client_auth(),
                Some(identity) => {
                    let (chain, key) = identity.der();
                    builder.with_client_auth_cert(chain, key).expect("an identity")
                }
            };
            config.alpn_protocols = vec![speaks.to_vec()];
            Arc::new(config)
        };
        Box::leak(Box::new(Self { http1: config(b"http/1.1"), http2: config(b"h2") }))
    }

    /// A connection on which HTTP/1.1 is agreed on.
    ///
    /// # Errors
    /// There is no connection, or no handshake.
    pub async fn connect(&self, server: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        shake(&self.http1, server).await
    }
}

async fn shake(config: &Arc<ClientConfig>, server: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::IpAddress(server.ip().into());
    within("a handshake", TlsConnector::from(Arc::clone(config)).connect(name, stream)).await
}

/// The bytes of a connection, in the clear or inside TLS.
pub(crate) trait Pipe: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Pipe for T {}

/// A connection, inside TLS where there is somebody to trust.
pub(crate) async fn reach(
    server: SocketAddr,
    trust: Option<&Trust>,
    http2: bool,
) -> io::Result<Box<dyn Pipe>> {
    let Some(trust) = trust else {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        return Ok(Box::new(stream));
    };
    let config = if http2 { &trust.http2 } else { &trust.http1 };
    Ok(Box::new(shake(config, server).await?))
}

/// A folder with what a gateway shows, and the trust of its clients.
pub struct Front {
    /// Gone with it.
    pub folder: TempDir,
    /// Of clients that show nothing.
    pub trust: &'static Trust,
}

impl Front {
    /// A certificate of this issuer.
    pub fn of(issuer: &Issuer) -> Self {
        let front = Self { folder: tempfile::tempdir().expect("a folder"), trust: Trust::of(issuer, None) };
        front.write("ca.pem", &issuer.pem());
        front.show(&issuer.issue(HOSTS));
        front
    }

    /// Puts another certificate and its key in place of those that are there.
    pub fn show(&self, identity: &Identity) {
        self.write("cert.pem", &identity.cert);
        self.write("key.pem", &identity.key);
    }

    /// Writes a file: `cert.pem` and `key.pem` are shown, `ca.pem` is the issuer.
    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("write");
    }

    /// The path of a file.
    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}
