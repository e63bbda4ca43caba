//! Finds the word that somebody most likely meant. Never guesses far: no suggestion beats a misleading one.

/// The candidate nearest to `word`, if it is near enough to be a slip of the keys: at most one edit for each three
/// characters of `word`, and at least one is always forgiven. Among equals the first wins.
pub(super) fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let word: Vec<char> = word.to_lowercase().replace('-', "_").chars().take(LONGEST).collect();
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
            assert_eq!(nearest(word, &keys), meant, "{word}");
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
