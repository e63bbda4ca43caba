//! `/v1/models`, answered from the configuration, so that a model scaled to zero is listed (H2).

use bytes::Bytes;
use serde::Serialize;

use crate::deployment::Directory;

#[derive(Debug, Serialize)]
struct Model<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
}

#[derive(Debug, Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Model<'a>>,
}

/// The list of all names that clients may send, aliases among them. `created` is the time at which the gateway
/// started, in seconds of Unix time.
pub fn list(directory: &Directory, created: u64) -> Bytes {
    let names =
        directory.iter().flat_map(|deployment| std::iter::once(&deployment.name).chain(&deployment.aliases));
    let data = names.map(|name| model(name.as_str(), created)).collect();
    written(&List { object: "list", data })
}

/// One of them; `None` when no deployment serves it.
pub fn one(directory: &Directory, name: &str, created: u64) -> Option<Bytes> {
    directory.find(name)?;
    Some(written(&model(name, created)))
}

fn model(id: &str, created: u64) -> Model<'_> {
    Model { id, object: "model", created, owned_by: "tidegate" }
}

fn written(value: &impl Serialize) -> Bytes {
    Bytes::from(serde_json::to_vec(value).unwrap_or_default())
}
