//! A certificate that is its own issuer, as `openssl req -x509` makes them, to both sides.

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;

use super::*;

fn own_issuer(host: &str, until: i32) -> CertificateDer<'static> {
    let mut params = CertificateParams::new([host.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = date_time_ymd(until, 1, 1);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
}

fn roots(listed: &CertificateDer<'static>) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(listed.clone()).unwrap();
    Arc::new(roots)
}

fn server(listed: &CertificateDer<'static>, shown: &CertificateDer<'_>, host: &str) -> Result<(), Error> {
    let provider = Arc::new(ring::default_provider());
    let inner = WebPkiServerVerifier::builder_with_provider(roots(listed), provider).build().unwrap();
    let pinned = Pinned::new(inner as Arc<dyn ServerCertVerifier>, vec![listed.clone()]);
    let name = ServerName::try_from(host.to_owned()).unwrap();
    pinned.verify_server_cert(shown, &[], &name, &[], UnixTime::now()).map(drop)
}

fn client(listed: &CertificateDer<'static>, shown: &CertificateDer<'_>) -> Result<(), Error> {
    let provider = Arc::new(ring::default_provider());
    let inner = WebPkiClientVerifier::builder_with_provider(roots(listed), provider).build().unwrap();
    let pinned = Pinned::new(inner, vec![listed.clone()]);
    pinned.verify_client_cert(shown, &[], UnixTime::now()).map(drop)
}

#[test]
fn h6_a_listed_certificate_that_is_its_own_issuer_is_taken_by_its_name_and_in_its_time() {
    let (one, other) = (own_issuer("one.test", 2100), own_issuer("one.test", 2100));
    assert_eq!(server(&one, &one, "one.test"), Ok(()));
    let named = server(&one, &one, "two.test").unwrap_err();
    let wrong = CertificateError::NotValidForNameContext {
        expected: ServerName::try_from("two.test").unwrap(),
        presented: vec!["DnsName(\"one.test\")".to_owned()],
    };
    assert_eq!(named, Error::InvalidCertificate(wrong));
    let unlisted = server(&one, &other, "one.test").unwrap_err();
    assert!(matches!(&unlisted, Error::InvalidCertificate(error) if is_issuers_own(error)), "{unlisted:?}");
    let old = own_issuer("one.test", 2001);
    let expired = server(&old, &old, "one.test").unwrap_err();
    let is_over =
        |error: &Error| matches!(error, Error::InvalidCertificate(CertificateError::ExpiredContext { .. }));
    assert!(is_over(&expired), "{expired:?}");
    assert!(is_over(&client(&old, &old).unwrap_err()));
}

#[test]
fn h6_a_client_that_shows_a_listed_certificate_is_let_in_and_no_other() {
    let (one, other) = (own_issuer("one.test", 2100), own_issuer("one.test", 2100));
    assert_eq!(client(&one, &one), Ok(()));
    assert!(client(&one, &other).is_err());
}
