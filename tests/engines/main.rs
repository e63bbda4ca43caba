//! What the gateway knows of engines, proven on engines: llama.cpp's server with a real model, the built-in stand-in,
//! NVIDIA's mocker of vLLM, SGLang and TensorRT-LLM, and scripted replicas that lie (G2); and that the best concurrency of one
//! is found (A1).
//!
//! What a machine cannot give is said by name; with `CI=true` it fails.

#[cfg(test)]
mod dynamo;
#[cfg(test)]
mod lies;
#[cfg(test)]
mod llama;
#[cfg(test)]
mod sized;
#[cfg(test)]
mod stand_in;
#[cfg(test)]
mod tune;

use std::net::SocketAddr;

use serde_json::{Value, json};
use tidegate_tests::client::Client;
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;
use tokio::task::JoinSet;

/// `count` long streams, read as they come. Dropped, all clients have left.
pub(crate) fn streams(count: usize, server: SocketAddr, model: &str) -> JoinSet<()> {
    let mut set = JoinSet::new();
    for question in 0..count {
        let text = format!("{question}: tell me all about the tides, the moon and the sea.");
        let body = json!({"model": model, "stream": true, "max_tokens": 1500, "ignore_eos": true,
            "messages": [{"role": "user", "content": text}]});
        set.spawn(async move {
            Client::h1(server).stream("/v1/chat/completions", &body).await.whole().await;
        });
    }
    set
}

/// Waits until `/status` tells of the engine of replica `index` what is wanted; returns it.
pub(crate) async fn until_engine(
    gateway: &Gateway,
    index: usize,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    eventually(what, async || {
        let status = gateway.status().await;
        let engine = status.pointer(&format!("/deployments/0/replicas/{index}/engine"));
        engine.filter(|engine| wanted(engine)).cloned().ok_or_else(|| status.to_string())
    })
    .await
}

/// Whether it works on so many requests, and so many wait inside it.
pub(crate) fn has(engine: &Value, running: u32, waiting: u32) -> bool {
    engine["running"] == running && engine["waiting"] == waiting
}

/// Says what was not tested, and why; an error where everything must be.
pub(crate) fn not_tested(what: &str, why: &str) {
    let text = format!("NOT TESTED: {what}: {why}");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{text}");
    eprintln!("{text}");
}
