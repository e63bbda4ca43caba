//! The engine's metrics page, in vLLM's names and labels, so that whoever reads vLLM reads this. Decides
//! nothing.

use std::fmt::Write as _;

use tidegate_shared::time::Duration;
use tidegate_sim::engine::BLOCK_TOKENS;

use super::driver::Snapshot;

/// Upper bounds of the buckets of `vllm:time_to_first_token_seconds`.
const BOUNDS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];

/// A distribution of times.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    /// Observations by bucket, not summed up; those above the last bound are only in `count`.
    buckets: [u64; BOUNDS.len()],
    count: u64,
    sum: Duration,
}

impl Histogram {
    /// Counts one.
    pub(super) fn observe(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        if let Some((bucket, _)) = self.buckets.iter_mut().zip(BOUNDS).find(|(_, bound)| seconds <= *bound) {
            *bucket += 1;
        }
        self.count += 1;
        self.sum += time;
    }
}

struct Page {
    text: String,
    model: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.text, "# HELP vllm:{name} {help}\n# TYPE vllm:{name} {kind}\n");
    }

    /// One sample; `labels` are those that sort before `model_name`, each followed by a comma.
    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let _ = writeln!(
            self.text,
            "vllm:{name}{{engine=\"0\",{labels}model_name=\"{}\"}} {value:?}",
            self.model
        );
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.head(name, kind, help);
        self.sample(name, "", value);
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let mut below = 0;
        for (count, bound) in histogram.buckets.iter().zip(BOUNDS) {
            below += count;
            self.sample(&format!("{name}_bucket"), &format!("le=\"{bound:?}\","), float(below));
        }
        self.sample(&format!("{name}_bucket"), "le=\"+Inf\",", float(histogram.count));
        self.sample(&format!("{name}_count"), "", float(histogram.count));
        self.sample(&format!("{name}_sum"), "", histogram.sum.as_secs_f64());
    }
}

/// Counts are far below 2^53, where `f64` is exact.
#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
const fn float(count: u64) -> f64 {
    count as f64
}

/// The whole page.
pub(super) fn render(model: &str, now: &Snapshot) -> String {
    let model = model.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let mut page = Page { text: String::new(), model };
    let (settings, totals) = (&now.settings, &now.totals);
    let blocks = settings.blocks();
    let usage = f64::from(now.kv_held / BLOCK_TOKENS) / f64::from(blocks.max(1));
    page.single("num_requests_running", "gauge", "Requests in the batch.", f64::from(now.running));
    page.single("num_requests_waiting", "gauge", "Requests in the queue.", f64::from(now.waiting));
    page.single(
        "kv_cache_usage_perc",
        "gauge",
        "KV space that running requests hold or have reserved; 1 is all of it.",
        usage,
    );
    page.head("cache_config_info", "gauge", "Sizes of the KV space.");
    let _ = writeln!(
        page.text,
        "vllm:cache_config_info{{block_size=\"{BLOCK_TOKENS}\",enable_prefix_caching=\"True\",engine=\"0\",\
         kv_cache_size_tokens=\"{}\",num_gpu_blocks=\"{blocks}\"}} 1.0",
        blocks.saturating_mul(BLOCK_TOKENS)
    );
    page.single("prefix_cache_queries_total", "counter", "Prompt tokens looked up.", float(totals.prompt));
    page.single("prefix_cache_hits_total", "counter", "Prompt tokens found cached.", float(totals.cached));
    page.single(
        "prompt_tokens_total",
        "counter",
        "Prompt tokens of requests that started.",
        float(totals.prompt),
    );
    page.single(
        "prompt_tokens_cached_total",
        "counter",
        "Prompt tokens not computed again.",
        float(totals.cached),
    );
    page.single("generation_tokens_total", "counter", "Output tokens.", float(totals.output));
    page.single("num_preemptions_total", "counter", "Requests preempted; this engine never does.", 0.0);
    page.head("request_success_total", "counter", "Requests that ended, by reason.");
    for (reason, count) in ["stop", "length", "abort"].into_iter().zip(now.ended) {
        page.sample("request_success_total", &format!("finished_reason=\"{reason}\","), float(count));
    }
    page.histogram("time_to_first_token_seconds", "Time to the first token.", &now.first_token);
    page.text
}
