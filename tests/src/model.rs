//! The real engine and the real model of `quickstart`, prepared once for all tests of a process and fetched once for
//! all runs of a user.

use std::path::Path;

use tidegate::quickstart::{Engine, Progress, prepare};
use tokio::sync::OnceCell;
use toml::{Table, Value};

use crate::config::Deployment;
use crate::sdk::missing;

/// The engine; `None`, said aloud, when there is none and none can be fetched.
pub async fn engine() -> Option<&'static Engine> {
    static ENGINE: OnceCell<Result<Engine, String>> = OnceCell::const_new();
    let prepared = ENGINE
        .get_or_init(|| async { prepare(&Progress::stderr()).await.map_err(|error| error.to_string()) });
    match prepared.await {
        Ok(engine) => Some(engine),
        Err(error) => {
            missing(&format!("a real engine: {error}"));
            None
        }
    }
}

/// A deployment of the model under its usual name, with real engines as replicas and no other setting.
pub fn deployment(engine: &Engine) -> Deployment {
    let command: Vec<&str> = engine.command.iter().map(String::as_str).collect();
    let env = engine.env.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
    Deployment::named(engine.model).process(&command).set("process.env", env.collect::<Table>())
}

/// A deployment `embedder` of the same model that makes embeddings.
pub fn embedder(engine: &Engine) -> Deployment {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join("embedder.py");
    let script = script.display().to_string();
    let model = engine.command.iter().find(|word| word.ends_with(".gguf")).map_or("", String::as_str);
    let program = engine.command.first().map_or("", String::as_str);
    let deployment = Deployment::named("embedder").set("task", "embeddings");
    if program.ends_with("llama-server") {
        let words = [program, "-m", model, "-a", "embedder", "--host", "127.0.0.1", "--port", "{port}"];
        return deployment.process(&[&words[..], &["-t", "1", "--embeddings", "--pooling", "mean"]].concat());
    }
    deployment.process(&[program, "-I", &script, model, "{port}"])
}
