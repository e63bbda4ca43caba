//! From an accepted socket to one that HTTP is read from, where the gateway speaks TLS to clients (H6).
//!
//! Each handshake is part of its connection's own task, is over within ten seconds, or the limit on heads where that is
//! shorter, and one of so many at a time (C-124). One that fails is counted with its reason, and told at debug only:
//! whoever scans ports would fill a log. A client that speaks HTTP in the clear is told so in the clear.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use rustls::{Error, ServerConfig};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsAcceptor;

use super::client::ClientStream;
use super::link::Link;
use super::secure::Secured;
use super::{Core, http1};
use crate::telemetry::meter::{self, GaveUp, TlsFailure};

/// The first byte of a client that speaks TLS.
const TLS: u8 = 22;

/// The longest that a handshake may take, from the connection on: a few exchanges with a client that is there.
const LIMIT: Duration = Duration::from_secs(10);
/// Handshakes that a core has under way at a time: each holds some tens of KiB for somebody who has shown nothing yet.
pub(super) const AT_A_TIME: usize = 256;
/// For how long one is never sent away for others: longer than it takes over any line.
const GRACE: Duration = Duration::from_secs(1);

/// The handshakes of one core. Who finds no room waits, and whoever is longest over his own leaves for him: else so many
/// that only begin would keep everybody out for as long as the limit is.
#[derive(Debug)]
pub(super) struct Handshakes {
    room: Semaphore,
    waiting: Cell<usize>,
    wanted: Notify,
}

impl Default for Handshakes {
    fn default() -> Self {
        Self { room: Semaphore::new(AT_A_TIME), waiting: Cell::new(0), wanted: Notify::new() }
    }
}

impl Handshakes {
    /// Waits for room for one more.
    async fn enter(&self) -> Option<SemaphorePermit<'_>> {
        if let Ok(room) = self.room.try_acquire() {
            return Some(room);
        }
        let _waits = Waits::new(&self.waiting);
        self.wanted.notify_one();
        self.room.acquire().await.ok()
    }

    /// Resolves once it is over its grace and somebody waits for its place.
    async fn outstayed(&self) {
        sleep(GRACE).await;
        while self.waiting.get() == 0 {
            self.wanted.notified().await;
        }
    }
}

/// Counts one more who waits, until it is dropped.
struct Waits<'a>(&'a Cell<usize>);

impl<'a> Waits<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// What became of a handshake.
enum Shaken {
    Done(Box<Secured>),
    /// What comes is no TLS.
    Clear(TcpStream),
    /// There is nothing to be served.
    None,
}

/// The client inside TLS; `None` where there is none, whatever the reason.
pub(super) async fn shake(
    core: &Rc<Core>,
    config: Arc<ServerConfig>,
    stream: TcpStream,
    client: IpAddr,
) -> Option<ClientStream> {
    let clock = core.gateway.clock;
    let by = clock.timer(clock.now() + core.gateway.limits.header_read.min(LIMIT));
    let shaken = {
        let mut told = pin!(core.closing.told());
        tokio::select! {
            shaken = begin(&core.handshakes, config, stream, by, client) => shaken,
            // Nothing was asked for yet.
            () = poll_fn(|cx| core.closing.poll_begun(told.as_mut(), cx)) => Shaken::None,
        }
    };
    match shaken {
        Shaken::Done(secured) => Some(ClientStream::secured(secured)),
        Shaken::Clear(stream) => {
            let link = Link::new(ClientStream::new(stream), BytesMut::new());
            http1::in_the_clear(core, link, client).await;
            None
        }
        Shaken::None => None,
    }
}

async fn begin(
    shaking: &Handshakes,
    config: Arc<ServerConfig>,
    stream: TcpStream,
    by: Instant,
    client: IpAddr,
) -> Shaken {
    let mut first = [0];
    // Looks without taking: nothing is set up for a client that sends nothing.
    match timeout_at(by, stream.peek(&mut first)).await {
        Ok(Ok(1..)) => {}
        // Whoever only asks whether the port is open.
        Ok(Ok(_) | Err(_)) => return Shaken::None,
        Err(_) => {
            meter::gave_up(GaveUp::Idle);
            return Shaken::None;
        }
    }
    if first != [TLS] {
        meter::tls_failed(TlsFailure::Clear);
        let is_http = first.iter().all(u8::is_ascii_uppercase);
        return if is_http { Shaken::Clear(stream) } else { Shaken::None };
    }
    let hands = async {
        let _room = shaking.enter().await;
        tokio::select! {
            biased;
            shaken = TlsAcceptor::from(config).accept(stream) => Some(shaken),
            () = shaking.outstayed() => None,
        }
    };
    let failure = match timeout_at(by, hands).await {
        Ok(Some(Ok(shaken))) => {
            let (stream, session) = shaken.into_inner();
            return Shaken::Done(Box::new(Secured::new(stream, session)));
        }
        Ok(Some(Err(error))) => {
            tracing::debug!(%client, %error, "TLS handshake");
            reason(&error)
        }
        Ok(None) | Err(_) => TlsFailure::Slow,
    };
    meter::tls_failed(failure);
    Shaken::None
}

/// Why a handshake failed.
fn reason(error: &io::Error) -> TlsFailure {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(_) | Error::NoCertificatesPresented) => TlsFailure::Certificate,
        Some(Error::AlertReceived(_)) => TlsFailure::Refused,
        Some(_) => TlsFailure::Protocol,
        None => TlsFailure::Left,
    }
}

#[cfg(test)]
mod tests {
    use rustls::{AlertDescription, CertificateError, PeerIncompatible};

    use super::*;

    #[test]
    fn h6_a_failed_handshake_is_counted_by_its_reason() {
        let tls = |error: Error| reason(&io::Error::new(io::ErrorKind::InvalidData, error));
        assert_eq!(tls(Error::NoCertificatesPresented), TlsFailure::Certificate);
        assert_eq!(tls(Error::InvalidCertificate(CertificateError::UnknownIssuer)), TlsFailure::Certificate);
        assert_eq!(tls(Error::AlertReceived(AlertDescription::UnknownCA)), TlsFailure::Refused);
        let old = PeerIncompatible::Tls12NotOfferedOrEnabled;
        assert_eq!(tls(Error::PeerIncompatible(old)), TlsFailure::Protocol);
        assert_eq!(reason(&io::ErrorKind::UnexpectedEof.into()), TlsFailure::Left);
    }
}
