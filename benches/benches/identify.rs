//! How fast a body is understood: the scan of requests and of streams, in GB/s and in time per body.
//!
//! `cargo bench -p tidegate-benches --bench identify`. Bodies are made here; each figure is the best of several rounds,
//! which is what the code can do when nobody disturbs it.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::cast_precision_loss)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate::openai::{Operation, SseScan, scan};

const ROUNDS: u32 = 15;
const ROUND: Duration = Duration::from_millis(60);

fn main() {
    let prose = "The tide comes in twice a day, and the gate lets it pass. ".repeat(8000);
    let code = "    if depth > \"limit\" {\n        return Err(\"too deep\");\n    }\n".repeat(6000);
    let chat = |text: &str, turns: usize| {
        let each = text.len() / turns;
        let turn = |i: usize| {
            let role = if i.is_multiple_of(2) { "user" } else { "assistant" };
            json!({"role": role, "content": text.get(i * each..(i + 1) * each)})
        };
        json!({"model": "bench", "stream": true, "max_tokens": 128, "temperature": 0.7,
            "messages": (0..turns).map(turn).collect::<Vec<_>>()})
        .to_string()
    };
    let take =
        |text: &str, len: usize| text.get(..len).map(str::to_owned).expect("ASCII text that is long enough");
    let completion = json!({"model": "bench", "prompt": take(&prose, 400_000)}).to_string();
    let ids: Vec<u32> = (0..65_000).map(|i| i * 7919 % 128_000).collect();

    println!("{:<34} {:>9} {:>12} {:>9}", "request body", "bytes", "time", "GB/s");
    for (name, operation, body) in [
        ("chat, 1 KB, 3 messages", Operation::ChatCompletions, chat(&take(&prose, 830), 3)),
        ("chat, 400 KB, 1 message", Operation::ChatCompletions, chat(&take(&prose, 400_000), 1)),
        ("chat, 400 KB, 200 messages", Operation::ChatCompletions, chat(&take(&prose, 400_000), 200)),
        ("chat, 400 KB of code (escapes)", Operation::ChatCompletions, chat(&take(&code, 340_000), 1)),
        ("completion, 400 KB", Operation::Completions, completion),
        ("token ids, 400 KB", Operation::Completions, json!({"model": "bench", "prompt": ids}).to_string()),
    ] {
        let body = body.as_bytes();
        let per_body = best_of(|| {
            let scanned = scan(operation, black_box(body)).expect("a good body");
            black_box(scanned);
        });
        report(name, body.len(), per_body);
    }

    let event = format!(
        "data: {}\n\n",
        json!({"id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk",
        "created": 1_700_000_000, "model": "bench", "choices": [{"index": 0, "delta": {"content": " tide"},
        "logprobs": null, "finish_reason": null}]})
    );
    let events = 1000;
    let per_stream = best_of(|| {
        let mut scan = SseScan::new();
        for _ in 0..events {
            scan.push(black_box(event.as_bytes()));
        }
        black_box(scan.finish());
    });
    report("stream of 1000 events", event.len() * events, per_stream);
}

/// Seconds that `work` takes, best of [`ROUNDS`] rounds of [`ROUND`].
fn best_of(mut work: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let (start, mut runs) = (Instant::now(), 0_u32);
        while start.elapsed() < ROUND {
            for _ in 0..16 {
                work();
            }
            runs += 16;
        }
        best = best.min(start.elapsed().as_secs_f64() / f64::from(runs));
    }
    best
}

fn report(name: &str, bytes: usize, seconds: f64) {
    println!("{name:<34} {bytes:>9} {:>9.2} µs {:>9.2}", seconds * 1e6, bytes as f64 / seconds / 1e9);
}
