//! Makes connections to replicas, for requests and for probes alike (C-115): the name's addresses, TCP, TLS, and the
//! protocol that is spoken, all within the connect limit.
//!
//! Keeps no connection and sends no request.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::name::Name;
use super::tls::{self, Tls};
use super::wire::{Protocol, Wire};
use crate::alpn;
use crate::clock::Clock;
use crate::config::BaseUrl;
use crate::local::is_local;

/// How long one address is waited for before the next is tried beside it, at most (RFC 8305, 5).
const STAGGER: Duration = Duration::from_millis(250);
/// A host that does not even acknowledge bytes for this long is gone, whatever its engine is busy with.
const HOST_GONE: Duration = Duration::from_secs(30);

/// How the replicas of one deployment are connected to.
#[derive(Clone, Debug)]
pub struct Dialer {
    /// For the age of what the resolver said.
    pub clock: Clock,
    /// Longest time for a connection: lookup, TCP and TLS together.
    pub limit: Duration,
    /// For `https://` replicas.
    pub tls: Option<Tls>,
    /// Whether `http://` replicas speak HTTP/2 and only that.
    pub http2: bool,
}

/// Why there is no connection.
#[derive(Clone, Debug, Error)]
#[error("{why}")]
pub struct NoConnection {
    /// A sentence without the address.
    pub why: String,
    /// Whose fault that is.
    pub fault: Fault,
}

/// What a failure to connect says of the replica, from nothing to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Nothing: this machine has no descriptor or no port left.
    Local,
    /// Its host says that nothing listens there.
    Refused,
    /// Nothing went wrong but the time.
    Slow,
    /// It is unknown, out of reach, or does not speak as it should.
    Other,
}

impl NoConnection {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), fault: Fault::Other }
    }
}

impl From<io::Error> for NoConnection {
    fn from(error: io::Error) -> Self {
        let fault = match error.kind() {
            _ if is_local(&error) => Fault::Local,
            io::ErrorKind::ConnectionRefused => Fault::Refused,
            _ => Fault::Other,
        };
        Self { why: error.to_string(), fault }
    }
}

/// One replica's place on the network, and how to get there.
#[derive(Debug)]
pub struct Site {
    name: Name,
    authority: Authority,
    clock: Clock,
    limit: Duration,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    http2: bool,
    /// Whether it refused HTTP/2 when it was last asked.
    only_http1: AtomicBool,
}

impl Site {
    /// The place that `url` names.
    ///
    /// # Errors
    /// A sentence, where the settings do not fit the URL.
    pub fn new(url: &BaseUrl, dialer: &Dialer) -> Result<Self, String> {
        let tls = match (url.is_https(), &dialer.tls) {
            (false, _) => None,
            (true, None) => return Err(format!("replica URL {url} needs settings for TLS")),
            (true, Some(tls)) => {
                let name = tls.server_name(url.host()).ok_or_else(|| {
                    format!("the host of replica URL {url} cannot be the name in a certificate")
                })?;
                Some((tls.config(), name))
            }
        };
        Ok(Self {
            clock: dialer.clock,
            http2: dialer.http2,
            only_http1: AtomicBool::new(tls.is_none() && !dialer.http2),
            tls,
            ..Self::plain(url, dialer.limit)
        })
    }

    /// The place that `url` names, spoken to over HTTP/1.1 in the clear; a connection takes `limit` at most.
    pub fn plain(url: &BaseUrl, limit: Duration) -> Self {
        Self {
            name: Name::new(url.host(), url.port()),
            authority: url.authority().clone(),
            clock: Clock::start(),
            limit,
            tls: None,
            http2: false,
            only_http1: AtomicBool::new(true),
        }
    }

    /// Host and port as the URL has them.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Whether the next connection may be one for many requests, as far as is known.
    pub(super) fn may_speak_http2(&self) -> bool {
        !self.only_http1.load(Ordering::Relaxed)
    }

    /// The target of a request over HTTP/2, which names scheme and host; `None` for what is no path.
    pub fn absolute(&self, path: Option<&PathAndQuery>) -> Option<Uri> {
        let scheme = if self.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let builder = Uri::builder().scheme(scheme).authority(self.authority.clone());
        builder.path_and_query(path?.clone()).build().ok()
    }

    /// A new connection, within the connect limit, and what is spoken over it.
    ///
    /// # Errors
    /// The name is unknown, nobody listens there, TLS fails, or the limit has passed.
    pub async fn dial(&self) -> Result<(Wire, Protocol), NoConnection> {
        self.dial_until(self.limit_from_now()).await
    }

    /// When a connection that is begun now must be there.
    pub(super) fn limit_from_now(&self) -> Instant {
        self.clock.timer(self.clock.now() + self.limit)
    }

    /// Awaits one step on the way to a connection.
    pub(super) async fn step<T>(
        &self,
        what: &str,
        end: Instant,
        step: impl Future<Output = Result<T, NoConnection>>,
    ) -> Result<T, NoConnection> {
        tokio::time::timeout_at(end, step).await.unwrap_or_else(|_| {
            Err(NoConnection { why: format!("no {what} within {:?}", self.limit), fault: Fault::Slow })
        })
    }

