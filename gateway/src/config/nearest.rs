//! Finds the word that somebody most likely meant: one that other systems use for it, or a slip of the keys. Never
//! guesses far: no suggestion beats a misleading one.

/// What other systems call a setting, and what it is called here: a key of the same table, or one of a table in it.
const ELSEWHERE: [(&[&str], &[&str]); 19] = [
    (&["max_replicas", "max_instances", "max_scale", "maximum"], &["max"]),
    (&["min_replicas", "min_instances", "min_scale", "minimum"], &["min"]),
    (&["replicas", "replica_count", "num_replicas", "instances"], &["min", "max", "replica"]),
    (
        &["timeout", "request_timeout", "read_timeout", "proxy_read_timeout"],
        &[
            "first_byte",
            "between_bytes",
            "limits.first_byte",
            "queue.headroom",
            "queue.cold_start",
            "start_limit",
        ],
    ),
    (
        &["timeout", "max_wait", "wait", "wait_timeout", "queue_timeout", "max_queue_time"],
        &["headroom", "cold_start", "queue.headroom", "queue.cold_start"],
    ),
    (&["start_timeout", "startup_timeout", "load_timeout"], &["start_limit", "process.start_limit"]),
    (
        &["cooldown", "cooldown_period", "scale_down_delay", "stabilization_window", "idle_timeout"],
        &["window", "idle"],
    ),
    (&["drain_timeout", "grace_period", "termination_grace_period"], &["drain_limit", "limits.shutdown"]),
    (&["concurrency", "max_concurrency", "max_num_seqs"], &["target_concurrency", "concurrency_limit"]),
    (&["queue_size", "max_queue", "max_queue_size", "queue_length"], &["requests", "queue.requests"]),
    (&["url", "urls", "endpoints", "backends", "upstreams", "servers"], &["replica"]),
    (&["cmd", "args", "entrypoint"], &["command", "process.command"]),
    (&["image", "gpu", "gpus"], &["docker.image", "docker.gpus"]),
    (&["environment", "envs"], &["env"]),
    (&["bind", "host", "port", "address"], &["listen"]),
    (&["models", "model_list"], &["deployment"]),
    (&["max_body_size", "client_max_body_size", "body_limit"], &["body", "limits.body"]),
    (&["log_level", "access_log"], &["log.level", "log.access"]),
    (&["weight"], &["capacity"]),
];
/// Keys of tables that are easily written a level too high.
const INSIDE: [&str; 21] = [
    "limits.body",
    "limits.buffered",
    "limits.first_byte",
    "limits.between_bytes",
    "log.level",
    "log.access",
    "budget.replicas",
    "budget.credit",
    "tls.cert",
    "tls.key",
    "queue.requests",
    "queue.bytes",
    "queue.headroom",
    "queue.cold_start",
    "conversations.idle",
    "conversations.headers",
    "process.command",
    "process.env",
    "process.dir",
    "process.price",
    "process.start_limit",
];
/// Words that are offered at most.
const OFFERED: usize = 3;

/// The keys of `candidates`, or of tables among them, that `word` most likely stands for, best first; none where it is
/// nothing that is known.
pub(super) fn meant(word: &str, candidates: &[&str]) -> Vec<String> {
    let word = spelled(word);
    let there = |key: &&&str| candidates.contains(&key.split('.').next().unwrap_or(key));
    let known = ELSEWHERE.iter().filter(|(words, _)| words.contains(&&*word)).flat_map(|(_, keys)| *keys);
    let mut keys: Vec<String> = Vec::new();
    let inside = INSIDE.iter().filter(|key| key.split_once('.').is_some_and(|(_, last)| last == word));
    for key in inside.chain(known).filter(there).map(|key| (*key).to_owned()) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys.truncate(OFFERED);
    match keys.is_empty() {
        true => nearest(&word, candidates).map(str::to_owned).into_iter().collect(),
        false => keys,
    }
}

/// As settings are spelled here: `maxReplicas` and `max-replicas` are `max_replicas`.
fn spelled(word: &str) -> String {
    let mut text = String::new();
    let mut small = false;
    for letter in word.chars().take(LONGEST) {
        if letter.is_uppercase() && small {
            text.push('_');
        }
        small = letter.is_lowercase() || letter.is_ascii_digit();
        text.extend(if letter == '-' { '_' } else { letter }.to_lowercase());
    }
    text
}

