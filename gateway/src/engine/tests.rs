//! The engine over a real socket: shapes, cache, departures, refusals, faults.

use std::net::SocketAddr;

use bytes::Bytes;
use clap::Parser;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{EngineArgs, EngineError, Server};

mod sleep;

#[derive(Parser)]
#[command(args_override_self = true)]
struct Cli {
    #[command(flatten)]
    engine: EngineArgs,
}

/// A running engine; dropped, it is gone.
struct Running {
    address: SocketAddr,
    tasks: JoinSet<Result<(), EngineError>>,
}

/// Fast, loaded at once, model `m`; `more` comes on top.
async fn start(more: &[&str]) -> Running {
    let fast = ["engine", "--port", "0", "--model", "m", "--load-time", "0s", "--step-us", "500"];
    let args = Cli::parse_from(fast.iter().chain(more)).engine;
    let server = Server::bind(&args).await.unwrap();
    let address = server.address();
    let mut tasks = JoinSet::new();
    tasks.spawn(server.serve());
    Running { address, tasks }
}

impl Running {
    async fn send(&self, method: Method, path: &str, body: &str) -> hyper::Result<Response<Incoming>> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        // Ends when the response is dropped, and closes the socket with it.
        tokio::spawn(connection);
        let body = Full::new(Bytes::from(body.to_owned()));
        let request =
            Request::builder().method(method).uri(path).header("host", "engine").body(body).unwrap();
        sender.send_request(request).await
    }

    async fn text(&self, method: Method, path: &str, body: &str) -> (u16, String) {
        let response = self.send(method, path, body).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn get(&self, path: &str) -> (u16, String) {
        self.text(Method::GET, path, "").await
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = self.text(Method::POST, path, &body.to_string()).await;
        (status, serde_json::from_str(&text).unwrap())
    }

    /// A sample of the metrics page, by name and, if it has some, the labels before `model_name`.
    async fn metric(&self, name: &str) -> f64 {
        let (_, page) = self.get("/metrics").await;
        let line = page.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Looks until so many requests run and wait.
    async fn until(&self, running: f64, waiting: f64) {
        while self.metric("vllm:num_requests_running").await != running
            || self.metric("vllm:num_requests_waiting").await != waiting
        {}
    }

    /// What a streamed answer brings until it ends or breaks, and whether it broke.
    async fn stream(&self, body: &Value) -> (String, bool) {
        let mut response = self.send(Method::POST, "/v1/chat/completions", &body.to_string()).await.unwrap();
        let mut text = Vec::new();
        while let Some(frame) = response.body_mut().frame().await {
            let Ok(frame) = frame else { return (String::from_utf8(text).unwrap(), true) };
            text.extend_from_slice(frame.data_ref().unwrap());
        }
        (String::from_utf8(text).unwrap(), false)
    }
}

fn chat(text: &str) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": text}]})
}

fn with(mut body: Value, fields: &Value) -> Value {
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

fn endless(text: &str) -> Value {
    with(chat(text), &json!({"stream": true, "ignore_eos": true, "max_tokens": 20_000}))
}

fn events(text: &str) -> Vec<&str> {
    text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap()).collect()
}

#[test]
fn the_defaults_of_the_options_are_those_of_the_model() {
    assert_eq!(Cli::parse_from(["engine"]).engine.settings(), tidegate_sim::engine::Settings::default());
}

#[tokio::test]
async fn a_chat_is_answered_in_openais_shape_and_says_that_no_model_did_it() {
    let engine = start(&[]).await;
    let body = chat("hello").to_string();
    let response = engine.send(Method::POST, "/v1/chat/completions", &body).await.unwrap();
    assert_eq!(response.headers()["x-tidegate-engine"], "stand-in");
    let (status, answer) = engine.post("/chat/completions", &chat("hello")).await;
    assert_eq!((status, &answer["object"], &answer["model"]), (200, &json!("chat.completion"), &json!("m")));
    let choice = &answer["choices"][0];
    let text = choice["message"]["content"].as_str().unwrap();
    assert!(text.starts_with("[tidegate engine: no model] ") && text.ends_with("end."), "{text}");
    assert_eq!((&choice["finish_reason"], &choice["message"]["role"]), (&json!("stop"), &json!("assistant")));
    let (usage, tokens) = (&answer["usage"], text.len() / 4);
    assert_eq!(usage["completion_tokens"], tokens);
    // <user>\nhello\n<assistant>\n
    assert_eq!((&usage["prompt_tokens"], &usage["total_tokens"]), (&json!(7), &json!(7 + tokens)));
}

