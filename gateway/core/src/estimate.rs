//! What a deployment learns from its own traffic (R8): bytes per token, the usual length of an answer, and how long
//! prefilling takes. Integer arithmetic, so that a replay learns the same.

use tidegate_shared::request::{RequestFacts, Tokens};
use tidegate_shared::time::Duration;

/// One observation counts as much as 1/64 of all that came before, roughly.
const MEMORY: u64 = 64;
const WHOLE: u64 = 1024;
/// Tokens of an image, as vision encoders commonly make them.
const IMAGE_TOKENS: u64 = 800;
/// Tokens of one answer that are believed: so many, or 16 times as many as usual. An engine whose counter is wrong, or a
/// number that a client had it say, moves the usual answer little.
const ANSWER_MAX: u64 = 8 << 10;
const UNUSUAL: u64 = 16;
/// Tokens that a prompt may have beside one for each byte of its text: templates and tools.
const TEMPLATE_MAX: u64 = 4096;
/// Prompts shorter than this say nothing about the speed of prefilling: other costs hide it.
const PREFILL_MIN: u64 = 64;

/// A ratio of two sums that forget: recent observations count most, large ones more than small ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ratio {
    numerator: u64,
    denominator: u64,
}

impl Ratio {
    fn learn(&mut self, numerator: u64, denominator: u64) {
        self.numerator = (self.numerator - self.numerator / MEMORY).saturating_add(numerator);
        self.denominator = (self.denominator - self.denominator / MEMORY).saturating_add(denominator);
    }

    /// `of × numerator / denominator`, rounded up.
    fn times(self, of: u64) -> u64 {
        let exact =
            (u128::from(of) * u128::from(self.numerator)).div_ceil(u128::from(self.denominator.max(1)));
        u64::try_from(exact).unwrap_or(u64::MAX)
    }
}

/// What a replica said about one request (`usage`), and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Tokens of the prompt.
    pub prompt: Option<u64>,
    /// Of these, tokens that were in the cache.
    pub cached: Option<u64>,
    /// Tokens of the answer.
    pub output: Option<u64>,
    /// From sending the request to the first byte of the answer.
    pub first_byte: Option<Duration>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// Tokens per byte of text.
    tokens_per_byte: Ratio,
    /// Tokens per answer, both sides times [`WHOLE`], so that small counts can decay.
    answer: Ratio,
    /// Tokens per prompt, in the same way; nothing seen yet while the denominator is 0.
    asked: Ratio,
    /// Requests of which both were told.
    seen: u64,
    /// Microseconds per token that is not cached; nothing measured yet while the denominator is 0.
    prefill: Ratio,
}

impl Default for Estimate {
    fn default() -> Self {
        Self {
            tokens_per_byte: Ratio { numerator: 1_000, denominator: 4_000 },
            answer: Ratio { numerator: 256 * WHOLE, denominator: WHOLE },
            asked: Ratio { numerator: 0, denominator: 0 },
            seen: 0,
            prefill: Ratio { numerator: 0, denominator: 0 },
        }
    }
}

impl Estimate {
    /// Tokens of a request's prompt.
    pub fn prompt(&self, facts: &RequestFacts) -> Tokens {
        let text = self.tokens_per_byte.times(facts.text_bytes);
        let images = u64::from(facts.images).saturating_mul(IMAGE_TOKENS);
        Tokens(facts.token_ids.saturating_add(text).saturating_add(images))
    }

    /// Tokens that its answers will likely take: the usual length, or less where the client allows less.
    pub fn output(&self, facts: &RequestFacts) -> Tokens {
        let usual = self.answer.times(1);
        let each = facts.output_limit.map_or(usual, |limit| usual.min(limit));
        Tokens(each.saturating_mul(u64::from(facts.choices)))
    }

    /// What a request will likely hold on its replica: prompt and answers.
    pub fn cost(&self, facts: &RequestFacts) -> Tokens {
        Tokens(self.prompt(facts).0.saturating_add(self.output(facts).0))
    }

    /// How long a replica needs to prefill `tokens` that it has not cached; `None` while nothing was measured.
    pub fn prefill(&self, tokens: Tokens) -> Option<Duration> {
        (self.prefill.denominator > 0).then(|| Duration::from_micros(self.prefill.times(tokens.0)))
    }

    /// Tokens of the usual prompt and of the usual answer, as engines told them lately, and of how many requests they did
    /// since the beginning; `None` before the first.
    pub fn usual(&self) -> Option<(Tokens, Tokens, u64)> {
        (self.seen > 0).then(|| (Tokens(self.asked.times(1)), Tokens(self.answer.times(1)), self.seen))
    }

