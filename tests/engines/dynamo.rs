//! NVIDIA's mocker, which speaks of itself as vLLM, SGLang and TensorRT-LLM do.
//!
//! Its event sockets listen on all addresses, so it runs in a network namespace of its own, and so does the test that
//! talks to it: this binary starts itself there once more.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::json;
use tempfile::TempDir;
use tidegate::once::Place;
use tidegate::probe::dialect::Dialect;
use tidegate::probe::signals::Signals;
use tidegate_shared::replica::EngineReport;
use tidegate_tests::client::Client;
use tidegate_tests::deadline::eventually;
use tokio::process::{Child, Command};

use super::{not_tested, streams};

/// Set where the test runs in its own namespace.
const INSIDE: &str = "TIDEGATE_TEST_INSIDE";
/// Requests that the mocker runs at a time.
const SLOTS: u32 = 4;
/// What Dynamo's processes say.
const LOG: &str = "log";

fn python() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/test-env/mocker/bin/python")
}

/// A command that runs in a network namespace of its own, where only the loopback interface is. Whatever it started ends
/// with it.
fn alone(script: &str) -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    let script = format!("ip link set lo up && {script}");
    command
        .args(["--net", "--pid", "--fork", "--kill-child", "--", "sh", "-c", &script, "sh"])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

#[tokio::test]
async fn g2_the_mocker_is_understood_as_vllm_sglang_and_trtllm() {
    let what = "NVIDIA's mocker of vLLM, SGLang and TensorRT-LLM";
    if !python().exists() {
        return not_tested(what, "it is not installed; tests/setup.sh does that");
    }
    match alone("true").output().await {
        Err(error) => return not_tested(what, &format!("unshare: {error}")),
        Ok(output) if !output.status.success() => {
            let why = String::from_utf8_lossy(&output.stderr);
            return not_tested(what, &format!("no network namespace: {}", why.trim()));
        }
        Ok(_) => {}
    }
    let mut command = alone("exec \"$@\"");
    command.arg(std::env::current_exe().expect("own path")).env(INSIDE, "1");
    command.args(["--ignored", "--nocapture", "--exact", "dynamo::inside_a_namespace"]);
    // Each wait in there is bounded.
    let status = command.status().await.expect("start itself again");
    assert!(status.success(), "{status}; what it said is above");
}

#[tokio::test]
#[ignore = "runs only where the test above starts it"]
async fn inside_a_namespace() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    tokio::join!(
        understood("vllm", 7001, Dialect::Vllm, |report| report.running == Some(SLOTS)
            && report.waiting == Some(2)),
        // Its mocker takes prompts into the batch one by one.
        understood("sglang", 7002, Dialect::Sglang, |report| {
            let (running, waiting) = (report.running.unwrap_or(0), report.waiting.unwrap_or(0));
            (1..=SLOTS).contains(&running) && running + waiting == 6
        }),
        understood("trtllm", 7003, Dialect::TrtLlm, |report| {
            report.running == Some(SLOTS) && report.waiting == Some(2)
        }),
    );
}

/// Six streams on four slots look as they should, and so does the time after them.
async fn understood(engine: &str, port: u16, dialect: Dialect, busy: impl Fn(&EngineReport) -> bool) {
    let mocker = Mocker::start(engine, port).await;
    // Before its first request the mocker has no figures.
    let streams = streams(6, mocker.frontend, "tiny");
    let mut signals = Signals::default();
    eventually("the dialect is recognised", async || {
        let errors = signals.recognise(mocker.place()).await.map_err(|error| error.to_string())?;
        assert_eq!(errors, 0);
        if signals.dialect() == dialect { Ok(()) } else { Err(format!("{:?}", signals.dialect())) }
    })
    .await;
    let mut until = async |what: &str, wanted: &dyn Fn(&EngineReport) -> bool| {
        eventually(what, async || {
            let reading = signals.read(mocker.place()).await;
            assert_eq!(reading.errors, 0, "{reading:?}");
            if wanted(&reading.report) { Ok(()) } else { Err(format!("{engine}: {:?}", reading.report)) }
        })
        .await;
    };
    until("six requests on four slots", &busy).await;
    drop(streams);
    until("nothing", &|report| report.running == Some(0) && report.waiting == Some(0)).await;
}

/// Dynamo's frontend and one mocked engine. Dropped, both are killed.
struct Mocker {
    frontend: SocketAddr,
    /// Where the engine's page is.
    page: SocketAddr,
    _processes: [Child; 2],
    dir: TempDir,
}

