//! Certificates and private keys out of files in PEM, for both sides of the gateway. Faults are told as the rest of a
//! sentence that names the file. Trusts nobody and checks no certificate.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Largest file that is read, in bytes.
const LARGEST: u64 = 4 << 20;

/// The whole file, up to 4 MiB.
///
/// # Errors
/// It cannot be read, or is larger.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => Err(format!("cannot be read: {error}")),
        Ok(size) if size as u64 > LARGEST => Err(format!("must be a file of at most {} MiB", LARGEST >> 20)),
        Ok(_) => Ok(bytes),
    }
}

/// Why the file at `path` does not hold what `read` looks for.
pub(crate) fn fault<T>(path: &Path, read: fn(&[u8]) -> Result<T, String>) -> Option<String> {
    self::read(path).and_then(|bytes| read(&bytes)).err()
}

/// The certificates in a file, at least one, in their order.
///
/// # Errors
/// There is none, or the file is no PEM.
pub(crate) fn certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(bytes).collect();
    let found = found.map_err(|error| format!("must be a file in PEM: {error}"))?;
    if found.is_empty() {
        return Err("must be a file in PEM with at least one certificate".to_owned());
    }
    Ok(found)
}

/// The first private key in a file.
///
/// # Errors
/// There is none that has no password.
pub(crate) fn private_key(bytes: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(bytes)
        .map_err(|_| "must be a file in PEM with a private key that has no password".to_owned())
}

/// The certificates in a file as issuers that are trusted, and as they stand there.
///
/// # Errors
/// As for [`certificates`], or one of them cannot be an issuer.
pub(crate) fn roots(bytes: &[u8]) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), String> {
    let (mut roots, listed) = (RootCertStore::empty(), certificates(bytes)?);
    for certificate in &listed {
        roots
            .add(certificate.clone())
            .map_err(|error| format!("must hold certificates that can be trusted: {error}"))?;
    }
    Ok((roots, listed))
}