#[tokio::test]
async fn a_stream_has_role_tokens_reason_usage_and_done() {
    let engine = start(&[]).await;
    let options =
        json!({"stream": true, "max_completion_tokens": 9, "stream_options": {"include_usage": true}});
    let (text, broken) = engine.stream(&with(chat("hello"), &options)).await;
    assert!(!broken);
    let events = events(&text);
    let (done, data) = events.split_last().unwrap();
    let data: Vec<Value> = data.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert_eq!((*done, data.len()), ("[DONE]", 1 + 9 + 2));
    assert_eq!(data[0]["choices"][0]["delta"], json!({"role": "assistant", "content": "", "refusal": null}));
    assert_eq!(data[1]["choices"][0]["delta"], json!({"content": "[tid"}));
    assert_eq!((&data[1]["object"], &data[1]["usage"]), (&json!("chat.completion.chunk"), &Value::Null));
    assert_eq!(data[10]["choices"][0]["finish_reason"], "length");
    assert_eq!((&data[11]["choices"], &data[11]["usage"]["completion_tokens"]), (&json!([]), &json!(9)));
    assert!(data.iter().all(|event| event["id"] == data[0]["id"]));
}

#[tokio::test]
async fn completions_take_text_or_token_numbers() {
    let engine = start(&[]).await;
    for (prompt, tokens) in [(json!("0123456789"), 3), (json!(["0123"]), 1), (json!([1, 2, 3, 4]), 4)] {
        let body = json!({"model": "m", "prompt": prompt, "max_tokens": 8});
        let (status, answer) = engine.post("/v1/completions", &body).await;
        assert_eq!((status, &answer["object"]), (200, &json!("text_completion")));
        assert_eq!(answer["choices"][0]["text"].as_str().unwrap().len(), 32);
        assert_eq!(answer["usage"]["prompt_tokens"], tokens);
    }
}

#[tokio::test]
async fn r2_a_second_turn_is_told_what_the_cache_saved() {
    let engine = start(&[]).await;
    let question = "what is the tide ".repeat(100);
    let (_, first) = engine.post("/v1/chat/completions", &chat(&question)).await;
    let messages = json!([
        {"role": "user", "content": question},
        first["choices"][0]["message"],
        {"role": "user", "content": "and then?"},
    ]);
    let (_, second) = engine.post("/v1/chat/completions", &json!({"model": "m", "messages": messages})).await;
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    let turn = first["usage"]["total_tokens"].as_u64().unwrap();
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert!(turn - cached <= 17, "{cached} of {turn}");
    assert_eq!(engine.metric("vllm:prefix_cache_hits_total").await, cached as f64);
}

#[tokio::test]
async fn embeddings_come_as_numbers_and_as_base64() {
    let engine = start(&[]).await;
    let ask =
        |format: &str| json!({"model": "m", "input": ["a", "b"], "dimensions": 2, "encoding_format": format});
    let (status, floats) = engine.post("/v1/embeddings", &ask("float")).await;
    assert_eq!((status, floats["data"].as_array().unwrap().len()), (200, 2));
    assert_ne!(floats["data"][0]["embedding"], floats["data"][1]["embedding"]);
    assert_eq!(floats["usage"], json!({"prompt_tokens": 2, "total_tokens": 2}));
    let vector: Vec<f64> = serde_json::from_value(floats["data"][0]["embedding"].clone()).unwrap();
    assert!((vector[0].hypot(vector[1]) - 1.0).abs() < 1e-6);
    let (_, coded) = engine.post("/v1/embeddings", &ask("base64")).await;
    assert_eq!(coded["data"][0]["embedding"].as_str().unwrap().len(), 12);
}

#[tokio::test]
async fn q4_a_client_that_leaves_frees_its_place_running_or_queued() {
    let engine = start(&["--slots", "2"]).await;
    let mut streams = Vec::new();
    for text in ["a", "b"] {
        let body = endless(text).to_string();
        streams.push(engine.send(Method::POST, "/v1/chat/completions", &body).await.unwrap());
    }
    engine.until(2.0, 0.0).await;
    let mut queued = JoinSet::new();
    let address = engine.address;
    for stream in [true, false] {
        let waits = Running { address, tasks: JoinSet::new() };
        let body = with(endless("c"), &json!({"stream": stream})).to_string();
        queued.spawn(async move { waits.send(Method::POST, "/v1/chat/completions", &body).await.is_ok() });
    }
    engine.until(2.0, 2.0).await;
    queued.shutdown().await;
    engine.until(2.0, 0.0).await;
    streams.clear();
    engine.until(0.0, 0.0).await;
    assert_eq!(engine.metric("vllm:kv_cache_usage_perc").await, 0.0);
    assert_eq!(engine.metric("vllm:request_success_total{engine=\"0\",finished_reason=\"abort\"").await, 4.0);
}

