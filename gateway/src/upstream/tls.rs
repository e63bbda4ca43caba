//! TLS towards replicas: whom to trust, what to show, and which name to expect.
//!
//! Reads the files once, when the configuration is read, and checks them as far as that is possible without a replica.
//! Always verifies the replica: there is no setting to skip that.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};

use crate::pinned::{Pinned, is_issuers_own};
use crate::{alpn, pem};

/// What the operator says about TLS to the replicas of one deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM file with the certificates of the issuers that are trusted, and no others; the system's unless given.
    pub ca: Option<PathBuf>,
    /// PEM files with the certificate (and those between it and its issuer) that is shown to a replica that asks, and
    /// with its private key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// The name to expect in a replica's certificate and to ask for; the host of its URL unless given.
    pub server_name: Option<ServerName<'static>>,
}

/// One file, by the setting that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// `ca`
    Ca,
    /// `cert`
    Cert,
    /// `key`
    Key,
}

/// What is wrong with which file, as the rest of the sentence that names it.
pub type TlsFault = (TlsFile, String);

/// Checked settings, ready for use. Two are equal when they come from the same files.
#[derive(Clone)]
pub struct Tls {
    files: TlsFiles,
    config: Arc<ClientConfig>,
}

impl Tls {
    /// Reads the files, up to 4 MiB each.
    ///
    /// # Errors
    /// Each file that cannot be read, or does not hold what it should.
    pub fn load(files: TlsFiles) -> Result<Self, Vec<TlsFault>> {
        let named = |path: &Path| pem::read(path).and_then(|bytes| pem::roots(&bytes));
        let roots = files.ca.as_deref().map_or_else(|| Ok((system_roots(), Vec::new())), named);
        let roots = roots.map_err(|rule| (TlsFile::Ca, rule));
        let client = files.client.as_ref().map(|(cert, key)| client(cert, key)).transpose();
        let ((roots, listed), client) = match (roots, client) {
            (Ok(roots), Ok(client)) => (roots, client),
            (roots, client) => {
                return Err(roots.err().into_iter().chain(client.err().into_iter().flatten()).collect());
            }
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| vec![(TlsFile::Ca, error.to_string())])?;
        let builder = if listed.is_empty() {
            builder.with_root_certificates(roots)
        } else {
            builder.dangerous().with_custom_certificate_verifier(verifier(roots, listed)?)
        };
        let mut config = match client {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| vec![(TlsFile::Key, format!("must be the private key of cert: {error}"))])?,
        };
        config.alpn_protocols = alpn::offered();
        Ok(Self { files, config: Arc::new(config) })
    }

    pub(super) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// The name to expect of a replica whose URL has this host; `None` where that cannot be one.
    pub(super) fn server_name(&self, host: &str) -> Option<ServerName<'static>> {
        self.files.server_name.clone().or_else(|| ServerName::try_from(host.to_owned()).ok())
    }
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        self.files == other.files
    }
}

impl Eq for Tls {}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}

/// A failed handshake for an operator, with what to do where that is known.
pub(super) fn explain(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidMessage(_)) => {
            "TLS: what it sends is no TLS; perhaps its URL should begin with http://".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "TLS: nobody trusted here has issued its certificate (UnknownIssuer); tls.ca names the trusted \
             issuers"
                .to_owned()
        }
        Some(rustls::Error::InvalidCertificate(fault)) => format!("TLS: {}", refused(fault)),
        _ => format!("TLS: {error}"),
    }
}

/// What is wrong with a replica's certificate, and what to do.
fn refused(fault: &CertificateError) -> String {
    match fault {
        fault if is_issuers_own(fault) => {
            "its certificate is an issuer's own (CA:TRUE), and stands in no tls.ca: put \
             that very certificate there, or show one with CA:FALSE that a trusted issuer signed"
                .to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } if presented.is_empty() => format!(
            "its certificate names no host, so it is none for {}: it needs a subjectAltName",
            expected.to_str()
        ),
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "its certificate is for {}, and not for {}; tls.server_name is the name to expect",
            presented.iter().map(|name| bare(name)).collect::<Vec<_>>().join(", "),
            expected.to_str()
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("its certificate has expired ({fault})")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("its certificate is not valid yet ({fault})")
        }
        fault => format!("its certificate cannot be verified: {fault}"),
    }
}

/// `one.test` out of `DnsName("one.test")`, which is how rustls puts the names in a certificate.
fn bare(name: &str) -> &str {
    let inside = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inside.trim_matches('"')
}

