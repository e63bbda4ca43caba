//! What clients ask, in OpenAI's shapes: parsed, checked, and turned into a request of the model.
//!
//! Decides whether a body is a request and how long its answer would be. Unknown fields are ignored, as real
//! engines do.

use serde::Deserialize;
use serde_json::Value;
use tidegate_sim::engine::Request;

use super::reply::Failure;
use super::text::{self, Answer};

/// The three endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
    /// `/v1/embeddings`
    Embeddings,
}

/// The fields that count here; each `null` is as good as absent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Body {
    model: Option<String>,
    messages: Option<Vec<Value>>,
    prompt: Option<Value>,
    input: Option<Value>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    n: Option<u32>,
    ignore_eos: Option<bool>,
    dimensions: Option<u32>,
    encoding_format: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// A request for text.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) request: Request,
    pub(super) answer: Answer,
    pub(super) chat: bool,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
}

/// A request for vectors.
#[derive(Debug)]
pub(super) struct Embedding {
    /// Each a request of its own to the model.
    pub(super) inputs: Vec<Vec<u8>>,
    pub(super) dimensions: u32,
    pub(super) base64: bool,
}

/// What a body asks for.
#[derive(Debug)]
pub(super) enum Ask {
    /// Text.
    Generation(Box<Generation>),
    /// Vectors.
    Embedding(Embedding),
}

/// What an engine is, as far as the check of a body depends on it.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    pub(super) model: String,
    /// Longest prompt plus answer in tokens.
    pub(super) max_length: u32,
    /// Longest answer to a request without a bound.
    pub(super) answer_tokens: u32,
}

/// Dimensions of an embedding unless the client wants another number.
const DIMENSIONS: u32 = 384;

/// Most dimensions, and most inputs of one request, as at OpenAI.
const MOST: u32 = 4_096;

/// Reads a body.
///
/// # Errors
/// 400 for what is no request or too long, 404 for another model.
pub(super) fn read(endpoint: Endpoint, body: &[u8], profile: &Profile) -> Result<Ask, Failure> {
    let body: Body = serde_json::from_slice(body)
        .map_err(|error| Failure::invalid(format!("The body is not a valid request: {error}"), None, None))?;
    match &body.model {
        None => return Err(Failure::invalid("model is missing".into(), Some("model"), None)),
        Some(model) if *model != profile.model => return Err(Failure::unknown_model(model, &profile.model)),
        Some(_) => {}
    }
    if let Some(n) = body.n.filter(|n| *n != 1) {
        return Err(Failure::invalid(format!("n is {n}; this engine gives 1 answer"), Some("n"), None));
    }
    match endpoint {
        Endpoint::Chat => {
            let messages = body.messages.as_deref().unwrap_or_default();
            if messages.is_empty() {
                let text = "messages is missing or empty; at least one message is needed";
                return Err(Failure::invalid(text.into(), Some("messages"), None));
            }
            if let Some(at) = messages.iter().position(|message| !message.is_object()) {
                return Err(Failure::invalid(
                    format!("messages[{at}] is not an object"),
                    Some("messages"),
                    None,
                ));
            }
            let prompt = text::render(messages);
            generation(&body, &prompt, true, profile)
        }
        Endpoint::Completions => {
            let prompt = body.prompt.as_ref().and_then(texts).filter(|prompts| prompts.len() == 1);
            let Some(prompt) = prompt.as_deref().and_then(<[_]>::first) else {
                let text = "prompt has to be one text or one list of token numbers";
                return Err(Failure::invalid(text.into(), Some("prompt"), None));
            };
            generation(&body, prompt, false, profile)
        }
        Endpoint::Embeddings => embedding(&body, profile),
    }
}

