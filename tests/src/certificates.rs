//! Certificates made for one test: an issuer, and what it issues. Nothing is kept on disk but what the test writes.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Somebody who issues certificates.
pub struct Issuer(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its private key, in PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub cert: String,
    /// Its private key.
    pub key: String,
}

impl Issuer {
    /// An issuer that nobody trusts yet.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// Its own certificate, in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Its own certificate.
    pub fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// A certificate for hosts, each a name or an address.
    pub fn issue(&self, hosts: &[&str]) -> Identity {
        self.sign(Self::params(hosts))
    }

    /// One that was good until 2001.
    pub fn issue_expired(&self, hosts: &[&str]) -> Identity {
        let mut params = Self::params(hosts);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(2001, 1, 1);
        self.sign(params)
    }

    fn params(hosts: &[&str]) -> CertificateParams {
        CertificateParams::new(hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>())
            .expect("hosts")
    }

    fn sign(&self, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.0).expect("a certificate");
        Identity { cert: cert.pem(), key: key.serialize_pem() }
    }
}

impl Identity {
    /// One that is its own issuer, as `openssl req -x509` makes them.
    pub fn own_issuer(hosts: &[&str]) -> Self {
        let mut params = Issuer::params(hosts);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let cert = params.self_signed(&key).expect("a certificate");
        Self { cert: cert.pem(), key: key.serialize_pem() }
    }

    /// For rustls.
    pub fn der(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let cert = CertificateDer::from_pem_slice(self.cert.as_bytes()).expect("a certificate");
        (vec![cert], PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("a key"))
    }
}