/// Trusts these issuers, and who shows one of the listed certificates.
fn verifier(
    roots: RootCertStore,
    listed: Vec<CertificateDer<'static>>,
) -> Result<Arc<dyn ServerCertVerifier>, Vec<TlsFault>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let made = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let made = made.map_err(|error| vec![(TlsFile::Ca, format!("cannot be used: {error}"))])?;
    Ok(Arc::new(Pinned::new(made as Arc<dyn ServerCertVerifier>, listed)))
}

/// Those that this machine trusts; none at all on a machine without a store, and then no replica can be verified.
fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn client(cert: &Path, key: &Path) -> Result<Identity, Vec<TlsFault>> {
    let read = |path, file| pem::read(path).map_err(|rule| (file, rule));
    let chain = read(cert, TlsFile::Cert)
        .and_then(|bytes| pem::certificates(&bytes).map_err(|rule| (TlsFile::Cert, rule)));
    let key = read(key, TlsFile::Key)
        .and_then(|bytes| pem::private_key(&bytes).map_err(|rule| (TlsFile::Key, rule)));
    match (chain, key) {
        (Ok(chain), Ok(key)) => Ok((chain, key)),
        (chain, key) => Err(chain.err().into_iter().chain(key.err()).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    struct Folder(tempfile::TempDir);

    impl Folder {
        /// A folder with two certificates `one`, `two`, their keys, and some files that are neither.
        fn new() -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            for name in ["one", "two"] {
                let key = KeyPair::generate().unwrap();
                let cert = CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap();
                folder.write(&format!("{name}.pem"), &cert.pem());
                folder.write(&format!("{name}.key"), &key.serialize_pem());
            }
            folder.write("empty", "");
            folder.write("broken", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n");
            folder
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.0.path().join(name), text).unwrap();
        }

        fn load(&self, ca: Option<&str>, client: Option<(&str, &str)>) -> Result<Tls, Vec<TlsFault>> {
            let path = |name: &str| self.0.path().join(name);
            let client = client.map(|(cert, key)| (path(cert), path(key)));
            Tls::load(TlsFiles { ca: ca.map(path), client, server_name: None })
        }
    }

    #[test]
    fn good_files_are_taken() {
        let folder = Folder::new();
        let tls = folder.load(Some("one.pem"), Some(("two.pem", "two.key"))).unwrap();
        assert!(tls == folder.load(Some("one.pem"), Some(("two.pem", "two.key"))).unwrap());
        assert!(tls != folder.load(Some("one.pem"), None).unwrap());
        assert!(folder.load(None, None).is_ok(), "whatever this machine trusts");
        assert!(!format!("{tls:?}").contains("PRIVATE"));
    }

    #[test]
    fn h6_a_refused_certificate_is_told_in_plain_words() {
        let expected = ServerName::try_from("10.0.0.7").unwrap();
        let named = |presented: &[&str]| CertificateError::NotValidForNameContext {
            expected: expected.clone(),
            presented: presented.iter().map(|name| (*name).to_owned()).collect(),
        };
        for (fault, told) in [
            (
                named(&[]),
                "its certificate names no host, so it is none for 10.0.0.7: it needs a subjectAltName",
            ),
            (
                named(&["DnsName(\"a.test\")", "IpAddress(127.0.0.1)"]),
                "its certificate is for a.test, 127.0.0.1, and not for 10.0.0.7; tls.server_name is the name to expect",
            ),
        ] {
            assert_eq!(refused(&fault), told);
        }
    }

    #[test]
    fn each_bad_file_is_a_fault_of_its_own() {
        let folder = Folder::new();
        for (ca, client, faults) in [
            ("none", None, &[(TlsFile::Ca, "cannot be read")][..]),
            ("empty", None, &[(TlsFile::Ca, "at least one certificate")]),
            ("one.key", None, &[(TlsFile::Ca, "at least one certificate")]),
            ("broken", None, &[(TlsFile::Ca, "must be a file in PEM")]),
            ("one.pem", Some(("one.pem", "two.key")), &[(TlsFile::Key, "must be the private key of cert")]),
            ("one.pem", Some(("one.pem", "one.pem")), &[(TlsFile::Key, "with a private key")]),
            (
                "none",
                Some(("none", "none")),
                &[
                    (TlsFile::Ca, "cannot be read"),
                    (TlsFile::Cert, "cannot be read"),
                    (TlsFile::Key, "cannot be read"),
                ],
            ),
        ] {
            let found = folder.load(Some(ca), client).unwrap_err();
            assert_eq!(found.len(), faults.len(), "{ca} {client:?}: {found:?}");
            for ((file, rule), (wanted, part)) in found.iter().zip(faults) {
                assert!(file == wanted && rule.contains(part), "{ca} {client:?}: {file:?} {rule}");
            }
        }
    }
}
