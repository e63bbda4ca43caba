//! A page of Prometheus metrics as a map. Reads the text format; judges nothing.

use std::collections::BTreeMap;

/// The samples of one page.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

impl Metrics {
    /// Reads a page. Lines that are no samples are skipped.
    pub fn parse(page: &str) -> Self {
        Self { samples: page.lines().filter_map(sample).collect() }
    }

    /// The sum of a metric over all series that carry these labels; `None` when there is no such series.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let fits = |have: &BTreeMap<String, String>| {
            labels.iter().all(|(key, value)| have.get(*key).is_some_and(|found| found == value))
        };
        let mut found = self.samples.iter().filter(|(have, map, _)| have == name && fits(map)).peekable();
        found.peek()?;
        Some(found.map(|(_, _, value)| value).sum())
    }

    /// The same, 0 when there is no such series.
    pub fn total(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.sum(name, labels).unwrap_or(0.0)
    }

    /// The names on the page, without repetition.
    pub fn names(&self) -> std::collections::BTreeSet<&str> {
        self.samples.iter().map(|(name, _, _)| name.as_str()).collect()
    }
}

fn sample(line: &str) -> Option<(String, BTreeMap<String, String>, f64)> {
    if line.starts_with('#') {
        return None;
    }
    let (series, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let labels = labels.strip_suffix('}').unwrap_or(labels);
    Some((name.to_owned(), label_pairs(labels), value))
}

/// `a="1",b="x, \"y\""` as pairs.
fn label_pairs(mut text: &str) -> BTreeMap<String, String> {
    let mut pairs = BTreeMap::new();
    while let Some((key, rest)) = text.split_once("=\"") {
        let mut value = String::new();
        let mut letters = rest.char_indices();
        let mut end = rest.len();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    end = at + 1;
                    break;
                }
                '\\' => value.extend(letters.next().map(|(_, next)| if next == 'n' { '\n' } else { next })),
                other => value.push(other),
            }
        }
        pairs.insert(key.trim_start_matches(',').to_owned(), value);
        text = &rest[end..];
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_over_the_series_that_carry_the_labels() {
        let page =
            "# TYPE a gauge\na{d=\"x\",r=\"1\"} 2\na{d=\"x\",r=\"2\"} 3\na{d=\"y, \\\"z\\\"\"} 4\nb 1.5\n";
        let metrics = Metrics::parse(page);
        assert_eq!(metrics.sum("a", &[("d", "x")]), Some(5.0));
        assert_eq!(metrics.sum("a", &[("d", "y, \"z\"")]), Some(4.0));
        assert_eq!(metrics.sum("a", &[]), Some(9.0));
        assert_eq!(metrics.sum("b", &[]), Some(1.5));
        assert_eq!(metrics.sum("a", &[("d", "nothing")]), None);
        assert_eq!(metrics.names().into_iter().collect::<Vec<_>>(), ["a", "b"]);
    }
}
