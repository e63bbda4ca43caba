//! TensorRT-LLM. Names as of 1.1 to 1.3 on `/prometheus/metrics` (`trtllm_…`), those of NVIDIA's Dynamo 1.6 on `/metrics`
//! (`trtllm:…`), and the statistics of iterations as JSON on `/metrics`. Each look at these takes them away, and an idle
//! engine makes none: then nothing is known. Decides nothing.

use serde_json::Value;
use tidegate_shared::replica::EngineReport;
use tidegate_shared::request::Tokens;

use super::reader::{Bound, Parts, Reader};
use super::{METRICS, Names, Pages, Reading};

/// Where `trtllm-serve` has its page in Prometheus' format.
pub(super) const PROMETHEUS: &str = "/prometheus/metrics";

pub(super) const NAMES: Names = Names {
    running: &["num_requests_running"],
    waiting: &["num_requests_waiting"],
    share: &["kv_cache_utilization", "kv_cache_usage_perc", "gpu_cache_usage_perc"],
    slots: &["max_num_active_requests"],
    hits: &["prompt_cached_tokens_total"],
    queries: &["prompt_tokens_total"],
    ..Names::of("trtllm", "engine")
};

/// Reads the page at `path`.
pub(super) fn read(pages: &Pages, path: &str) -> Reading {
    let mut reader = Reader::new(pages.get(path), &NAMES);
    let block = reader.parts(&["kv_cache_tokens_per_block"], Bound::Tokens);
    let mut in_tokens = |name: &str| -> Option<Parts<'_>> {
        let blocks = reader.parts(&[name], Bound::Tokens)?;
        let block = block.as_ref()?;
        let tokens = |(part, blocks)| Some((part, reader.admit(blocks * block.get(part)?, Bound::Tokens)?));
        blocks.into_iter().map(tokens).collect()
    };
    let capacity = in_tokens("kv_cache_max_blocks");
    let report = reader.report(capacity);
    reader.finish(report)
}

/// The newest iteration; nothing where the page holds none.
fn newest(page: &[u8]) -> Option<Value> {
    let iterations: Vec<Value> = serde_json::from_slice(page).ok()?;
    iterations.into_iter().next_back()
}

/// Whether a page is a list of iterations.
pub(super) fn is_iterations(page: &[u8]) -> bool {
    let Ok(iterations) = serde_json::from_slice::<Vec<Value>>(page) else { return false };
    iterations.last().is_none_or(|newest| newest.get("numActiveRequests").is_some())
}

pub(super) fn read_iterations(pages: &Pages) -> Reading {
    let page = pages.get(METRICS);
    let newest = page.and_then(newest);
    // A list without iterations is no fault; anything else than a list is.
    let mut reader = match page {
        Some(page) if is_iterations(page) => Reader::lenient(None, &NAMES),
        _ => Reader::new(None, &NAMES),
    };
    let field = |name: &str| newest.as_ref().and_then(|newest| newest.get(name));
    let cache = |name: &str| field("kvCacheStats").and_then(|cache| cache.get(name));
    let mut requests =
        |value| reader.json(value, Bound::Requests).and_then(|count| u32::try_from(count).ok());
    let (running, waiting) = (requests(field("numActiveRequests")), requests(field("numQueuedRequests")));
    let slots = requests(field("maxNumActiveRequests"));
    let block = reader.json(cache("tokensPerBlock"), Bound::Requests);
    let mut tokens = |name| {
        let blocks = reader.json(cache(name), Bound::Tokens);
        blocks.zip(block).map(|(blocks, block)| Tokens(blocks.saturating_mul(block)))
    };
    let (kv_used, kv_capacity) = (tokens("usedNumBlocks"), tokens("maxNumBlocks"));
    reader.finish(EngineReport { running, waiting, slots, kv_used, kv_capacity, ..EngineReport::default() })
}