fn generation(body: &Body, prompt: &[u8], chat: bool, profile: &Profile) -> Result<Ask, Failure> {
    let prompt_tokens = text::tokens(prompt.len()).max(1);
    let room = profile.max_length.saturating_sub(prompt_tokens);
    let bound = body.max_completion_tokens.or(body.max_tokens);
    if bound == Some(0) {
        return Err(Failure::invalid(
            "max_tokens is 0; at least 1 is needed".into(),
            Some("max_tokens"),
            None,
        ));
    }
    if room == 0 || bound.is_some_and(|bound| bound > room) {
        let tokens = u64::from(prompt_tokens) + u64::from(bound.unwrap_or(1));
        return Err(Failure::too_long(tokens, profile.max_length));
    }
    let seed = text::seed(prompt);
    let shortest = (profile.answer_tokens / 4).max(8);
    let spread = u64::from(profile.answer_tokens.saturating_sub(shortest)) + 1;
    let natural = shortest + u32::try_from(seed % spread).unwrap_or_default();
    let max_tokens = bound.unwrap_or(room);
    // An answer that ignores its end is as long as the bound, and cut by it.
    let endless = body.ignore_eos.unwrap_or(false);
    let answer_tokens = if endless { bound.unwrap_or(natural).saturating_add(1) } else { natural };
    let max_tokens = if endless { answer_tokens.saturating_sub(1) } else { max_tokens };
    let answer =
        Answer { seed, tokens: answer_tokens.min(max_tokens), complete: answer_tokens <= max_tokens };
    let chain = text::chain(prompt, &answer);
    Ok(Ask::Generation(Box::new(Generation {
        request: Request { id: 0, prompt_tokens, chain, answer_tokens, max_tokens },
        answer,
        chat,
        stream: body.stream.unwrap_or(false),
        include_usage: body.stream_options.as_ref().and_then(|o| o.include_usage).unwrap_or(false),
    })))
}

fn embedding(body: &Body, profile: &Profile) -> Result<Ask, Failure> {
    let inputs =
        body.input.as_ref().and_then(texts).filter(|texts| (1..=MOST as usize).contains(&texts.len()));
    let Some(inputs) = inputs else {
        let text = format!("input has to be a text, a list of 1 to {MOST} texts, or token numbers");
        return Err(Failure::invalid(text, Some("input"), None));
    };
    if let Some(longest) =
        inputs.iter().map(|i| text::tokens(i.len())).max().filter(|t| *t > profile.max_length)
    {
        return Err(Failure::too_long(longest.into(), profile.max_length));
    }
    let dimensions = body.dimensions.unwrap_or(DIMENSIONS);
    if !(1..=MOST).contains(&dimensions) {
        let text = format!("dimensions is {dimensions}; allowed are 1 to {MOST}");
        return Err(Failure::invalid(text, Some("dimensions"), None));
    }
    let base64 = match body.encoding_format.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(other) => {
            let text = format!("encoding_format is {other:?}; allowed are \"float\" and \"base64\"");
            return Err(Failure::invalid(text, Some("encoding_format"), None));
        }
    };
    Ok(Ask::Embedding(Embedding { inputs, dimensions, base64 }))
}

/// The texts that a `prompt` or `input` holds: one, or a list, each as text or as token numbers.
fn texts(value: &Value) -> Option<Vec<Vec<u8>>> {
    match value {
        Value::String(text) => Some(vec![text.clone().into_bytes()]),
        Value::Array(items) if items.first().is_some_and(Value::is_u64) => Some(vec![numbers(items)?]),
        Value::Array(items) => items
            .iter()
            .map(|item| match item {
                Value::String(text) => Some(text.clone().into_bytes()),
                Value::Array(items) => numbers(items),
                _ => None,
            })
            .collect(),
        _ => None,
    }
}

/// Token numbers as text: each is one token.
fn numbers(items: &[Value]) -> Option<Vec<u8>> {
    let bytes = items.iter().map(|item| u32::try_from(item.as_u64()?).ok().map(u32::to_le_bytes));
    bytes.collect::<Option<Vec<_>>>().map(|tokens| tokens.concat())
}
