//! Certificates that are trusted as themselves: what `openssl req -x509` makes is its own issuer (`CA:TRUE`), and webpki
//! takes no issuer for a replica or a client. Where the very certificate stands in the operator's file, whoever shows it
//! and has its key is who the operator meant (the dates, the name and the signature are verified all the same).
//!
//! Only adds that one exception to what rustls verifies; trusts nobody whose certificate is not in the file.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// What webpki says to an issuer that is shown as somebody's own certificate. It looks at the dates before.
const CA_AS_END_ENTITY: &str = "CaUsedAsEndEntity";

/// The verifier `inner`, which also takes those of `listed` that are shown as they are.
pub(crate) struct Pinned<V: ?Sized> {
    inner: Arc<V>,
    listed: Vec<CertificateDer<'static>>,
}

impl<V: ?Sized> Pinned<V> {
    pub(crate) fn new(inner: Arc<V>, listed: Vec<CertificateDer<'static>>) -> Self {
        Self { inner, listed }
    }

    /// Whether `error` is only that a listed certificate is its own issuer.
    fn pardons(&self, error: &Error, shown: &CertificateDer<'_>) -> bool {
        matches!(error, Error::InvalidCertificate(error) if is_issuers_own(error))
            && self.listed.iter().any(|listed| listed == shown)
    }
}

impl<V: ?Sized> fmt::Debug for Pinned<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("listed", &self.listed.len()).finish_non_exhaustive()
    }
}

/// Whether a certificate is refused because it is an issuer's.
pub(crate) fn is_issuers_own(error: &CertificateError) -> bool {
    matches!(error, CertificateError::Other(other) if other.to_string() == CA_AS_END_ENTITY)
}

impl ServerCertVerifier for Pinned<dyn ServerCertVerifier> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp, now) {
            Err(error) if self.pardons(&error, end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

impl ClientCertVerifier for Pinned<dyn ClientCertVerifier> {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.inner.verify_client_cert(end_entity, intermediates, now) {
            Err(error) if self.pardons(&error, end_entity) => Ok(ClientCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;
