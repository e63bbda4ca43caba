//! What is taken as a certificate, what is said of its time, and what a change of the files does.

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConnection, SupportedProtocolVersion};
use tempfile::TempDir;

use super::*;

/// A folder in which `cert.pem` and `key.pem` may change.
struct Folder(TempDir);

/// A certificate for this name that expires in this year, and its key.
fn pair(name: &str, until: i32) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
}

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().expect("a folder"));
        folder.put(&pair("one", 2100));
        folder
    }

    fn put(&self, (cert, key): &(String, String)) {
        self.write("cert.pem", cert);
        self.write("key.pem", key);
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).expect("write");
    }

    fn files(&self, client_ca: Option<&str>) -> FrontFiles {
        let path = |name: &str| self.0.path().join(name);
        FrontFiles { cert: path("cert.pem"), key: path("key.pem"), client_ca: client_ca.map(path) }
    }

    fn load(&self, client_ca: Option<&str>) -> Result<Front, Vec<FrontFault>> {
        Front::load(self.files(client_ca))
    }
}

fn year(year: u64) -> SystemTime {
    // Days of leap years do not matter here.
    UNIX_EPOCH + Duration::from_secs((year - 1970) * 31_556_952)
}

#[test]
fn h6_good_files_are_taken_and_never_shown() {
    let folder = Folder::new();
    let front = folder.load(None).expect("good");
    assert!(front == folder.load(None).expect("good"));
    assert!(front != folder.load(Some("cert.pem")).expect("an issuer"));
    assert!(!format!("{front:?}").contains("PRIVATE"));
    let (cert, key) = pair("both", 2100);
    folder.write("cert.pem", &format!("{key}{cert}"));
    folder.write("key.pem", &format!("{key}{cert}"));
    assert!(folder.load(None).is_ok(), "one file may hold both");
}

#[test]
fn h6_each_bad_file_is_a_fault_of_its_own() {
    let folder = Folder::new();
    let (cert, key) = pair("two", 2100);
    let fault = |client_ca: Option<&str>| -> Vec<FrontFault> { folder.load(client_ca).expect_err("a fault") };
    let is = |found: Vec<FrontFault>, file: FrontFile, rule: &str| {
        assert!(found.len() == 1 && found[0].0 == file && found[0].1.contains(rule), "{found:?}");
    };
    is(fault(Some("none")), FrontFile::ClientCa, "cannot be read: No such file");
    is(fault(Some("key.pem")), FrontFile::ClientCa, "at least one certificate");
    folder.write("key.pem", &key);
    is(fault(None), FrontFile::Key, "must be the private key of the certificate in cert");
    folder.write("key.pem", &cert);
    is(fault(None), FrontFile::Key, "with a private key that has no password");
    folder.write("key.pem", &key);
    folder.write("cert.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    is(fault(None), FrontFile::Cert, "must hold a certificate first");
    folder.write("cert.pem", "");
    folder.write("key.pem", "");
    let both: Vec<FrontFile> = fault(None).into_iter().map(|(file, _)| file).collect();
    assert_eq!(both, [FrontFile::Cert, FrontFile::Key]);
}

#[test]
fn h6_a_certificate_that_is_not_good_now_is_told_with_its_moment() {
    let folder = Folder::new();
    let front = folder.load(None).expect("good");
    let moment = |text| humantime::parse_rfc3339(text).expect("a moment");
    assert_eq!(front.good, (Some(moment("2000-01-01T00:00:00Z")), Some(moment("2100-01-01T00:00:00Z"))));
    assert_eq!(front.doubt(year(2026)), None);
    let told = |at| front.doubt(at).expect("a doubt");
    assert!(told(year(1999)).ends_with("is not valid before 2000-01-01T00:00:00Z"), "{}", told(year(1999)));
    assert!(told(year(2101)).ends_with("expired at 2100-01-01T00:00:00Z"), "{}", told(year(2101)));
    let until = front.good.1.expect("an end");
    assert!(told(until - Duration::from_secs(86_400)).ends_with("expires at 2100-01-01T00:00:00Z"));
    let (leaf, key) = pair("leaf", 2100);
    folder.put(&(leaf + &pair("between", 2050).0, key));
    let until = folder.load(None).expect("good").good.1.expect("an end");
    assert!(until < year(2051), "the first of the chain counts: {until:?}");
}

/// Waits until something is so; time is not real.
async fn until(mut is: impl FnMut() -> bool) {
    while !is() {
        tokio::time::sleep(LOOK).await;
    }
}

#[tokio::test(start_paused = true)]
async fn h6_files_that_change_are_taken_if_they_are_good() {
    let folder = Folder::new();
    let shown = Shown::new(folder.load(None).expect("good"));
    let first = shown.config();
    let clients = VERSIONS.map(|version| client(&folder, None, version));
    for client in &clients {
        assert_eq!(shake(client, shown.config()), Ok(HandshakeKind::Full));
    }
    let watch = tokio::spawn(Arc::clone(&shown).keep_fresh());

    let two = pair("two", 2100);
    folder.write("cert.pem", &two.0);
    until(|| shown.trouble().is_some()).await;
    let trouble = shown.trouble().expect("half of a change");
    assert!(trouble.contains("tls.key = ") && trouble.contains("must be the private key"), "{trouble}");
    assert!(trouble.starts_with("clients still get the old certificate (expires in "), "{trouble}");
    assert!(shown.is_pressing());
    assert!(Arc::ptr_eq(&first, &shown.config()));

    folder.put(&two);
    until(|| !Arc::ptr_eq(&first, &shown.config())).await;
    assert_eq!(shown.trouble(), None);
    let second = shown.config();
    for client in &clients {
        assert_eq!(shake(client, shown.config()), Ok(HandshakeKind::Resumed), "sessions go on");
    }

    folder.put(&pair("old", 2001));
    until(|| shown.trouble().is_some()).await;
    assert!(shown.trouble().expect("expired").contains("expired at 2001-01-01T00:00:00Z"));
    std::fs::remove_file(folder.0.path().join("cert.pem")).expect("removed");
    until(|| shown.trouble().is_some_and(|trouble| trouble.contains("cannot be read"))).await;
    assert!(Arc::ptr_eq(&second, &shown.config()));
    folder.put(&two);
    until(|| shown.trouble().is_none()).await;
    assert!(Arc::ptr_eq(&second, &shown.config()), "it is what is shown");
    watch.abort();
}

/// A client that trusts the certificate in `cert.pem`, shows this pair, and takes up sessions again.
fn client(
    folder: &Folder,
    shows: Option<&(String, String)>,
    version: &'static SupportedProtocolVersion,
) -> Arc<ClientConfig> {
    let cert = std::fs::read(folder.0.path().join("cert.pem")).expect("a certificate");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_root_certificates(pem::roots(&cert).expect("an issuer").0);
    Arc::new(match shows {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = pem::certificates(cert.as_bytes()).expect("a certificate");
            let key = pem::private_key(key.as_bytes()).expect("a key");
            builder.with_client_auth_cert(chain, key).expect("a pair")
        }
    })
}

