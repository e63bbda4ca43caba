//! What may be said about TLS to clients, and how faults read.

use super::super::tls::tests::folder;
use super::super::{Config, ConfigError};

/// A good file with this table.
fn parse(folder: &std::path::Path, table: &str) -> Result<Config, ConfigError> {
    let text = format!("{table}\n[[deployment]]\nname = \"m\"\nreplica = [{{ url = \"http://a\" }}]\n");
    Config::parse(&text, &folder.join("tidegate.toml"))
}

#[test]
fn h6_two_files_are_enough() {
    let folder = folder();
    let tls = |table| parse(folder.path(), table).expect(table).tls;
    assert!(tls("").is_none());
    assert!(tls("tls = { cert = \"ca.pem\", key = \"ca.key\" }").is_some());
    assert!(tls("tls = { cert = \"ca.pem\", key = \"ca.key\", client_ca = \"client.pem\" }").is_some());
}

#[test]
fn h6_faults_name_the_setting_its_value_and_the_rule() {
    let folder = folder();
    for (table, faults) in [
        ("cert = \"ca.pem\"", &["tls.key: is missing"][..]),
        ("key = \"ca.key\"", &["tls.cert: is missing"]),
        ("", &["tls.cert: is missing", "tls.key: is missing"]),
        ("cert = \"none\"", &["tls.key: is missing", "tls.cert = \"none\": cannot be read: No such file"]),
        ("key = \"ca.pem\"", &["tls.cert: is missing", "tls.key = \"ca.pem\": must be a file in PEM with a"]),
        (
            "cert = \"none\", key = \"ca.pem\"",
            &[
                "tls.cert = \"none\": cannot be read: No such file",
                "tls.key = \"ca.pem\": must be a file in PEM with a",
            ],
        ),
        (
            "cert = \"ca.pem\", key = \"client.key\"",
            &["tls.key = \"client.key\": must be the private key of the certificate in cert"],
        ),
        (
            "cert = \"ca.pem\", key = \"ca.key\", client_ca = \"ca.key\"",
            &["tls.client_ca = \"ca.key\": must be a file in PEM with at least one certificate"],
        ),
        (
            "cert = \"ca.pem\", key = \"ca.key\", port = 1",
            &["tls.port: is not a setting; there are cert, key, client_ca"],
        ),
    ] {
        let error = parse(folder.path(), &format!("tls = {{ {table} }}")).expect_err(table);
        let found: Vec<String> = error.problems().iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), faults.len(), "{table}: {found:?}");
        for (found, fault) in found.iter().zip(faults) {
            assert!(found.starts_with(&format!("line 1: {fault}")), "{table}: {found}");
        }
    }
}

#[test]
fn a_size_can_be_changed_while_a_certificate_is_replaced() {
    let folder = folder();
    let table = "tls = { cert = \"ca.pem\", key = \"ca.key\" }\n\
        [[deployment]]\nname = \"p\"\nprocess.command = [\"e\", \"{port}\"]";
    let config = parse(folder.path(), table).expect("good");
    std::fs::remove_file(folder.path().join("ca.pem")).expect("removed");
    let set = [("max", "7".to_owned())].into();
    let resized = config.resized(&config.deployments[0].name, &set).expect("no fault of the size's");
    assert_eq!(resized.sizing.max, 7);
}
