//! vLLM. Names as of 0.32.0 (a real page) and back to 0.6; several engines behind one server (data parallel) are told
//! apart by the label `engine`. Decides nothing.

use super::reader::{Bound, Parts, Reader};
use super::{METRICS, Names, Pages, Reading};

pub(super) const NAMES: Names = Names {
    running: &["num_requests_running"],
    waiting: &["num_requests_waiting"],
    // Until 0.9 under the name with `gpu`.
    share: &["kv_cache_usage_perc", "gpu_cache_usage_perc"],
    hits: &["prefix_cache_hits_total", "gpu_prefix_cache_hits_total"],
    queries: &["prefix_cache_queries_total", "gpu_prefix_cache_queries_total"],
    ..Names::of("vllm", "engine")
};

/// Carries the sizes of the cache as labels.
const CACHE: &str = "cache_config_info";

pub(super) fn read(pages: &Pages) -> Reading {
    let mut reader = Reader::new(pages.get(METRICS), &NAMES);
    let capacity = capacity(&mut reader);
    let report = reader.report(capacity);
    reader.finish(report)
}

/// Tokens that each engine's cache can hold. Newer versions say so; for older ones it is blocks times tokens a block,
/// which is too much for models whose layers differ in their caches.
fn capacity<'a>(reader: &mut Reader<'a>) -> Option<Parts<'a>> {
    let told: Vec<_> = reader
        .series(CACHE)
        .map(|sample| {
            let labels =
                ["kv_cache_size_tokens", "num_gpu_blocks", "block_size"].map(|name| sample.label(name));
            (reader.part(sample), labels)
        })
        .collect();
    let mut parts = Parts::new();
    for (part, [tokens, blocks, block]) in told {
        let tokens = match known(tokens) {
            Some(tokens) => reader.number(tokens, Bound::Tokens)?,
            None => {
                let blocks = reader.number(known(blocks)?, Bound::Tokens)?;
                let block = reader.number(known(block)?, Bound::Tokens)?;
                reader.admit(blocks * block, Bound::Tokens)?
            }
        };
        parts.insert(part, tokens);
    }
    (!parts.is_empty()).then_some(parts)
}

/// Python writes what it does not know as `None`.
fn known(label: Option<&str>) -> Option<&str> {
    label.filter(|label| *label != "None")
}
