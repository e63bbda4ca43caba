//! Ids of rules: each that a source or a document names is explained in `RULES.md`, once.

use std::collections::BTreeSet;

use super::tree::{assert_none, read, sources};

/// Documents that name rules, beside the sources.
const DOCUMENTS: &[&str] = &["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "docs/providers.md"];

/// The families of rules.
const FAMILIES: &str = "ABCEGHMQR";

/// The ids that `RULES.md` explains, in its order.
fn explained() -> Vec<String> {
    let lines = read("RULES.md");
    let ids = lines.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("** "));
    ids.map(|(id, _)| id.to_owned()).collect()
}

/// Whether a word is an id: a family and a small number, or `C-` and three digits.
fn is_id(word: &str) -> bool {
    let number = |text: &str, digits: &[usize]| {
        digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    match word.strip_prefix("C-") {
        Some(case) => number(case, &[3]),
        None => word.starts_with(|first| FAMILIES.contains(first)) && number(&word[1..], &[1]),
    }
}

/// The ids in a text: words of comments, strings and prose.
fn in_text(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && !"-_".contains(letter));
    // `Q1-Q3` and the like name both.
    let parts = words.flat_map(|word| if is_id(word) { vec![word] } else { word.split('-').collect() });
    parts.filter(|word| is_id(word)).map(str::to_owned)
}

/// The ids at the front of a test's name: `h4_c_062_…`, `a1_…`.
fn in_name(name: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut words = name.split('_').map(str::to_ascii_uppercase);
    while let Some(word) = words.next() {
        let id = match word.as_str() {
            "C" => format!("C-{}", words.next().unwrap_or_default()),
            case if case.len() == 4 && case.starts_with('C') => format!("C-{}", &case[1..]),
            _ => word,
        };
        if !is_id(&id) {
            break;
        }
        found.push(id);
    }
    found
}

#[test]
fn every_rule_that_is_named_is_explained() {
    let explained: BTreeSet<String> = explained().into_iter().collect();
    let mut complaints = Vec::new();
    for source in sources() {
        let names = source.functions().into_iter().flat_map(|function| in_name(&function.name));
        let named: BTreeSet<String> = in_text(&source.text).chain(names).collect();
        let missing = named.difference(&explained);
        complaints.extend(missing.map(|id| format!("{}: {id} is not in RULES.md", source.path)));
    }
    for document in DOCUMENTS {
        let named: BTreeSet<String> = in_text(&read(document)).collect();
        let missing = named.difference(&explained);
        complaints.extend(missing.map(|id| format!("{document}: {id} is not in RULES.md")));
    }
    assert_none(&complaints);
}

#[test]
fn every_rule_is_explained_once() {
    let explained = explained();
    assert!(explained.len() > 30, "{explained:?}");
    let mut complaints = Vec::new();
    for (at, id) in explained.iter().enumerate() {
        if !is_id(id) || explained[..at].contains(id) {
            complaints.push(format!("RULES.md: {id} is no id, or is there twice"));
        }
    }
    assert_none(&complaints);
}

#[test]
fn ids_are_found_in_prose_and_in_names() {
    let text = "proves (H4, C-062): Q1–Q3, not HTTP1 nor E402, but R5.";
    assert_eq!(in_text(text).collect::<Vec<_>>(), ["H4", "C-062", "Q1", "Q3", "R5"]);
    assert_eq!(in_name("h4_c_062_bodies_a1"), ["H4", "C-062"]);
    assert_eq!(in_name("c126_errors"), ["C-126"]);
    assert_eq!(in_name("a_port_is_shared"), Vec::<String>::new());
}
