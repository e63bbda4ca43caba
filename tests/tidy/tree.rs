//! Finds the files of the workspace and collects complaints about them. Knows no rule.

use std::fs;
use std::path::{Path, PathBuf};

use super::source::Source;

/// The crates of the workspace: folder and package name.
pub(crate) const CRATES: &[(&str, &str)] = &[
    ("shared", "tidegate-shared"),
    ("gateway", "tidegate"),
    ("gateway/core", "tidegate-gateway-core"),
    ("scaler", "tidegate-scaler"),
    ("scaler/core", "tidegate-scaler-core"),
    ("scaler/sim", "tidegate-sim"),
    ("tests", "tidegate-tests"),
    ("benches", "tidegate-benches"),
];

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// A file's text, by its path from the root.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every Rust source of the workspace, by path from the root.
pub(crate) fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    walk(&root(), &mut found);
    assert!(found.len() > 20, "the tree was not found: {found:?}");
    found.sort();
    found.iter().map(|path| Source::new(path, &read(path))).collect()
}

/// The sources below a folder, such as `gateway/core/src`.
pub(crate) fn sources_in(folder: &str) -> Vec<Source> {
    let prefix = format!("{folder}/");
    sources().into_iter().filter(|source| source.path.starts_with(&prefix)).collect()
}

fn walk(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with('.') || ["target", "node_modules", "venv"].contains(&name) {
            continue;
        }
        if path.is_dir() {
            walk(&path, found);
        } else if name.ends_with(".rs") {
            let inside = path.strip_prefix(root()).expect("inside the workspace");
            found.push(inside.to_str().expect("a plain path").to_owned());
        }
    }
}

/// Panics with every complaint, if there is one.
#[track_caller]
pub(crate) fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}
