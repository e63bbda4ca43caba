//! Requests to measure with: each prompt begins differently, so that no cache of beginnings flatters the engine, and prompts
//! and answers are a mix around their means, so that requests do not march in step. Knows no engine's tokenizer: how many
//! tokens a word makes is told by the engine's own count.

use serde_json::{Value, json};
use tidegate_scaler_core::tune::drift::Workload;
use tidegate_shared::rng::Rng;

use crate::probe::dialect::Dialect;

/// Percent of the mean, one after the other, of a prompt and of its answer; their mean is 100, over each five requests. Both are
/// longer or shorter together, so that each brings its tokens in its share of the time, whichever of them a step meets.
const MIX: [u64; 5] = [100, 50, 150, 75, 125];

/// Common words, most of which are one token to most tokenizers.
const WORDS: [&str; 64] = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
    "father",
    "power",
    "hour",
    "game",
    "line",
    "end",
    "member",
    "law",
];

/// Makes requests.
#[derive(Debug)]
pub(super) struct Prompts {
    model: String,
    workload: Workload,
    /// It takes answers of a fixed length.
    fixed: bool,
    scale: Scale,
    rng: Rng,
    made: usize,
}

/// Tokens of a prompt by its words: what the engine adds to each, and thousandths of a token for each word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scale {
    more: u64,
    per_word: u64,
}

impl Scale {
    /// From two prompts, told as words and tokens; the second is the longer one.
    fn of(short: (u64, u64), long: (u64, u64)) -> Self {
        let words = long.0.saturating_sub(short.0).max(1);
        let per_word = (long.1.saturating_sub(short.1) * 1000 / words).max(250);
        Self { more: short.1.saturating_sub(short.0 * per_word / 1000), per_word }
    }

    fn words(self, tokens: u64) -> u64 {
        (tokens.saturating_sub(self.more) * 1000 / self.per_word).max(1)
    }
}

impl Prompts {
    /// For an engine that knows its model as `model` and speaks `dialect`; `seed` makes the prompts differ from those of
    /// another run.
    pub(super) fn new(model: &str, dialect: Dialect, workload: Workload, seed: u64) -> Self {
        let fixed = matches!(dialect, Dialect::Vllm | Dialect::Sglang | Dialect::LlamaCpp);
        let scale = Scale { more: 0, per_word: 1000 };
        Self { model: model.to_owned(), workload, fixed, scale, rng: Rng::new(seed), made: 0 }
    }

    /// Words of the two prompts by which tokens are counted.
    pub(super) fn probes(&self) -> [u64; 2] {
        [8, self.workload.prompt_tokens.clamp(16, 4096)]
    }

    /// What the engine made of them.
    pub(super) fn learn(&mut self, short: (u64, u64), long: (u64, u64)) {
        self.scale = Scale::of(short, long);
    }

    /// The next request of the mix.
    pub(super) fn next(&mut self) -> Value {
        let part = MIX.get(self.made % MIX.len()).copied().unwrap_or(100);
        self.made += 1;
        let words = self.scale.words(self.workload.prompt_tokens * part / 100);
        self.request(words, (self.workload.output_tokens * part / 100).max(2))
    }

    /// A request of so many words, that asks for so many tokens.
    pub(super) fn request(&mut self, words: u64, output: u64) -> Value {
        let mut text = String::new();
        for _ in 0..words {
            text.push_str(WORDS.get(self.rng.below(WORDS.len())).unwrap_or(&"word"));
            text.push(' ');
        }
        let mut body = json!({
            "model": self.model,
            "messages": [{"role": "user", "content": text.trim_end()}],
            "max_tokens": output,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        if let (true, Some(body)) = (self.fixed, body.as_object_mut()) {
            body.insert("ignore_eos".to_owned(), Value::Bool(true));
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompts(dialect: Dialect) -> Prompts {
        Prompts::new("m", dialect, Workload { prompt_tokens: 200, output_tokens: 40 }, 1)
    }

    fn text(body: &Value) -> &str {
        body["messages"][0]["content"].as_str().expect("text")
    }

    #[test]
    fn a1_no_two_prompts_begin_alike_and_their_means_are_what_was_asked() {
        let mut prompts = prompts(Dialect::Vllm);
        // 30 tokens of the chat's own, two tokens for three words.
        prompts.learn((9, 36), (309, 236));
        let bodies: Vec<_> = (0..25).map(|_| prompts.next()).collect();
        let words: Vec<_> = bodies.iter().map(|body| text(body).split(' ').count()).collect();
        let tokens: usize = words.iter().map(|words| 30 + words * 2 / 3).sum();
        assert!((195..=202).contains(&(tokens / 25)), "{words:?}");
        let output: u64 = bodies.iter().filter_map(|body| body["max_tokens"].as_u64()).sum();
        assert_eq!(output, 25 * 40);
        let mut starts: Vec<_> = bodies.iter().map(|body| &text(body)[..40]).collect();
        starts.sort_unstable();
        starts.dedup();
        assert_eq!(starts.len(), 25);
    }

    #[test]
    fn a1_answers_have_a_fixed_length_only_where_the_engine_knows_how() {
        for (dialect, fixed) in [(Dialect::Vllm, true), (Dialect::LlamaCpp, true), (Dialect::Tgi, false)] {
            let body = prompts(dialect).next();
            assert_eq!(body.get("ignore_eos").is_some(), fixed, "{dialect:?}");
        }
    }

    #[test]
    fn a1_counts_that_make_no_sense_do_no_harm() {
        for (short, long) in [((8, 0), (8, 0)), ((8, 100), (200, 5)), ((8, u64::MAX / 2000), (9, 0))] {
            let scale = Scale::of(short, long);
            assert!((1..=4000).contains(&scale.words(1000)), "{scale:?}");
        }
    }
}
