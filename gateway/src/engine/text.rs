//! Text to tokens and back: four bytes are a token, both ways, so that what the engine said is, in the next
//! turn's prompt, the very tokens it computed. Decides nothing; never looks at meaning.

use std::fmt::Write as _;

use serde_json::Value;
use tidegate_sim::engine::BLOCK_TOKENS;
use twox_hash::XxHash3_64;

/// Bytes of a token.
pub(super) const TOKEN_BYTES: usize = 4;

/// How each answer begins: seven tokens.
const PREAMBLE: &str = "[tidegate engine: no model] ";

/// What follows, a token each.
const WORDS: [&str; 16] = [
    "sea ", "ebb ", "low ", "tow ", "bay ", "fog ", "oar ", "sun ", "net ", "cod ", "eel ", "sky ", "dry ",
    "wet ", "rip ", "jib ",
];

/// The last token of an answer that is complete.
const LAST: &str = "end.";

/// Tokens of a text of `bytes` bytes.
pub(super) fn tokens(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(TOKEN_BYTES)).unwrap_or(u32::MAX)
}

/// What the words of an answer depend on.
pub(super) fn seed(prompt: &[u8]) -> u64 {
    XxHash3_64::oneshot(prompt)
}

/// An answer: which words, how many, and whether it comes to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    /// From [`seed`].
    pub(super) seed: u64,
    /// Its length in tokens.
    pub(super) tokens: u32,
    /// Whether it is complete.
    pub(super) complete: bool,
}

impl Answer {
    /// Its `n`th token, counted from 1: always [`TOKEN_BYTES`] bytes of ASCII that JSON need not escape.
    pub(super) fn token(&self, n: u32) -> &'static str {
        let start = (n.saturating_sub(1) as usize).saturating_mul(TOKEN_BYTES);
        if let Some(token) = PREAMBLE.get(start..start.saturating_add(TOKEN_BYTES)) {
            return token;
        }
        if self.complete && n == self.tokens {
            return LAST;
        }
        let pick = XxHash3_64::oneshot_with_seed(self.seed, &n.to_le_bytes()) % WORDS.len() as u64;
        usize::try_from(pick).ok().and_then(|pick| WORDS.get(pick)).copied().unwrap_or(LAST)
    }

    /// Its first `n` tokens.
    pub(super) fn text(&self, n: u32) -> String {
        (1..=n).map(|n| self.token(n)).collect()
    }
}

/// The running hash after each full block of `prompt` followed by `answer`.
pub(super) fn chain(prompt: &[u8], answer: &Answer) -> Vec<u64> {
    let mut all = prompt.to_vec();
    all.extend_from_slice(answer.text(answer.tokens).as_bytes());
    let mut running = 0;
    all.chunks_exact(BLOCK_TOKENS as usize * TOKEN_BYTES)
        .map(|block| {
            running = XxHash3_64::oneshot_with_seed(running, block);
            running
        })
        .collect()
}

/// The prompt that a chat is to the engine. The messages of a turn and its answer are the beginning of the
/// next turn's prompt.
pub(super) fn render(messages: &[Value]) -> Vec<u8> {
    let mut prompt = String::new();
    for message in messages {
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
        let _ = writeln!(prompt, "<{role}>");
        match message.get("content") {
            Some(Value::String(text)) => prompt.push_str(text),
            Some(Value::Array(parts)) => parts.iter().for_each(|part| render_part(&mut prompt, part)),
            _ => {}
        }
        if let Some(calls) = message.get("tool_calls").filter(|calls| !calls.is_null()) {
            let _ = write!(prompt, "{calls}");
        }
        prompt.push('\n');
    }
    prompt.push_str("<assistant>\n");
    prompt.into_bytes()
}

fn render_part(prompt: &mut String, part: &Value) {
    match part.get("text").and_then(Value::as_str) {
        Some(text) => prompt.push_str(text),
        None => {
            let _ = write!(prompt, "{part}");
        }
    }
}

/// An embedding: the same text gives the same vector of length 1, another text another one.
pub(super) fn embedding(text: &[u8], dimensions: u32) -> Vec<f32> {
    let seed = seed(text);
    let raw: Vec<f32> = (0..dimensions)
        .map(|i| {
            let bits = XxHash3_64::oneshot_with_seed(seed, &i.to_le_bytes());
            let small = u16::try_from(bits >> 48).unwrap_or_default();
            f32::from(small) / f32::from(u16::MAX) - 0.5
        })
        .collect();
    let norm = raw.iter().map(|x| x * x).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    raw.into_iter().map(|x| x / norm).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_of_an_answer_is_four_bytes_that_need_no_escape() {
        let answer = Answer { seed: 7, tokens: 60, complete: true };
        let text = answer.text(60);
        assert!(text.starts_with(PREAMBLE) && text.ends_with(LAST) && text.len() == 60 * TOKEN_BYTES);
        assert!(text.bytes().all(|b| b.is_ascii_graphic() || b == b' ') && !text.contains(['"', '\\']));
    }

    #[test]
    fn r2_the_chain_of_a_turn_begins_that_of_the_next() {
        let answer = Answer { seed: 7, tokens: 60, complete: true };
        let question =
            serde_json::json!({"role": "user", "content": [{"type": "text", "text": "hm".repeat(80)}]});
        let first = chain(&render(std::slice::from_ref(&question)), &answer);
        let said = serde_json::json!({"role": "assistant", "content": answer.text(60)});
        let next = chain(&render(&[question, said]), &answer);
        assert!(next.len() > first.len() && next.starts_with(&first));
    }
}