    /// A request ended, and its replica said what it took.
    pub fn learn(&mut self, facts: &RequestFacts, spent: &Spent) {
        if let Some(prompt) = spent.prompt {
            let images = u64::from(facts.images).saturating_mul(IMAGE_TOKENS);
            let text = prompt.saturating_sub(facts.token_ids.saturating_add(images));
            let text = text.min(facts.text_bytes.saturating_add(TEMPLATE_MAX));
            if facts.text_bytes > 0 && text > 0 {
                self.tokens_per_byte.learn(text, facts.text_bytes);
            }
        }
        if let (Some(prompt), Some(_)) = (spent.prompt, spent.output) {
            self.asked.learn(prompt.saturating_mul(WHOLE), WHOLE);
            self.seen += 1;
        }
        if let Some(output) = spent.output.filter(|_| facts.choices > 0) {
            let choices = u64::from(facts.choices);
            let most = self.answer.times(UNUSUAL * choices).max(ANSWER_MAX * choices);
            self.answer.learn(output.min(most).saturating_mul(WHOLE), choices * WHOLE);
        }
        let uncached = spent.prompt.map(|prompt| prompt.saturating_sub(spent.cached.unwrap_or(0)));
        if let (Some(uncached), Some(first_byte)) =
            (uncached.filter(|tokens| *tokens >= PREFILL_MIN), spent.first_byte)
        {
            let micros = u64::try_from(first_byte.as_micros()).unwrap_or(u64::MAX);
            self.prefill.learn(micros.min(1 << 40), uncached);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r8_one_count_that_cannot_be_moves_little() {
        let mut estimate = Estimate::default();
        let before = (estimate.prompt(&facts(400)).0, estimate.output(&facts(400)).0);
        let absurd = Spent { prompt: Some(u64::MAX), output: Some(u64::MAX), ..Spent::default() };
        estimate.learn(&facts(400), &absurd);
        let after = (estimate.prompt(&facts(400)).0, estimate.output(&facts(400)).0);
        assert!(after.0 <= 10 * before.0 && after.1 <= before.1 + 4096, "{before:?} {after:?}");
    }

    fn facts(text_bytes: u64) -> RequestFacts {
        RequestFacts { text_bytes, choices: 1, ..RequestFacts::default() }
    }

    fn spent(prompt: u64, output: u64) -> Spent {
        Spent { prompt: Some(prompt), output: Some(output), ..Spent::default() }
    }

    #[test]
    fn r8_the_ratio_of_bytes_to_tokens_is_learned() {
        let mut estimate = Estimate::default();
        assert_eq!(estimate.prompt(&facts(4000)), Tokens(1000));
        (0..500).for_each(|_| estimate.learn(&facts(3000), &spent(1500, 10)));
        let learned = estimate.prompt(&facts(3000)).0;
        assert!((1480..=1520).contains(&learned), "{learned}");
    }

    #[test]
    fn r8_the_usual_answer_is_learned_and_a_client_may_allow_less() {
        let mut estimate = Estimate::default();
        assert_eq!(estimate.output(&facts(1)), Tokens(256));
        (0..500).for_each(|_| estimate.learn(&facts(100), &spent(25, 40)));
        let learned = estimate.output(&facts(1)).0;
        assert!((38..=44).contains(&learned), "{learned}");
        assert_eq!(estimate.output(&RequestFacts { output_limit: Some(7), ..facts(1) }), Tokens(7));
        assert_eq!(
            estimate.output(&RequestFacts { output_limit: Some(7), choices: 3, ..facts(1) }),
            Tokens(21)
        );
    }

    #[test]
    fn a1_the_usual_request_is_what_engines_told_lately() {
        let mut estimate = Estimate::default();
        estimate.learn(&facts(400), &Spent::default());
        assert_eq!(estimate.usual(), None, "nothing was told");
        (0..500).for_each(|_| estimate.learn(&facts(400), &spent(900, 40)));
        let (prompt, output, seen) = estimate.usual().expect("told");
        assert!((890..=910).contains(&prompt.0) && (38..=44).contains(&output.0), "{prompt:?} {output:?}");
        assert_eq!(seen, 500);
        (0..500).for_each(|_| estimate.learn(&facts(400), &spent(100, 40)));
        assert!(estimate.usual().expect("told").0.0 < 110, "what was is forgotten");
    }

    #[test]
    fn r8_images_and_token_ids_count_and_do_not_spoil_the_ratio() {
        let mut estimate = Estimate::default();
        let picture = RequestFacts { images: 2, token_ids: 50, ..facts(400) };
        assert_eq!(estimate.prompt(&picture), Tokens(50 + 100 + 1600));
        (0..500).for_each(|_| estimate.learn(&picture, &spent(1750, 1)));
        assert_eq!(estimate.prompt(&facts(400)), Tokens(100));
    }

    #[test]
    fn r4_prefilling_is_measured_on_what_was_not_cached() {
        let mut estimate = Estimate::default();
        assert_eq!(estimate.prefill(Tokens(1000)), None);
        let first_byte = Some(Duration::from_millis(100));
        let spent = Spent { prompt: Some(1000), cached: Some(900), output: None, first_byte };
        (0..10).for_each(|_| estimate.learn(&facts(4000), &spent));
        let learned = estimate.prefill(Tokens(1000)).unwrap().as_millis();
        assert!((990..=1010).contains(&learned), "{learned} ms for 1000 tokens at 1000 a second");
        let before = estimate.prefill;
        estimate.learn(&facts(4000), &Spent { cached: Some(1000), ..spent });
        assert_eq!(estimate.prefill, before, "nothing prefilled, nothing learned");
    }
}