    /// A new connection, before `end`.
    pub(super) async fn dial_until(&self, end: Instant) -> Result<(Wire, Protocol), NoConnection> {
        let stream = self.step("connection", end, self.connect()).await?;
        let Some((config, name)) = &self.tls else {
            let protocol = if self.http2 { Protocol::Http2 } else { Protocol::Http1 };
            return Ok((Wire::clear(stream), protocol));
        };
        let handshake = TlsConnector::from(Arc::clone(config)).connect(name.clone(), stream);
        let handshake = async { handshake.await.map_err(|error| NoConnection::new(tls::explain(&error))) };
        let stream = self.step("TLS handshake", end, handshake).await?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(alpn::HTTP2);
        self.only_http1.store(!http2, Ordering::Relaxed);
        Ok((Wire::tls(stream), if http2 { Protocol::Http2 } else { Protocol::Http1 }))
    }

    async fn connect(&self) -> Result<TcpStream, NoConnection> {
        let addresses = self.name.addresses(self.clock.now()).await?;
        let share = self.limit / u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        match first_to_answer(&addresses, share.min(STAGGER)).await {
            Ok(stream) => {
                tune(&stream)?;
                Ok(stream)
            }
            Err(error) => {
                self.name.forget(&addresses).await;
                Err(error)
            }
        }
    }
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(HOST_GONE / 2).with_interval(HOST_GONE / 6))?;
    socket.set_tcp_user_timeout(Some(HOST_GONE))
}

/// A connection to the first of `addresses` that takes one. They are tried in order, each after the failure of the one
/// before it or after `stagger`, without giving up on the earlier ones.
///
/// # Errors
/// The one that says most of the replica: a refusal only if all that could be asked refused.
async fn first_to_answer(addresses: &[SocketAddr], stagger: Duration) -> Result<TcpStream, NoConnection> {
    if let [only] = addresses {
        return Ok(TcpStream::connect(only).await?);
    }
    let mut untried = addresses.iter();
    let mut attempts = FuturesUnordered::new();
    let mut failure: Option<NoConnection> = None;
    loop {
        attempts.extend(untried.next().map(TcpStream::connect));
        tokio::select! {
            done = attempts.next() => match done {
                Some(Ok(stream)) => return Ok(stream),
                Some(Err(error)) => {
                    let none = NoConnection::from(error);
                    failure = failure.filter(|worst| worst.fault > none.fault).or(Some(none));
                }
                None => return Err(failure.unwrap_or_else(|| NoConnection::new("the name has no address"))),
            },
            () = tokio::time::sleep(stagger), if untried.len() > 0 => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const LONG: Duration = Duration::from_secs(600);

    /// An address where nobody listens: bound, so that nobody else will.
    fn nobody(host: [u8; 4]) -> (socket2::Socket, SocketAddr) {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((host, 0)).into()).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        (socket, address)
    }

    #[tokio::test]
    async fn all_addresses_of_a_name_are_tried() {
        let (_one, first) = nobody([127, 0, 0, 1]);
        let (_two, second) = nobody([127, 0, 0, 2]);
        let listener = TcpListener::bind("127.0.0.3:0").unwrap();
        let third = listener.local_addr().unwrap();
        let stream = first_to_answer(&[first, second, third], LONG).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), third);
    }

    #[tokio::test]
    async fn when_all_addresses_fail_the_reason_is_theirs() {
        let (_one, first) = nobody([127, 0, 0, 1]);
        let (_two, second) = nobody([127, 0, 0, 2]);
        let error = first_to_answer(&[first, second], LONG).await.unwrap_err();
        assert_eq!(error.fault, Fault::Refused);
    }

    #[tokio::test]
    async fn a_refusal_counts_only_where_all_refuse() {
        let (_one, refuses) = nobody([127, 0, 0, 1]);
        // No connection can be made to everybody; the kernel says so at once.
        let nowhere = SocketAddr::from(([255, 255, 255, 255], 9));
        for addresses in [[refuses, nowhere], [nowhere, refuses]] {
            assert_eq!(first_to_answer(&addresses, LONG).await.unwrap_err().fault, Fault::Other);
        }
        assert!(Fault::Local < Fault::Refused, "an address that was not asked says less than one that was");
    }

    #[tokio::test]
    async fn an_address_that_is_silent_does_not_hold_up_the_next() {
        // A full queue of connections that are not accepted: the kernel answers no more.
        let silent = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        silent.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        silent.listen(0).unwrap();
        let first = silent.local_addr().unwrap().as_socket().unwrap();
        let _fills = std::net::TcpStream::connect(first).unwrap();
        let listener = TcpListener::bind("127.0.0.2:0").unwrap();
        let second = listener.local_addr().unwrap();
        let stream = first_to_answer(&[first, second], Duration::from_millis(10)).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), second);
    }

    #[tokio::test]
    async fn an_unknown_name_is_a_failure_to_connect() {
        let dialer = Dialer { clock: Clock::start(), limit: LONG, tls: None, http2: false };
        let url = BaseUrl::parse("http://no-such-host.invalid:1").unwrap();
        let error = Site::new(&url, &dialer).unwrap().dial().await.unwrap_err();
        assert_eq!(error.fault, Fault::Other, "{error}");
    }
}
