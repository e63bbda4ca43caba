//! The places where a name may be written: clock, metrics, dispatcher, the names of metrics.

use std::collections::BTreeSet;

use tidegate_shared::names::metric;

use super::source::Source;
use super::tree::{assert_none, sources, sources_in};

/// In the gateway: what, the one module that may name it, why.
const RESERVED: &[(&[&str], &str, &str)] = &[
    (&["Instant::now", "SystemTime::now"], "clock", "only `clock` reads time"),
    (&[" metrics::", "(metrics::", "use metrics;"], "telemetry", "only `telemetry` names `metrics`"),
    (&["tidegate_gateway_core::dispatch"], "pool", "only `pool` names the dispatcher"),
];

/// Sources of the gateway that are no part of the serving path: module, reason.
const APART: &[(&str, &str)] = &[
    ("engine", "the stand-in engine is a program of its own, with a clock of its own"),
    ("cli", "commands that a person runs; they serve no request"),
    ("quickstart", "fetches and starts; serves no request"),
];

fn gateway() -> Vec<Source> {
    let mut found = sources_in("gateway/src");
    found.retain(|source| !source.is_test() && APART.iter().all(|(module, _)| source.module() != *module));
    found
}

#[test]
fn reserved_names_stay_in_their_modules() {
    let mut complaints = Vec::new();
    for source in gateway() {
        for (names, module, rule) in RESERVED.iter().filter(|(_, module, _)| source.module() != *module) {
            let lines = source.shipped().filter(|(_, code)| names.iter().any(|name| code.contains(name)));
            complaints.extend(lines.map(|(line, _)| format!("{}:{line}: {rule} ({module})", source.path)));
        }
    }
    assert_none(&complaints);
}

#[test]
fn metrics_are_named_in_one_table() {
    let table: BTreeSet<&str> = metric::ALL.iter().map(|metric| metric.name).collect();
    assert_eq!(table.len(), metric::ALL.len(), "a name is used twice");
    let mut complaints = Vec::new();
    for metric in metric::ALL {
        let counter = metric.kind == metric::Kind::Counter;
        if !metric.name.starts_with("tidegate_") || metric.name.ends_with("_total") != counter {
            complaints
                .push(format!("{}: `tidegate_` leads, and exactly counters end in `_total`", metric.name));
        }
    }
    for source in sources().iter().filter(|source| source.path != "shared/src/names.rs") {
        let shipped = source.text.lines().take(source.tests_at).enumerate();
        let written =
            shipped.filter(|(_, line)| table.iter().any(|name| line.contains(&format!("\"{name}"))));
        complaints.extend(written.map(|(at, _)| {
            format!("{}:{}: take the metric's name from `shared::names`", source.path, at + 1)
        }));
    }
    assert_none(&complaints);
}
