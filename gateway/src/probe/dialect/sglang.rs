//! SGLang. Names as of 0.4.3 and of 0.5.x, `sglang:` and `sglang_` (as an exporter of OpenTelemetry's writes them); the
//! ranks of data parallelism are told apart by the label `dp_rank`. Decides nothing.

use super::reader::Reader;
use super::{METRICS, Names, Pages, Reading};

pub(super) const NAMES: Names = Names {
    running: &["num_running_reqs"],
    waiting: &["num_queue_reqs"],
    // What running requests hold; without what the radix cache could give up.
    used: &["kv_used_tokens", "num_used_tokens"],
    share: &["full_token_usage", "token_usage"],
    // Since 0.5.
    capacity: &["max_total_num_tokens"],
    hits: &["cached_tokens_total"],
    queries: &["prompt_tokens_total"],
    ..Names::of("sglang", "dp_rank")
};

pub(super) fn read(pages: &Pages) -> Reading {
    let mut reader = Reader::new(pages.get(METRICS), &NAMES);
    let report = reader.report(None);
    reader.finish(report)
}