#[tokio::test]
async fn g2_the_metrics_page_speaks_vllms_dialect() {
    let engine = start(&["--kv-tokens", "1600"]).await;
    engine.post("/v1/chat/completions", &with(chat("hi"), &json!({"max_tokens": 5}))).await;
    let (status, page) = engine.get("/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "# TYPE vllm:num_requests_running gauge",
        "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 0.0",
        "vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 0.0",
        "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.0",
        "vllm:prompt_tokens_total{engine=\"0\",model_name=\"m\"} 6.0",
        "vllm:generation_tokens_total{engine=\"0\",model_name=\"m\"} 5.0",
        "vllm:prefix_cache_queries_total{engine=\"0\",model_name=\"m\"} 6.0",
        "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"+Inf\",model_name=\"m\"} 1.0",
        "vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=\"m\"} 1.0",
    ] {
        assert!(page.lines().any(|l| l == line), "{line} is not in\n{page}");
    }
    let info = page.lines().find(|line| line.starts_with("vllm:cache_config_info{")).unwrap();
    assert!(
        info.contains("block_size=\"16\"")
            && info.contains("num_gpu_blocks=\"100\"")
            && info.ends_with(" 1.0")
    );
}

#[tokio::test]
async fn until_it_is_loaded_it_says_so() {
    let engine = start(&["--load-time", "1h"]).await;
    for path in ["/health", "/v1/models"] {
        let (status, body) = engine.get(path).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["error"]["message"]), (503, &json!("Loading model")));
        assert_eq!(body["error"]["code"], 503);
    }
    assert_eq!(engine.post("/v1/chat/completions", &chat("hi")).await.0, 503);
    let engine = start(&[]).await;
    assert_eq!(engine.get("/health").await, (200, r#"{"status":"ok"}"#.to_owned()));
    let models: Value = serde_json::from_str(&engine.get("/v1/models").await.1).unwrap();
    assert_eq!((&models["object"], &models["data"][0]["id"]), (&json!("list"), &json!("m")));
}

#[tokio::test]
async fn h4_bad_requests_get_openais_errors() {
    let engine = start(&["--max-length", "64"]).await;
    let path = "/v1/chat/completions";
    let (status, text) = engine.text(Method::POST, path, "{\"model\": ").await;
    assert_eq!((status, text.contains("invalid_request_error")), (400, true));
    let cases = [
        (json!({"messages": []}), 400, Value::Null),
        (json!({"model": "m"}), 400, Value::Null),
        (json!({"model": "m", "messages": []}), 400, Value::Null),
        (json!({"model": "m", "messages": [1]}), 400, Value::Null),
        (json!({"model": "m", "messages": 7}), 400, Value::Null),
        (with(chat("x"), &json!({"n": 2})), 400, Value::Null),
        (with(chat("x"), &json!({"max_tokens": 0})), 400, Value::Null),
        (with(chat("x"), &json!({"model": "other"})), 404, json!("model_not_found")),
        (chat(&"x".repeat(300)), 400, json!("context_length_exceeded")),
        (with(chat("x"), &json!({"max_tokens": 64})), 400, json!("context_length_exceeded")),
    ];
    for (body, status, code) in cases {
        let (got, answer) = engine.post(path, &body).await;
        assert_eq!((got, &answer["error"]["code"]), (status, &code), "{body}: {answer}");
        assert!(answer["error"]["message"].is_string() && answer["error"]["type"].is_string());
    }
    assert_eq!(engine.get("/nothing").await.0, 404);
    // Paths that others serve are told as they were asked, with what there is.
    for path in ["/v1/responses", "/responses", "/v1/rerank"] {
        let (status, answer) = engine.post(path, &json!({"model": "m", "input": "x"})).await;
        let error = &answer["error"];
        assert_eq!(
            (status, &error["type"], &error["code"]),
            (404, &json!("invalid_request_error"), &json!("not_found"))
        );
        let has = "it has /v1/chat/completions, /v1/completions and /v1/embeddings";
        assert_eq!(error["message"], format!("A stand-in engine serves nothing at {path}; {has}"));
    }
    assert_eq!(engine.get(path).await.0, 405);
    assert_eq!(engine.get("/v1/models/other").await.0, 404);
}

#[tokio::test]
async fn over_the_queue_comes_503_with_retry_after() {
    let engine = start(&["--slots", "1", "--queue", "0"]).await;
    let held = engine.send(Method::POST, "/v1/chat/completions", &endless("a").to_string()).await.unwrap();
    let refused = engine.send(Method::POST, "/v1/chat/completions", &chat("b").to_string()).await.unwrap();
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    drop(held);
    engine.until(0.0, 0.0).await;
    assert_eq!(engine.post("/v1/chat/completions", &chat("b")).await.0, 200);
}

#[tokio::test]
async fn faults_of_requests_strike_as_often_as_commanded() {
    let engine = start(&[]).await;
    let (path, streamed) = ("/v1/chat/completions", with(chat("hi"), &json!({"stream": true})));
    engine.post("/faults", &json!({"refuse": 429, "count": 2})).await;
    for status in [429, 429, 200] {
        assert_eq!(engine.post(path, &chat("hi")).await.0, status);
    }
    engine.post("/faults", &json!({"die_after_tokens": 2})).await;
    let (text, broken) = engine.stream(&streamed).await;
    assert_eq!((events(&text).len(), text.ends_with("\n\n"), broken), (3, true, true));
    assert!(engine.send(Method::POST, path, &chat("hi").to_string()).await.is_err());
    engine.post("/faults", &json!({"die_after_tokens": 2, "cut_mid_event": true})).await;
    let (text, broken) = engine.stream(&streamed).await;
    assert_eq!((text.matches("data: ").count(), text.ends_with("\"content\":\""), broken), (4, true, true));
    engine.post("/faults", &json!({"die_after_tokens": 0})).await;
    assert!(engine.send(Method::POST, path, &streamed.to_string()).await.is_err());
    engine.post("/faults", &json!({"error_after_tokens": 1})).await;
    let (text, broken) = engine.stream(&streamed).await;
    let last: Value = serde_json::from_str(events(&text).last().unwrap()).unwrap();
    assert_eq!((&last["error"]["type"], broken), (&json!("server_error"), false));
    assert_eq!(
        engine.post("/faults", &json!({})).await.1,
        json!({"health": "ok", "cut_mid_event": false, "exit": false})
    );
    assert_eq!(engine.post(path, &chat("hi")).await.0, 200);
}

#[tokio::test]
async fn a_stalled_stream_stays_silent_and_costs_no_slot_once_the_client_leaves() {
    let engine = start(&[]).await;
    engine.post("/faults", &json!({"stall_after_tokens": 1})).await;
    let body = endless("hi").to_string();
    let mut response = engine.send(Method::POST, "/v1/chat/completions", &body).await.unwrap();
    let frame = response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.data_ref().unwrap().iter().filter(|b| **b == b'\n').count(), 4);
    // Many tokens later still nothing has come.
    while engine.metric("vllm:generation_tokens_total").await < 50.0 {}
    tokio::select! {
        biased;
        _ = response.body_mut().frame() => panic!("the stream went on"),
        () = tokio::task::yield_now() => {}
    }
    drop(response);
    engine.until(0.0, 0.0).await;
}

#[tokio::test]
async fn health_fails_or_is_slow_and_the_process_ends_on_command() {
    let mut engine = start(&[]).await;
    engine.post("/faults", &json!({"health": "fail"})).await;
    assert_eq!(engine.get("/health").await.0, 500);
    engine.post("/faults", &json!({"health": "slow"})).await;
    let ((slow, _), _) = tokio::join!(engine.get("/health"), async {
        // Lifted while the other waits for it.
        engine.get("/metrics").await;
        engine.post("/faults", &json!({"health": "ok"})).await
    });
    assert_eq!(slow, 200);
    let (status, error) = engine.post("/faults", &json!({"refuse": 200})).await;
    assert_eq!((status, &error["error"]["message"]), (400, &json!("refuse is 200; allowed are 400 to 599")));
    assert_eq!(engine.post("/faults", &json!({"refuze": 500})).await.0, 400);
    let _ = engine.send(Method::POST, "/faults", r#"{"exit": true}"#).await;
    assert!(matches!(engine.tasks.join_next().await.unwrap().unwrap(), Err(EngineError::Exit)));
}
