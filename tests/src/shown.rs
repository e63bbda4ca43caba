//! What `/status` shows of replicas.

use serde_json::Value;

/// The replicas of the first deployment of a status.
pub fn replicas(status: &Value) -> Vec<Value> {
    status["deployments"][0]["replicas"].as_array().cloned().unwrap_or_default()
}

/// Name and port of each of them; port 0 while it has no address.
pub fn shown(status: &Value) -> Vec<(String, u16)> {
    let one = |replica: &Value| {
        let port = replica["url"].as_str().and_then(|url| url.rsplit(':').next()?.parse().ok());
        (replica["id"].as_str().unwrap_or_default().to_owned(), port.unwrap_or(0))
    };
    let mut all: Vec<_> = replicas(status).iter().map(one).collect();
    all.sort();
    all
}