impl Drop for Mocker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(self.dir.path().join(LOG)).unwrap_or_default());
        }
    }
}

impl Mocker {
    /// Its page is at `port`, which is free since nobody else is in the namespace; ports that the kernel gives are too
    /// large for the mocker's settings.
    async fn start(engine: &str, port: u16) -> Self {
        let dir = TempDir::with_prefix("tidegate-mocker-").expect("a folder");
        // Apart from all else: every file in it is published as part of the model.
        write_model(&dir.path().join("model"));
        let (frontend, page) = (free_port(), SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let planes = ["--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq"];
        let run = |module: &str, arguments: &[&str]| {
            let mut command = Command::new(python());
            command.args(["-m", module]).args(planes).args(arguments).current_dir(dir.path());
            for name in ["TCP_RPC_HOST", "HTTP_RPC_HOST", "EVENT_PLANE_HOST", "TCP_RESPONSE_STREAM_HOST"] {
                command.env(format!("DYN_{name}"), "127.0.0.1");
            }
            command.env("DYN_FILE_KV", dir.path().join("kv"));
            let log = File::options().append(true).create(true).open(dir.path().join(LOG)).expect("a log");
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
            if module == "dynamo.mocker" {
                command.env("DYN_SYSTEM_HOST", "127.0.0.1").env("DYN_SYSTEM_PORT", page.port().to_string());
            }
            command.spawn().expect("start Python")
        };
        let port = frontend.port().to_string();
        let slots = SLOTS.to_string();
        let processes = [
            run("dynamo.frontend", &["--http-host", "127.0.0.1", "--http-port", &port]),
            // Slow, so that nothing ends while it is looked at.
            run(
                "dynamo.mocker",
                &[
                    "--engine-type",
                    engine,
                    "--model-path",
                    "model",
                    "--model-name",
                    "tiny",
                    "--max-num-seqs",
                    &slots,
                    "--num-gpu-blocks-override",
                    "4096",
                    "--num-workers",
                    "1",
                    "--speedup-ratio",
                    "0.2",
                ],
            ),
        ];
        let mocker = Self { frontend, page, _processes: processes, dir };
        eventually("the mocker is up", async || {
            for address in [frontend, page] {
                tokio::net::TcpStream::connect(address).await.map_err(|error| error.to_string())?;
            }
            let listed = Client::h1(frontend).get("/v1/models").await.json();
            if listed["data"][0]["id"] == "tiny" { Ok(()) } else { Err(listed.to_string()) }
        })
        .await;
        mocker
    }

    fn place(&self) -> Place<'_> {
        Place { host: "127.0.0.1", port: self.page.port(), prefix: "", authority: "localhost" }
    }
}

fn free_port() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("address")
}

/// The least that Dynamo takes for a model: a tokenizer of single letters, and no weights.
fn write_model(dir: &Path) {
    let letters = ["<s>", "</s>", "Ġ", "Ċ"].map(str::to_owned).into_iter();
    let letters = letters.chain(('!'..='~').map(String::from));
    let vocabulary: serde_json::Map<_, _> =
        letters.zip(0..).map(|(letter, id)| (letter, json!(id))).collect();
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "special": true, "single_word": false, "lstrip": false,
               "rstrip": false, "normalized": false})
    };
    let bytes =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let files = [
        (
            "tokenizer.json",
            json!({
                "version": "1.0", "added_tokens": [special(0, "<s>"), special(1, "</s>")], "truncation": null,
                "padding": null, "normalizer": null, "post_processor": null, "pre_tokenizer": bytes, "decoder": bytes,
                "model": {"type": "BPE", "vocab": vocabulary, "merges": [], "fuse_unk": false, "byte_fallback": false},
            }),
        ),
        (
            "config.json",
            json!({
                "architectures": ["LlamaForCausalLM"], "model_type": "llama", "max_position_embeddings": 8192,
                "vocab_size": 98, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1,
                "bos_token_id": 0, "eos_token_id": 1,
            }),
        ),
        ("generation_config.json", json!({"bos_token_id": 0, "eos_token_id": 1})),
        (
            "tokenizer_config.json",
            json!({
                "bos_token": "<s>", "eos_token": "</s>",
                "chat_template": "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:",
            }),
        ),
    ];
    std::fs::create_dir(dir).expect("a folder");
    for (name, content) in files {
        std::fs::write(dir.join(name), content.to_string()).expect("write the model");
    }
}
