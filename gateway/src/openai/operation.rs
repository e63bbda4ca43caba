//! The table of routes (H1): which path is which operation, how its body is encoded and where its prompt is.
//!
//! Never looks at a request's body, method or headers.

use std::fmt;

/// An operation whose requests are routed by their model (H1). All of them are `POST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// `/v1/chat/completions`
    ChatCompletions,
    /// `/v1/completions`
    Completions,
    /// `/v1/embeddings`
    Embeddings,
    /// `/v1/responses`
    Responses,
    /// `/v1/messages`
    Messages,
    /// `/v1/rerank`
    Rerank,
    /// `/v1/score`
    Score,
    /// `/tokenize`
    Tokenize,
    /// `/detokenize`
    Detokenize,
    /// `/v1/images/generations`
    Images,
    /// `/v1/images/edits`
    ImageEdits,
    /// `/v1/videos`
    Videos,
    /// `/v1/audio/speech`
    Speech,
    /// `/v1/audio/transcriptions`
    Transcriptions,
}

/// How the body of an operation's requests is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// A JSON object.
    Json,
    /// `multipart/form-data`.
    Multipart,
    /// Whichever of the two the request's `content-type` says.
    Either,
}

/// What an operation's prompt says about the conversation that it belongs to (R1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptShape {
    /// An array of messages or items; a later turn repeats those of the turn before and adds some.
    Turns,
    /// One text; a later turn repeats it and writes on.
    Blocks,
    /// No conversation; only its size matters (R8).
    Plain,
}

impl Operation {
    /// Every operation, in the order of the table.
    pub const ALL: [Self; 14] = [
        Self::ChatCompletions,
        Self::Completions,
        Self::Embeddings,
        Self::Responses,
        Self::Messages,
        Self::Rerank,
        Self::Score,
        Self::Tokenize,
        Self::Detokenize,
        Self::Images,
        Self::ImageEdits,
        Self::Videos,
        Self::Speech,
        Self::Transcriptions,
    ];

    /// The operation at `path` (without its query), with or without `/v1` in front. The match is exact: a slash at
    /// the end, an escaped character or another case is another path.
    pub fn from_path(path: &str) -> Option<Self> {
        let tail = path.strip_prefix("/v1").filter(|tail| tail.starts_with('/')).unwrap_or(path);
        Some(match tail {
            "/chat/completions" => Self::ChatCompletions,
            "/completions" => Self::Completions,
            "/embeddings" => Self::Embeddings,
            "/responses" => Self::Responses,
            "/messages" => Self::Messages,
            "/rerank" => Self::Rerank,
            "/score" => Self::Score,
            "/tokenize" => Self::Tokenize,
            "/detokenize" => Self::Detokenize,
            "/images/generations" => Self::Images,
            "/images/edits" => Self::ImageEdits,
            "/videos" => Self::Videos,
            "/audio/speech" => Self::Speech,
            "/audio/transcriptions" => Self::Transcriptions,
            _ => return None,
        })
    }

    /// The path that engines know it by, whatever form of it the client used.
    pub const fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Embeddings => "/v1/embeddings",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
            Self::Rerank => "/v1/rerank",
            Self::Score => "/v1/score",
            Self::Tokenize => "/tokenize",
            Self::Detokenize => "/detokenize",
            Self::Images => "/v1/images/generations",
            Self::ImageEdits => "/v1/images/edits",
            Self::Videos => "/v1/videos",
            Self::Speech => "/v1/audio/speech",
            Self::Transcriptions => "/v1/audio/transcriptions",
        }
    }

    /// The word for it in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat_completions",
            Self::Completions => "completions",
            Self::Embeddings => "embeddings",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Rerank => "rerank",
            Self::Score => "score",
            Self::Tokenize => "tokenize",
            Self::Detokenize => "detokenize",
            Self::Images => "images",
            Self::ImageEdits => "image_edits",
            Self::Videos => "videos",
            Self::Speech => "speech",
            Self::Transcriptions => "transcriptions",
        }
    }

    /// How its requests are encoded.
    pub const fn body(self) -> BodyKind {
        match self {
            Self::ImageEdits | Self::Transcriptions => BodyKind::Multipart,
            Self::Videos => BodyKind::Either,
            _ => BodyKind::Json,
        }
    }

    /// Whether its answer is generated token by token, and so takes room in the KV cache (R8).
    pub const fn generates(self) -> bool {
        matches!(self, Self::ChatCompletions | Self::Completions | Self::Responses | Self::Messages)
    }

    /// The top-level field that holds the prompt, or most of it.
    pub const fn prompt_field(self) -> &'static str {
        match self {
            Self::ChatCompletions | Self::Messages => "messages",
            Self::Embeddings | Self::Responses | Self::Speech => "input",
            Self::Rerank => "documents",
            Self::Score => "text_2",
            Self::Detokenize => "tokens",
            _ => "prompt",
        }
    }

    /// The top-level field whose text stands before that of [`Operation::prompt_field`], wherever it is in the body.
    pub const fn preamble_field(self) -> Option<&'static str> {
        match self {
            Self::Messages => Some("system"),
            Self::Responses => Some("instructions"),
            Self::Rerank => Some("query"),
            Self::Score => Some("text_1"),
            _ => None,
        }
    }

    /// What its prompt says about the conversation.
    pub const fn prompt_shape(self) -> PromptShape {
        match self {
            Self::ChatCompletions | Self::Responses | Self::Messages => PromptShape::Turns,
            Self::Completions => PromptShape::Blocks,
            _ => PromptShape::Plain,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h1_every_endpoint_is_found_with_and_without_v1() {
        for operation in Operation::ALL {
            let bare = operation.path().trim_start_matches("/v1");
            assert_eq!(Operation::from_path(operation.path()), Some(operation));
            assert_eq!(Operation::from_path(bare), Some(operation));
            assert_eq!(Operation::from_path(&format!("/v1{bare}")), Some(operation));
        }
    }

    #[test]
    fn h1_paths_match_exactly() {
        for path in [
            "",
            "/",
            "/v1",
            "/v1/",
            "/v1/v1/completions",
            "/v1completions",
            "/v2/completions",
            "/v1/completions/",
            "//v1/completions",
            "/v1//completions",
            "/V1/completions",
            "/v1/Completions",
            "/v1/complet%69ons",
            "v1/completions",
            "/v1/chat",
            "/v1/models",
        ] {
            assert_eq!(Operation::from_path(path), None, "{path}");
        }
    }

    #[test]
    fn labels_are_distinct() {
        let labels: std::collections::BTreeSet<_> = Operation::ALL.iter().map(|e| e.as_str()).collect();
        assert_eq!(labels.len(), Operation::ALL.len());
    }
}