/// Shakes hands, and lets the client have what tickets there are.
fn shake(client: &Arc<ClientConfig>, server: Arc<ServerConfig>) -> Result<HandshakeKind, Error> {
    let name = "one".try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::clone(client), name).expect("a client");
    let mut server = ServerConnection::new(server).expect("a server");
    while client.wants_write() || server.wants_write() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).expect("written");
        }
        server.read_tls(&mut bytes.as_slice()).expect("read");
        server.process_new_packets()?;
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).expect("written");
        }
        client.read_tls(&mut bytes.as_slice()).expect("read");
        client.process_new_packets()?;
    }
    Ok(server.handshake_kind().expect("whole"))
}

const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

#[test]
fn h6_a_session_goes_on_where_clients_need_no_certificate_and_only_there() {
    let folder = Folder::new();
    let shows = pair("client", 2100);
    folder.write("ca.pem", &shows.0);
    for version in VERSIONS {
        for (client_ca, second) in [(None, HandshakeKind::Resumed), (Some("ca.pem"), HandshakeKind::Full)] {
            let front = folder.load(client_ca).expect("good");
            let client = client(&folder, Some(&shows), version);
            for kind in [HandshakeKind::Full, second, second] {
                assert_eq!(shake(&client, Arc::clone(&front.config)), Ok(kind), "{version:?} {client_ca:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn h6_nobody_takes_up_a_session_of_when_other_clients_were_let_in() {
    let folder = Folder::new();
    let shows = pair("client", 2100);
    folder.write("ca.pem", &shows.0);
    let shown = Shown::new(folder.load(Some("ca.pem")).expect("good"));
    let first = shown.config();
    let clients = VERSIONS.map(|version| client(&folder, Some(&shows), version));
    for client in &clients {
        assert_eq!(shake(client, shown.config()), Ok(HandshakeKind::Full));
    }
    let watch = tokio::spawn(Arc::clone(&shown).keep_fresh());
    folder.write("ca.pem", &pair("another", 2100).0);
    until(|| !Arc::ptr_eq(&first, &shown.config())).await;
    for client in &clients {
        let refusal = shake(client, shown.config()).expect_err("nobody trusts it now");
        assert!(matches!(refusal, Error::InvalidCertificate(_)), "{refusal}");
    }
    watch.abort();
}
