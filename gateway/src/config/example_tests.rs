//! The shipped example says what the defaults are, so it is held to them: every key is there, and none of them
//! changes anything.

use std::collections::BTreeSet;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::Config;
use super::tls::tests::folder;

const EXAMPLE: &str = Config::EXAMPLE;

fn parse(text: &str) -> Config {
    Config::parse(text, Path::new("/etc/tidegate.toml")).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn the_example_equals_the_defaults() {
    let command = EXAMPLE.lines().find(|line| line.starts_with("command")).expect("command");
    let least = format!("[[deployment]]\nname = \"chat\"\n[deployment.process]\n{command}\n");
    assert_eq!(parse(EXAMPLE), parse(&least));
}

#[test]
fn each_line_of_the_example_is_a_default() {
    let whole = parse(EXAMPLE);
    let lines: Vec<&str> = EXAMPLE.lines().collect();
    let optional = |line: &str| line.contains(" = ") && !line.starts_with(['#', '[']);
    let mut tried = 0;
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| optional(line)) {
        if line.starts_with("name = ") || line.starts_with("command = ") {
            continue;
        }
        let without: Vec<&str> =
            lines.iter().enumerate().filter(|(i, _)| *i != number).map(|(_, l)| *l).collect();
        assert_eq!(parse(&without.join("\n")), whole, "without: {line}");
        tried += 1;
    }
    assert_eq!(tried, 41);
}

#[test]
fn what_is_commented_out_of_the_example_is_good_too() {
    let folder = folder();
    let config = Config::parse(&uncommented(), &folder.path().join("tidegate.toml"));
    let config = config.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.state_dir, folder.path().join("state"));
    assert_eq!(config.deployments.len(), 5);
}

#[test]
fn the_example_holds_every_setting() {
    let text = uncommented();
    let root = DeTable::parse(&text).expect("TOML");
    let mut shown = BTreeSet::new();
    keys("", &DeValue::Table(root.into_inner()), &mut shown);

    let folder = folder();
    let tables = [
        "",
        "[tls]",
        "[limits]",
        "[log]",
        "[budget]",
        "[[deployment]]",
        "[deployment.queue]",
        "[deployment.conversations]",
        "[deployment.process]",
        "[deployment.docker]",
        "[deployment.exec]",
        "[deployment.tls]",
        "[[deployment.replica]]",
        "[deployment.slurm]",
        "[[deployment.slurm.offer]]",
    ];
    for table in tables {
        let stray = if table.is_empty() {
            format!("zzzzzz = 1\n{text}")
        } else {
            text.replacen(&format!("{table}\n"), &format!("{table}\nzzzzzz = 1\n"), 1)
        };
        let error = Config::parse(&stray, &folder.path().join("tidegate.toml")).expect_err("a stray key");
        let rule = error.problems()[0].rule.clone();
        let known = rule.split_once("there are ").expect("the list of settings").1;
        let prefix = table.trim_matches(['[', ']']);
        for key in known.split(", ") {
            let path = if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
            assert!(shown.contains(&path), "{path} is not in the example");
        }
    }
}

/// The example with its commented settings made live.
fn uncommented() -> String {
    let live = |line: &str| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    EXAMPLE.lines().map(live).collect()
}

fn keys(prefix: &str, value: &DeValue<'_>, found: &mut BTreeSet<String>) {
    match value {
        DeValue::Table(table) => {
            for (name, inner) in table {
                let name = name.get_ref();
                let path = if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
                found.insert(path.clone());
                keys(&path, inner.get_ref(), found);
            }
        }
        DeValue::Array(array) => array.iter().for_each(|inner| keys(prefix, inner.get_ref(), found)),
        _ => {}
    }
}
