//! What clients are shown where the gateway speaks TLS to them: a certificate with its key, and whose certificates they
//! must show in turn. Checked when it is read, and read anew when the files change; a pair that is no good takes the
//! place of none. Shakes no hands, and never gives a key away.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use humantime::format_rfc3339_seconds;
use parking_lot::RwLock;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, Error, InconsistentKeys, RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};
use tidegate_shared::span::{ahead, span};

use crate::pinned::Pinned;
use crate::{alpn, clock, pem};

/// How often the files are looked at, and how long files that have changed must stay as they are: one of them may be
/// replaced a moment before the other.
const LOOK: Duration = Duration::from_secs(5);
const SETTLED: Duration = Duration::from_secs(1);
/// How long before its end a certificate is worth a word.
const SOON: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// After the last moment that a certificate can name, in seconds of Unix time: the year 10000.
const NEVER: Duration = Duration::from_secs(253_402_300_800);

/// What the operator says about TLS to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontFiles {
    /// PEM file with the certificate, and those between it and its issuer behind it.
    pub cert: PathBuf,
    /// PEM file with its private key.
    pub key: PathBuf,
    /// PEM file with the issuers of whom clients must show a certificate; they need none unless given.
    pub client_ca: Option<PathBuf>,
}

/// One file, by the setting that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontFile {
    /// `cert`
    Cert,
    /// `key`
    Key,
    /// `client_ca`
    ClientCa,
}

impl FrontFile {
    const fn key(self) -> &'static str {
        match self {
            Self::Cert => "tls.cert",
            Self::Key => "tls.key",
            Self::ClientCa => "tls.client_ca",
        }
    }
}

/// What is wrong with which file, as the rest of the sentence that names it.
pub type FrontFault = (FrontFile, String);

/// What tells one content of a file from another.
type Print = [u8; 32];

/// Checked settings, ready for use. Two are equal when they come from the same files.
#[derive(Clone)]
pub struct Front {
    files: FrontFiles,
    config: Arc<ServerConfig>,
    /// Between when and when all of the chain is good, as far as that can be read.
    good: (Option<SystemTime>, Option<SystemTime>),
    print: Print,
}

/// What the files hold, or why they cannot be read.
struct Contents {
    cert: Result<Vec<u8>, String>,
    key: Result<Vec<u8>, String>,
    client_ca: Option<Result<Vec<u8>, String>>,
}

impl Contents {
    fn of(files: &FrontFiles) -> Self {
        let client_ca = files.client_ca.as_deref().map(pem::read);
        Self { cert: pem::read(&files.cert), key: pem::read(&files.key), client_ca }
    }

    fn print(&self) -> Print {
        let print = |content: &Result<Vec<u8>, String>| -> Print {
            Sha256::digest(content.as_deref().unwrap_or_else(|why| why.as_bytes())).into()
        };
        let client_ca = self.client_ca.as_ref().map(print).unwrap_or_default();
        Sha256::digest([print(&self.cert), print(&self.key), client_ca].concat()).into()
    }
}

impl Front {
    /// Reads the files, up to 4 MiB each.
    ///
    /// # Errors
    /// Each file that cannot be read, or does not hold what it should.
    pub fn load(files: FrontFiles) -> Result<Self, Vec<FrontFault>> {
        let contents = Contents::of(&files);
        Self::of(files, &contents, None)
    }

