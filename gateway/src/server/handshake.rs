//! From an accepted socket to one that HTTP is read from, where the gateway speaks TLS to clients (H6).
//!
//! Each handshake is part of its connection's own task, and bounded by the limit on heads (C-124). One that fails is
//! counted with its reason, and told at debug only: whoever scans ports would fill a log. A client that speaks HTTP in
//! the clear is told so in the clear.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use rustls::{Error, ServerConfig};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsAcceptor;

use super::client::ClientStream;
use super::link::Link;
use super::secure::Secured;
use super::{Core, http1};
use crate::telemetry::meter::{self, GaveUp, TlsFailure};

/// The first byte of a client that speaks TLS.
const TLS: u8 = 22;

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
    let by = clock.timer(clock.now() + core.gateway.limits.header_read);
    let shaken = {
        let mut told = pin!(core.closing.told());
        tokio::select! {
            shaken = begin(config, stream, by, client) => shaken,
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

async fn begin(config: Arc<ServerConfig>, stream: TcpStream, by: Instant, client: IpAddr) -> Shaken {
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
    let failure = match timeout_at(by, TlsAcceptor::from(config).accept(stream)).await {
        Ok(Ok(shaken)) => {
            let (stream, session) = shaken.into_inner();
            return Shaken::Done(Box::new(Secured::new(stream, session)));
        }
        Ok(Err(error)) => {
            tracing::debug!(%client, %error, "TLS handshake");
            reason(&error)
        }
        Err(_) => TlsFailure::Slow,
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
