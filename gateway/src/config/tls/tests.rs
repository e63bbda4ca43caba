//! What may be said about connections to replicas, and how faults in files read.

use std::path::Path;

use super::super::{Config, ConfigError};

/// A folder with certificates and their keys, under all names that tests and the example use.
pub(in crate::config) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
    for name in ["ca", "client"] {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        let cert = params.self_signed(&key).unwrap();
        write(&format!("{name}.pem"), cert.pem());
        write(&format!("{name}.key"), key.serialize_pem());
        if name == "ca" {
            write("fullchain.pem", cert.pem());
            write("clients.pem", cert.pem());
            write("privkey.pem", key.serialize_pem());
        }
    }
    folder
}

/// A static fleet at `urls`, with `settings` from line 3 on.
fn parse(folder: &Path, settings: &str, urls: &[&str]) -> Result<Config, ConfigError> {
    let replicas: String =
        urls.iter().map(|url| format!("[[deployment.replica]]\nurl = \"{url}\"\n")).collect();
    let text = format!("[[deployment]]\nname = \"m\"\n{settings}\n{replicas}");
    Config::parse(&text, &folder.join("tidegate.toml"))
}

const CLEAR: &str = "http://127.0.0.1:1";
const SECURED: &str = "https://127.0.0.1:2";

#[test]
fn replicas_in_tls_need_no_setting() {
    let folder = folder();
    let one = |settings, urls: &[&str]| parse(folder.path(), settings, urls).unwrap().deployments.remove(0);
    assert!(one("", &[CLEAR, SECURED]).tls.is_some());
    assert!(one("", &[CLEAR]).tls.is_none());
    assert!(one("tls = { ca = \"ca.pem\", server_name = \"engine.internal\" }", &[SECURED]).tls.is_some());
    assert!(one("tls = { cert = \"ca.pem\", key = \"ca.key\" }", &[SECURED]).tls.is_some());
    assert!(one("http2 = true", &[CLEAR, SECURED]).http2);
    assert!(!one("", &[CLEAR, SECURED]).http2);
}

#[test]
fn faults_name_the_setting_its_value_and_the_rule() {
    let folder = folder();
    for (settings, urls, fault) in [
        ("tls = { ca = \"none\" }", [SECURED], "tls.ca = \"none\": cannot be read: No such file"),
        (
            "tls = { ca = \"ca.key\" }",
            [SECURED],
            "tls.ca = \"ca.key\": must be a file in PEM with at least one",
        ),
        (
            "tls = { cert = \"ca.pem\", key = \"client.key\" }",
            [SECURED],
            "tls.key = \"client.key\": must be the private key of cert",
        ),
        ("tls = { cert = \"ca.pem\" }", [SECURED], "tls.cert = \"ca.pem\": must stand beside key"),
        ("tls = { key = \"ca.key\" }", [SECURED], "tls.key = \"ca.key\": must stand beside cert"),
        (
            "tls = { server_name = \"a b\" }",
            [SECURED],
            "tls.server_name = \"a b\": must be the name of a host",
        ),
        ("tls = { verify = false }", [SECURED], "tls.verify: is not a setting; there are ca, cert, key"),
        (
            "tls = { ca = \"ca.pem\" }",
            [CLEAR],
            "tls: must be given with replicas whose URL begins with https://",
        ),
        ("http2 = true", [SECURED], "http2 = true: must not be given for https:// replicas"),
    ] {
        let error = parse(folder.path(), settings, &urls).expect_err(settings);
        let found: Vec<String> = error.problems().iter().map(ToString::to_string).collect();
        let wanted = format!("line 3: deployment m: {fault}");
        assert!(found.len() == 1 && found[0].starts_with(&wanted), "{settings}: {found:?}");
    }
}
