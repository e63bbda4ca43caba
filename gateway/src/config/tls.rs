//! Reads how the replicas of one deployment are connected to: `http2`, and the table `tls`.
//!
//! The files that `tls` names are read here, so that a configuration that exists can be used; not while the gateway runs,
//! which goes on with what it has loaded. Whether a replica accepts what they hold is for its probe.

use std::path::{Path, PathBuf};

use super::reader::{Found, Place, Table};
use super::{Source, value};
use crate::pem;
use crate::upstream::tls::{Tls, TlsFile, TlsFiles};

/// The settings of one deployment whose replicas come from `source`, which is `None` where a fault has been recorded.
pub(super) fn read(table: &mut Table<'_, '_>, base: &Path, source: Option<&Source>) -> (bool, Option<Tls>) {
    let urls: Vec<bool> = match source {
        Some(Source::Static(replicas)) => replicas.iter().map(|replica| replica.url.is_https()).collect(),
        Some(_) | None => vec![false],
    };
    let http2 = table.read("http2", value::boolean);
    if let Some(found) = http2.as_ref().filter(|found| found.value && !urls.contains(&false)) {
        table.faults().add(&found.place, "must not be given for https:// replicas: there it is negotiated");
    }
    let given = table.given("tls").filter(|_| source.is_some() && !urls.contains(&true));
    if let Some(place) = given {
        table.faults().add(&place, "must be given with replicas whose URL begins with https://");
    }
    let secured = urls.contains(&true);
    let tls = match table.table("tls") {
        Some(inner) => self::tls(inner, base),
        None if secured && !table.faults().is_running() => Tls::load(TlsFiles::default()).ok(),
        None => None,
    };
    (http2.is_some_and(|found| found.value), tls)
}

/// The table `tls`; `None` only where a fault has been recorded.
fn tls(mut table: Table<'_, '_>, base: &Path) -> Option<Tls> {
    let mut file = |key| {
        let found = table.read(key, value::path)?;
        Some(Found { value: base.join(found.value), place: found.place })
    };
    let (ca, cert, key) = (file("ca"), file("cert"), file("key"));
    let server_name = table.read("server_name", value::server_name).map(|found| found.value);
    let faults = table.faults();
    for (one, other, missing) in [(&cert, &key, "key"), (&key, &cert, "cert")] {
        if let (Some(found), None) = (one, other) {
            faults
                .add(&found.place, format!("must stand beside {missing}: a certificate and its private key"));
        }
    }
    table.finish();
    if faults.is_running() {
        return None;
    }
    if let (Some(cert), None) = (&cert, &key)
        && let Some(rule) = pem::fault(&cert.value, pem::certificates)
    {
        faults.add(&cert.place, rule);
    }
    if let (None, Some(key)) = (&cert, &key)
        && let Some(rule) = pem::fault(&key.value, pem::private_key)
    {
        faults.add(&key.place, rule);
    }
    let place = |file| -> Place {
        let found: Option<&Found<PathBuf>> = match file {
            TlsFile::Ca => ca.as_ref(),
            TlsFile::Cert => cert.as_ref(),
            TlsFile::Key => key.as_ref(),
        };
        found.map_or_else(Place::default, |found| found.place.clone())
    };
    let path = |found: &Option<Found<PathBuf>>| found.as_ref().map(|found| found.value.clone());
    let files = TlsFiles { ca: path(&ca), client: path(&cert).zip(path(&key)), server_name };
    let loaded = Tls::load(files);
    loaded.map_err(|list| list.iter().for_each(|(file, rule)| faults.add(&place(*file), rule))).ok()
}

#[cfg(test)]
pub(super) mod tests;