/// The candidate nearest to `word`, if it is near enough to be a slip of the keys: at most one edit for each three
/// characters of `word`, and at least one is always forgiven. Among equals the first wins.
fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(LONGEST).collect();
    let allowed = (word.len() / 3).max(1);
    let distances = candidates.iter().map(|&c| (edits(&word, &c.chars().collect::<Vec<_>>()), c));
    distances.filter(|&(d, _)| d <= allowed).min_by_key(|&(d, _)| d).map(|(_, c)| c)
}

/// No key comes near this length, so longer words need no full comparison.
const LONGEST: usize = 64;

/// Insertions, removals, replacements and swaps of neighbours that turn `a` into `b`, each character touched once.
fn edits(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, &x) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, &y) in b.iter().enumerate() {
            let at = |row: &[usize], j: usize| row.get(j).copied().unwrap_or(usize::MAX - 1);
            let replaced = at(&row, j) + usize::from(x != y);
            let mut best = replaced.min(at(&row, j + 1) + 1).min(at(&next, j) + 1);
            let swapped = j > 0 && i > 0 && a.get(i - 1) == Some(&y) && b.get(j - 1) == Some(&x);
            if swapped {
                best = best.min(at(&before, j - 1) + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        let keys = ["name", "min", "max", "mode", "model", "concurrency_limit", "window"];
        for (word, meant) in [
            ("nmae", Some("name")),
            ("maxx", Some("max")),
            ("Max", Some("max")),
            ("concurency-limit", Some("concurrency_limit")),
            ("models", Some("model")),
            ("widnow", Some("window")),
            ("gpu", None),
            ("", None),
            ("temperature", None),
        ] {
            assert_eq!(super::meant(word, &keys), meant.into_iter().collect::<Vec<_>>(), "{word}");
        }
    }

    #[test]
    fn words_of_other_systems_are_known_where_they_make_sense() {
        let deployment =
            ["name", "min", "max", "window", "queue", "target_concurrency", "process", "replica"];
        for (word, meant) in [
            ("max_replicas", &["max"][..]),
            ("maxReplicas", &["max"]),
            ("min-replicas", &["min"]),
            ("replicas", &["min", "max", "replica"]),
            ("timeout", &["queue.headroom", "queue.cold_start"]),
            ("max_wait", &["queue.headroom", "queue.cold_start"]),
            ("cooldown", &["window"]),
            ("concurrency", &["target_concurrency"]),
            ("urls", &["replica"]),
            ("cmd", &["process.command"]),
            ("port", &[]),
            ("headroom", &["queue.headroom"]),
            ("cold-start", &["queue.cold_start"]),
            ("command", &["process.command"]),
        ] {
            assert_eq!(super::meant(word, &deployment), meant, "{word}");
        }
        assert_eq!(
            super::meant("timeout", &["body", "first_byte", "between_bytes"]),
            ["first_byte", "between_bytes"]
        );
        assert_eq!(super::meant("timeout", &["listen", "limits"]), ["limits.first_byte"]);
        assert_eq!(super::meant("max_wait", &["headroom", "cold_start"]), ["headroom", "cold_start"]);
    }

    #[test]
    fn what_is_offered_is_a_setting() {
        for key in ELSEWHERE.iter().flat_map(|(_, keys)| *keys).chain(&INSIDE) {
            let last = key.rsplit('.').next().unwrap_or(key);
            let written = [format!("{last} = "), format!(".{last}]")];
            let table = format!("[[{last}]]");
            let example = crate::config::Config::EXAMPLE;
            assert!(written.iter().chain([&table]).any(|text| example.contains(text)), "{key}");
        }
    }

    #[test]
    fn edits_are_counted_as_a_person_would() {
        let count = |a: &str, b: &str| edits(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>());
        assert_eq!(count("", "abc"), 3);
        assert_eq!(count("abc", ""), 3);
        assert_eq!(count("abc", "acb"), 1);
        assert_eq!(count("kitten", "sitting"), 3);
    }
}