    /// Who had a session `before` may take it up again, where clients need no certificate.
    fn of(files: FrontFiles, contents: &Contents, before: Option<&Self>) -> Result<Self, Vec<FrontFault>> {
        let Contents { cert, key, client_ca } = contents;
        let print = contents.print();
        let fault = |file| move |rule: String| (file, rule);
        let chain = cert.as_deref().map_err(Clone::clone).and_then(pem::certificates);
        let key = key.as_deref().map_err(Clone::clone).and_then(pem::private_key);
        let read =
            |content: &Result<Vec<u8>, String>| content.as_deref().map_err(Clone::clone).and_then(pem::roots);
        let client_ca = client_ca.as_ref().map(read).transpose();
        let (chain, key, client_ca) = match (chain, key, client_ca) {
            (Ok(chain), Ok(key), Ok(client_ca)) => (chain, key, client_ca),
            (chain, key, client_ca) => {
                let faults = [
                    chain.err().map(fault(FrontFile::Cert)),
                    key.err().map(fault(FrontFile::Key)),
                    client_ca.err().map(fault(FrontFile::ClientCa)),
                ];
                return Err(faults.into_iter().flatten().collect());
            }
        };
        let odd = |file| move |error: Error| vec![(file, format!("cannot be used: {error}"))];
        let good = good(&chain);
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(odd(FrontFile::Cert))?;
        let anybody = client_ca.is_none();
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some((roots, listed)) => builder.with_client_cert_verifier(verifier(roots, listed)?),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                vec![(FrontFile::Key, "must be the private key of the certificate in cert".to_owned())]
            }
            Error::InvalidCertificate(_) => {
                vec![(FrontFile::Cert, format!("must hold a certificate first: {error}"))]
            }
            error => vec![(FrontFile::Key, format!("must be a private key that TLS can use: {error}"))],
        })?;
        config.alpn_protocols = alpn::offered();
        if anybody {
            config.ticketer = match before {
                Some(before) => Arc::clone(&before.config.ticketer),
                None => ring::Ticketer::new().map_err(odd(FrontFile::Key))?,
            };
        } else {
            forget(&mut config);
        }
        Ok(Self { files, config: Arc::new(config), good, print })
    }

    /// Why a client that looks at the time would not take it now, or soon, for people.
    pub fn doubt(&self, now: SystemTime) -> Option<String> {
        let cert = self.files.cert.display();
        match self.good {
            (Some(from), _) if now < from => Some(format!(
                "the certificate in {cert} is not valid before {}",
                format_rfc3339_seconds(from)
            )),
            (_, Some(until)) if until < now => {
                Some(format!("the certificate in {cert} expired at {}", format_rfc3339_seconds(until)))
            }
            (_, Some(until)) if until < now + SOON => {
                Some(format!("the certificate in {cert} expires at {}", format_rfc3339_seconds(until)))
            }
            _ => None,
        }
    }

    fn is_over(&self, now: SystemTime) -> bool {
        self.good.1.is_some_and(|until| until < now)
    }
}

impl PartialEq for Front {
    fn eq(&self, other: &Self) -> bool {
        self.files == other.files
    }
}

impl Eq for Front {}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}

/// No session is taken up again: who takes one up is let in by the certificate that was shown when it began, which nobody
/// verifies again, be it over or its issuer trusted no more.
fn forget(config: &mut ServerConfig) {
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
}

fn verifier(
    roots: RootCertStore,
    listed: Vec<CertificateDer<'static>>,
) -> Result<Arc<dyn ClientCertVerifier>, Vec<FrontFault>> {
    let provider = Arc::new(ring::default_provider());
    let made = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let made = made.map_err(|error| vec![(FrontFile::ClientCa, format!("cannot be used: {error}"))])?;
    Ok(Arc::new(Pinned::new(made, listed)))
}

/// Between when and when all of a chain is good. Asked of whoever verifies certificates, by times that none can be good at:
/// it looks at them before it looks for an issuer.
fn good(chain: &[CertificateDer<'_>]) -> (Option<SystemTime>, Option<SystemTime>) {
    let nobody = RootCertStore::empty();
    let refusal = |certificate: &CertificateDer<'_>, at: Duration| {
        let parsed = ParsedCertificate::try_from(certificate).ok()?;
        let at = UnixTime::since_unix_epoch(at);
        match verify_server_cert_signed_by_trust_anchor(&parsed, &nobody, &[], at, &[]) {
            Err(Error::InvalidCertificate(error)) => Some(error),
            Ok(()) | Err(_) => None,
        }
    };
    let moment = |time: UnixTime| UNIX_EPOCH + Duration::from_secs(time.as_secs());
    let from = chain.iter().filter_map(|certificate| match refusal(certificate, Duration::ZERO)? {
        CertificateError::NotValidYetContext { not_before, .. } => Some(moment(not_before)),
        _ => None,
    });
    let until = chain.iter().filter_map(|certificate| match refusal(certificate, NEVER)? {
        CertificateError::ExpiredContext { not_after, .. } => Some(moment(not_after)),
        _ => None,
    });
    (from.max(), until.min())
}

