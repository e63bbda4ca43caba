//! Reads Prometheus' text format just well enough for a few figures of a page that may be anything: HTML, garbage, a
//! page that was cut. What is no sample is skipped; a value that is no number is NaN. Judges no value.
//!
//! Own code, because the crates for it bring a calendar and regular expressions and keep every sample of the page.

/// Most samples that are kept of one page.
const MOST_SAMPLES: usize = 10_000;

/// One line of a page: a name, its labels, a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample<'a> {
    /// The name after the family and the `:` or `_` that follows it.
    pub(super) name: &'a str,
    labels: &'a str,
    /// NaN where it is no number.
    pub(super) value: f64,
}

impl<'a> Sample<'a> {
    /// The value of a label, as it is written (escapes stay).
    pub(super) fn label(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.labels;
        loop {
            let (key, after) = rest.split_once("=\"")?;
            let end = closing_quote(after)?;
            if key.trim_start_matches([',', ' ']) == name {
                return after.get(..end);
            }
            rest = after.get(end + 1..)?;
        }
    }
}

/// The samples of a page whose name begins with `family`, without the buckets of histograms, in order of the page; at
/// most 10,000.
pub(super) fn samples<'a>(page: &'a [u8], family: &str) -> Vec<Sample<'a>> {
    // A line without its end was cut, perhaps in the middle of its number.
    let whole = memchr::memrchr(b'\n', page).and_then(|end| page.get(..end)).unwrap_or_default();
    let lines = whole.split(|byte| *byte == b'\n').filter(|line| line.starts_with(family.as_bytes()));
    let samples = lines.filter_map(|line| sample(std::str::from_utf8(line).ok()?, family));
    samples.filter(|sample| !sample.name.ends_with("_bucket")).take(MOST_SAMPLES).collect()
}

/// Whether the page has a sample at all, of whatever family.
pub(super) fn is_page(page: &[u8]) -> bool {
    page.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok()).any(|line| {
        let name = line.split([' ', '{', '\t']).next().unwrap_or_default();
        is_name(name) && sample(line, "").is_some_and(|sample| !sample.value.is_nan())
    })
}

fn is_name(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
    text.bytes().next().is_some_and(|first| !first.is_ascii_digit()) && text.bytes().all(letter)
}

fn sample<'a>(line: &'a str, family: &str) -> Option<Sample<'a>> {
    let line = line.strip_prefix(family)?;
    let line = if family.is_empty() { line } else { line.strip_prefix([':', '_'])? };
    let name_ends = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at_checked(name_ends)?;
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => {
            let end = closing_brace(rest)?;
            (rest.get(..end)?, rest.get(end + 1..)?)
        }
        None => ("", rest),
    };
    // After the value there may be a time. Where there is none at all, that is no number either.
    let value = rest.split_ascii_whitespace().next().unwrap_or_default();
    Some(Sample { name, labels, value: value.parse().unwrap_or(f64::NAN) })
}

/// Where the first `}` is that is in no quotes.
fn closing_brace(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = text.get(at..)?;
        let next = rest.find(['"', '}'])?;
        if rest.as_bytes().get(next) == Some(&b'}') {
            return Some(at + next);
        }
        let inside = at + next + 1;
        at = inside + closing_quote(text.get(inside..)?)? + 1;
    }
}

/// Where the first `"` is that no `\` escapes.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Sample<'_> {
        let found = samples(line.as_bytes(), "vllm");
        assert_eq!(found.len(), 1, "{line:?}");
        found[0]
    }

    #[test]
    fn samples_have_a_name_labels_and_a_value() {
        let plain = one("vllm:num 4\n");
        assert_eq!((plain.name, plain.value, plain.label("engine")), ("num", 4.0, None));
        let full = one("vllm_num{a=\"x, } \\\" y\", engine=\"1\",} 1e3 1700000000000\r\n");
        assert_eq!((full.name, full.value), ("num", 1000.0));
        assert_eq!(
            (full.label("a"), full.label("engine"), full.label("b")),
            (Some("x, } \\\" y"), Some("1"), None)
        );
        assert_eq!(one("vllm:n{} +Inf\n").value, f64::INFINITY);
        assert!(one("vllm:n NaN\n").value.is_nan());
        assert!(one("vllm:n <b>4</b>\n").value.is_nan());
        assert!(one("vllm:n{engine=\"0\"} \n").value.is_nan() && one("vllm:n \n").value.is_nan());
    }

    #[test]
    fn what_is_no_sample_is_skipped() {
        for page in [
            "",
            "\n\n",
            "<html>vllm:n 4</html>\n",
            "# TYPE vllm:n gauge\n",
            "vllm:n\n",
            "vllm:n{engine=\"0\" 4\n",
            "vllm:n{engine=\"0} 4\n",
            "vllmish 4\n",
            "vllm:n_bucket{le=\"1\"} 4\n",
            "other:n 4\n",
        ] {
            assert_eq!(samples(page.as_bytes(), "vllm"), [], "{page:?}");
        }
        assert_eq!(samples(b"vllm:n \xff\nvllm:m 1\n", "vllm").len(), 1);
    }

    #[test]
    fn a_line_that_was_cut_does_not_count() {
        assert_eq!(samples(b"vllm:n 1\nvllm:m 12", "vllm").len(), 1);
        assert_eq!(samples(b"vllm:n 12", "vllm"), []);
    }

    #[test]
    fn huge_pages_are_bounded() {
        assert_eq!(samples("vllm:n 1\n".repeat(20_000).as_bytes(), "vllm").len(), MOST_SAMPLES);
        let mut long = b"vllm:n{a=\"".to_vec();
        long.resize(4 << 20, b'\\');
        assert_eq!(samples(&long, "vllm"), []);
    }

    #[test]
    fn a_page_is_told_from_what_is_none() {
        assert!(is_page(b"# HELP a b\na{x=\"1\"} 2\n"));
        for other in ["", "<!doctype html>\n<p class=\"a\"> 1\n", "not found", "[]", "{\"a\": 1}", "404 1\n"]
        {
            assert!(!is_page(other.as_bytes()), "{other:?}");
        }
    }
}
