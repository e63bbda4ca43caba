//! Reads what clients are shown where `listen` speaks TLS: the table `tls` at the top of the file.
//!
//! The files that it names are read here, so that a configuration that exists can be served. That a certificate has
//! expired is no fault of the file: whoever checks or serves it is warned.

use std::path::{Path, PathBuf};

use super::reader::{Found, Place, Table};
use super::value;
use crate::pem;
use crate::server::certificate::{Front, FrontFile, FrontFiles};

/// What the table says; `None` only where a fault has been recorded.
pub(super) fn read(mut table: Table<'_, '_>, base: &Path) -> Option<Front> {
    let cert = table.required("cert", value::path);
    let key = table.required("key", value::path);
    let client_ca = table.read("client_ca", value::path);
    let faults = table.faults();
    table.finish();
    let place = |file| -> Place {
        let found: Option<&Found<PathBuf>> = match file {
            FrontFile::Cert => cert.as_ref(),
            FrontFile::Key => key.as_ref(),
            FrontFile::ClientCa => client_ca.as_ref(),
        };
        found.map_or_else(Place::default, |found| found.place.clone())
    };
    let path = |found: &Found<PathBuf>| base.join(&found.value);
    let (Some(certificate), Some(private)) = (&cert, &key) else {
        // One is missing; whether the others are good is told nevertheless.
        let bad = [
            cert.as_ref().map(|found| (found, pem::fault(&path(found), pem::certificates))),
            key.as_ref().map(|found| (found, pem::fault(&path(found), pem::private_key))),
            client_ca.as_ref().map(|found| (found, pem::fault(&path(found), pem::roots))),
        ];
        for (found, rule) in bad.into_iter().flatten() {
            rule.into_iter().for_each(|rule| faults.add(&found.place, rule));
        }
        return None;
    };
    let files =
        FrontFiles { cert: path(certificate), key: path(private), client_ca: client_ca.as_ref().map(path) };
    let loaded = Front::load(files);
    loaded.map_err(|list| list.iter().for_each(|(file, rule)| faults.add(&place(*file), rule))).ok()
}

#[cfg(test)]
mod tests;