/// What is shown to clients now.
#[derive(Debug)]
pub struct Shown {
    front: RwLock<Arc<Front>>,
    /// What is wrong with the files as they are now; what they held before is shown.
    trouble: RwLock<Option<String>>,
}

impl Shown {
    /// Shows `front` until its files change.
    pub fn new(front: Front) -> Arc<Self> {
        Arc::new(Self { front: RwLock::new(Arc::new(front)), trouble: RwLock::default() })
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.front.read().config)
    }

    /// The file of the certificate.
    pub fn cert(&self) -> PathBuf {
        self.front.read().files.cert.clone()
    }

    /// When what is shown expires, where that is known.
    pub fn until(&self) -> Option<SystemTime> {
        self.front.read().good.1
    }

    /// What an operator should look at, for people.
    pub fn trouble(&self) -> Option<String> {
        self.kept().or_else(|| self.front.read().doubt(clock::wall()))
    }

    /// Whether that is so now: a newer pair is not taken, or what is shown has expired.
    pub fn is_pressing(&self) -> bool {
        self.trouble.read().is_some() || self.front.read().is_over(clock::wall())
    }

    /// That what was there before is shown, and why.
    fn kept(&self) -> Option<String> {
        let trouble = self.trouble.read();
        let why = trouble.as_ref()?;
        let end = self.until().map(|until| match until.duration_since(clock::wall()) {
            Ok(left) => format!(" (expires in {})", ahead(left)),
            Err(over) => format!(" (expired {} ago)", span(over.duration())),
        });
        Some(format!("clients still get the old certificate{}: {why}", end.unwrap_or_default()))
    }

    /// Takes what the files hold once they have changed; for ever. Connections that are there stay as they are.
    pub async fn keep_fresh(self: Arc<Self>) {
        self.look(LOOK, SETTLED).await;
    }

    async fn look(&self, every: Duration, settled: Duration) {
        let files = self.front.read().files.clone();
        let mut judged = self.front.read().print;
        loop {
            tokio::time::sleep(every).await;
            let seen = contents(&files).await;
            if seen.as_ref().is_none_or(|seen| seen.print() == judged) {
                continue;
            }
            tokio::time::sleep(settled).await;
            let Some(now) = contents(&files).await else { continue };
            if seen.is_some_and(|seen| seen.print() == now.print()) {
                judged = now.print();
                self.take(&files, &now);
            }
        }
    }

    /// What the files hold from now on, if it is any good.
    fn take(&self, files: &FrontFiles, contents: &Contents) {
        let before = Arc::clone(&self.front.read());
        if before.print == contents.print() {
            *self.trouble.write() = None;
            return;
        }
        let made =
            Front::of(files.clone(), contents, Some(&before)).map_err(|faults| sentence(files, &faults));
        let made = made.and_then(|made| match made.doubt(clock::wall()) {
            Some(doubt) if made.is_over(clock::wall()) => Err(doubt),
            Some(doubt) => {
                tracing::warn!("{doubt}");
                Ok(made)
            }
            None => Ok(made),
        });
        match made {
            Ok(made) => {
                let until =
                    made.good.1.map(|until| format!(", good until {}", format_rfc3339_seconds(until)));
                let until = until.unwrap_or_default();
                tracing::info!(
                    "new clients are shown the new certificate in {}{until}",
                    files.cert.display()
                );
                *self.front.write() = Arc::new(made);
                *self.trouble.write() = None;
            }
            Err(why) => {
                *self.trouble.write() = Some(why);
                tracing::error!("{}", self.kept().unwrap_or_default());
            }
        }
    }
}

async fn contents(files: &FrontFiles) -> Option<Contents> {
    let files = files.clone();
    tokio::task::spawn_blocking(move || Contents::of(&files)).await.ok()
}

fn sentence(files: &FrontFiles, faults: &[FrontFault]) -> String {
    let path = |file: FrontFile| -> &Path {
        match file {
            FrontFile::Cert => &files.cert,
            FrontFile::Key => &files.key,
            FrontFile::ClientCa => files.client_ca.as_deref().unwrap_or(Path::new("")),
        }
    };
    let told =
        faults.iter().map(|(file, rule)| format!("{} = {}: {rule}", file.key(), path(*file).display()));
    told.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
