//! Who may import whom: between crates by their manifests, inside the cores by their sources.

use std::collections::BTreeSet;

use super::tree::{CRATES, assert_none, read, sources_in};

/// For each crate, the crates of the workspace that it may use.
const MAY_USE: &[(&str, &[&str])] = &[
    ("tidegate-shared", &[]),
    ("tidegate-gateway-core", &["tidegate-shared"]),
    ("tidegate-scaler-core", &["tidegate-shared"]),
    ("tidegate-sim", &["tidegate-shared", "tidegate-gateway-core", "tidegate-scaler-core"]),
    ("tidegate-scaler", &["tidegate-shared", "tidegate-scaler-core"]),
    (
        "tidegate",
        &[
            "tidegate-shared",
            "tidegate-gateway-core",
            "tidegate-scaler-core",
            "tidegate-scaler",
            "tidegate-sim",
        ],
    ),
];

/// Crates that decide: nothing but vocabulary and plain data structures.
const PURE: &[(&str, &[&str])] = &[
    ("tidegate-shared", &["serde", "thiserror"]),
    ("tidegate-gateway-core", &["serde", "thiserror", "hashbrown", "smallvec"]),
    ("tidegate-scaler-core", &["serde", "thiserror", "hashbrown", "smallvec"]),
    ("tidegate-sim", &["serde", "thiserror", "hashbrown", "smallvec"]),
];

/// The state machines: the only modules of the cores that see their siblings.
const MACHINES: &[(&str, &str)] = &[("gateway/core/src", "dispatch"), ("scaler/core/src", "planner")];

/// What the cores must not name; the lints of their `clippy.toml` hold the same for clocks and unordered maps.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::thread",
    "std::process",
    "std::env",
    "std::io",
    "Mutex",
    "RwLock",
    "Atomic",
];

fn dependencies(package: &str) -> BTreeSet<String> {
    let (folder, _) = CRATES.iter().find(|(_, name)| *name == package).expect("a crate of the workspace");
    let manifest: toml::Table = read(&format!("{folder}/Cargo.toml")).parse().expect("TOML");
    let mut found = BTreeSet::new();
    for section in ["dependencies", "build-dependencies"] {
        found.extend(
            manifest.get(section).and_then(|t| t.as_table()).into_iter().flat_map(|t| t.keys().cloned()),
        );
    }
    found
}

#[test]
fn crates_use_only_those_below_them() {
    let mut complaints = Vec::new();
    for (package, allowed) in MAY_USE {
        let ours = dependencies(package).into_iter().filter(|name| name.starts_with("tidegate"));
        let wrong = ours.filter(|name| !allowed.contains(&name.as_str()));
        complaints.extend(wrong.map(|name| format!("{package} must not use {name}")));
    }
    assert_none(&complaints);
}

#[test]
fn crates_that_decide_use_no_driver() {
    let mut complaints = Vec::new();
    for (package, allowed) in PURE {
        let foreign = dependencies(package).into_iter().filter(|name| !name.starts_with("tidegate"));
        let wrong = foreign.filter(|name| !allowed.contains(&name.as_str()));
        complaints.extend(wrong.map(|name| format!("{package} decides; it must not use {name}")));
    }
    assert_none(&complaints);
}

#[test]
fn cores_name_no_clock_no_io_no_lock() {
    let mut complaints = Vec::new();
    for (folder, _) in MACHINES {
        for source in sources_in(folder) {
            for (line, code) in source.shipped() {
                let found = IMPURE.iter().filter(|name| code.contains(**name));
                complaints.extend(found.map(|name| format!("{}:{line}: a core names {name}", source.path)));
            }
        }
    }
    assert_none(&complaints);
}

#[test]
fn inside_a_core_only_the_machine_imports_its_siblings() {
    // Settings are read by all.
    let open = ["config"];
    let mut complaints = Vec::new();
    for (folder, machine) in MACHINES {
        for source in sources_in(folder).iter().filter(|source| !source.is_test()) {
            let own = source.module();
            if own == *machine || own == "lib" {
                continue;
            }
            for (line, code) in source.shipped() {
                let siblings = siblings(code);
                let wrong = siblings.iter().filter(|name| *name != own && !open.contains(&name.as_str()));
                complaints.extend(wrong.map(|name| {
                    format!(
                        "{}:{line}: only `{machine}` sees its siblings, not `{own}` `{name}`",
                        source.path
                    )
                }));
            }
        }
    }
    assert_none(&complaints);
}

/// The modules that follow `crate::` in this line, also in a list of braces.
fn siblings(code: &str) -> Vec<String> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, word) in code.match_indices("crate::") {
        let rest = &code[at + word.len()..];
        let list = rest.strip_prefix('{').and_then(|list| list.split('}').next());
        let names = list.map_or(vec![rest], |list| list.split(',').collect());
        found.extend(names.iter().map(|name| {
            let name = name.trim();
            name[..name.find(|c| !is_name(c)).unwrap_or(name.len())].to_owned()
        }));
    }
    found.retain(|name| name.chars().next().is_some_and(char::is_lowercase));
    found
}

#[test]
fn siblings_are_found() {
    assert_eq!(siblings("use crate::route::{Route};"), ["route"]);
    assert_eq!(siblings("use crate::{queue::Line, ledger};"), ["queue", "ledger"]);
    assert_eq!(siblings("pub(crate) fn x() -> crate::admit::Y {"), ["admit"]);
    assert!(siblings("use crate::Error;").is_empty());
}
