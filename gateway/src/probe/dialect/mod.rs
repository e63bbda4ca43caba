//! What engines say of themselves, one dialect a file (G2): pages in, [`EngineReport`] out.
//!
//! Pure: asks nobody, reads no clock, remembers nothing. A dialect is recognised by the names on its pages, never by a
//! version or a header. Whatever the pages hold, reading them gives figures within bounds or unknown ones.

mod exposition;
mod llamacpp;
mod reader;
mod sglang;
mod tei;
mod tgi;
mod trtllm;
mod vllm;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use tidegate_shared::replica::EngineReport;

use reader::Reader;

/// The page that most engines have.
const METRICS: &str = "/metrics";

/// The pages that are looked at, in this order, to recognise a dialect.
pub const LOOK: [&str; 3] = [METRICS, trtllm::PROMETHEUS, llamacpp::SLOTS];

/// How an engine speaks of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Not at all, or in no known way.
    #[default]
    None,
    /// vLLM, and what speaks like it: `tidegate engine`.
    Vllm,
    /// SGLang.
    Sglang,
    /// llama.cpp's server.
    LlamaCpp,
    /// Hugging Face's Text Generation Inference.
    Tgi,
    /// TensorRT-LLM, in Prometheus' format on `/metrics`.
    TrtLlm,
    /// The same on `/prometheus/metrics`.
    TrtLlmServe,
    /// TensorRT-LLM by the statistics of its iterations, where it has no others.
    TrtLlmIterations,
    /// Hugging Face's Text Embeddings Inference.
    Tei,
}

/// The names of one dialect, without family and separator. Of each list the first counts that the page has.
#[derive(Debug)]
struct Names {
    /// What all names begin with; `:` or `_` follows.
    family: &'static str,
    /// The label that tells the parts of one engine apart whose figures add up.
    part: &'static str,
    /// Requests in progress.
    running: &'static [&'static str],
    /// Requests not begun.
    waiting: &'static [&'static str],
    /// Tokens that running requests hold.
    used: &'static [&'static str],
    /// The same as a share of the capacity.
    share: &'static [&'static str],
    /// Tokens that there is room for.
    capacity: &'static [&'static str],
    /// Requests at a time.
    slots: &'static [&'static str],
    /// Prompt tokens found in the cache.
    hits: &'static [&'static str],
    /// Prompt tokens looked up.
    queries: &'static [&'static str],
}

impl Names {
    /// No names yet, of that family.
    const fn of(family: &'static str, part: &'static str) -> Self {
        Self {
            family,
            part,
            running: &[],
            waiting: &[],
            used: &[],
            share: &[],
            capacity: &[],
            slots: &[],
            hits: &[],
            queries: &[],
        }
    }

    /// Whether the page says how many requests there are, in these names.
    fn are_on(&self, page: &[u8]) -> bool {
        let reader = Reader::lenient(Some(page), self);
        self.running.iter().chain(self.waiting).any(|name| reader.series(name).next().is_some())
    }
}

/// Dialects in Prometheus' format, and their names.
const TABLES: [(Dialect, &Names); 6] = [
    (Dialect::Vllm, &vllm::NAMES),
    (Dialect::Sglang, &sglang::NAMES),
    (Dialect::LlamaCpp, &llamacpp::NAMES),
    (Dialect::Tgi, &tgi::NAMES),
    (Dialect::TrtLlm, &trtllm::NAMES),
    (Dialect::Tei, &tei::NAMES),
];

/// The pages that an engine answered with 200, by path.
#[derive(Clone, Debug, Default)]
pub struct Pages(Vec<(&'static str, Bytes)>);

impl Pages {
    /// Adds a page.
    pub fn put(&mut self, path: &'static str, page: Bytes) {
        self.0.push((path, page));
    }

    /// Adds all pages of another set.
    pub fn add(&mut self, other: &Self) {
        self.0.extend(other.0.iter().cloned());
    }

    fn get(&self, path: &str) -> Option<&[u8]> {
        self.0.iter().find(|(known, _)| *known == path).map(|(_, page)| page.as_ref())
    }
}

/// What came of reading the pages of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The figures; `asked` is for the driver to set.
    pub report: EngineReport,
    /// Figures that were there and cannot be true, and pages that were not readable (C-051).
    pub errors: u32,
}

impl Dialect {
    /// The word in status and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::LlamaCpp => "llamacpp",
            Self::Tgi => "tgi",
            Self::TrtLlm | Self::TrtLlmServe | Self::TrtLlmIterations => "trtllm",
            Self::Tei => "tei",
        }
    }

    /// The dialect of these pages, out of those of [`LOOK`]; [`Dialect::None`] if nothing on them is known.
    pub fn of(pages: &Pages) -> Self {
        if let Some(page) = pages.get(METRICS)
            && let Some((dialect, _)) = TABLES.iter().find(|(_, names)| names.are_on(page))
        {
            return *dialect;
        }
        if pages.get(trtllm::PROMETHEUS).is_some_and(|page| trtllm::NAMES.are_on(page)) {
            return Self::TrtLlmServe;
        }
        if pages.get(llamacpp::SLOTS).is_some_and(llamacpp::is_slots) {
            return Self::LlamaCpp;
        }
        let iterations = pages.get(METRICS).is_some_and(trtllm::is_iterations);
        if iterations { Self::TrtLlmIterations } else { Self::None }
    }

    /// Whether a page that names no dialect is not even a page of metrics: worth an error, where another exporter's
    /// page is not.
    pub fn is_garbage(pages: &Pages) -> bool {
        pages.get(METRICS).is_some_and(|page| !exposition::is_page(page) && !trtllm::is_iterations(page))
    }

    /// The pages to ask for each time.
    pub const fn pages(self) -> &'static [&'static str] {
        match self {
            Self::None => &[],
            Self::LlamaCpp => &[METRICS, llamacpp::SLOTS],
            Self::TrtLlmServe => &[trtllm::PROMETHEUS],
            Self::Vllm | Self::Sglang | Self::Tgi | Self::TrtLlm | Self::TrtLlmIterations | Self::Tei => {
                &[METRICS]
            }
        }
    }

    /// The pages that do not change while the engine lives: to ask for until each has come once.
    pub const fn constant_pages(self) -> &'static [&'static str] {
        match self {
            Self::LlamaCpp => &[llamacpp::PROPS],
            Self::Tgi | Self::Tei => &[tgi::INFO],
            Self::None
            | Self::Vllm
            | Self::Sglang
            | Self::TrtLlm
            | Self::TrtLlmServe
            | Self::TrtLlmIterations => &[],
        }
    }

    /// The figures on these pages.
    pub fn read(self, pages: &Pages) -> Reading {
        match self {
            Self::None => Reading::default(),
            Self::Vllm => vllm::read(pages),
            Self::Sglang => sglang::read(pages),
            Self::LlamaCpp => llamacpp::read(pages),
            Self::Tgi => tgi::read(pages),
            Self::TrtLlm => trtllm::read(pages, METRICS),
            Self::TrtLlmServe => trtllm::read(pages, trtllm::PROMETHEUS),
            Self::TrtLlmIterations => trtllm::read_iterations(pages),
            Self::Tei => tei::read(pages),
        }
    }
}
