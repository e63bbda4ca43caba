//! `tidegate quickstart`: gets a real engine and a small real model onto a machine that has Python 3 and nothing else,
//! and says how a replica of it is run. Serving is not its business, and neither is any replica that already runs.
//!
//! The engine is `llama-server` if it is on `PATH`, else llama.cpp's server as a Python package in a private virtual
//! environment. Versions and hashes are pinned in [`Pins`]; everything that is fetched goes to one cache folder.

mod banner;
mod error;
mod fetch;
mod hello;
mod lock;
mod pins;
mod place;
mod progress;
mod python;
mod stamp;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

pub use banner::banner;
pub use error::{Cause, QuickstartError};
pub use hello::{Answer, HelloError, hello};
pub use pins::{Model, Package, Pins};
pub use place::Place;
pub use progress::Progress;

use store::Store;

/// The name that the model is served by.
pub const MODEL: &str = "smollm2";

/// Requests that one replica works on at a time.
pub const SLOTS: u32 = 2;

/// Tokens, prompt and answer together, that one request may take.
pub const CONTEXT: u32 = 2048;

/// How to run a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Program and arguments; one of them is `{port}`, to be replaced by a free port of 127.0.0.1.
    pub command: Vec<String>,
    /// Variables to set for it on top of the inherited ones.
    pub env: BTreeMap<String, String>,
    /// The name that it knows its model by.
    pub model: &'static str,
    /// Requests that it works on at a time; more wait inside it.
    pub slots: u32,
    /// Tokens that one request may take.
    pub context: u32,
    /// What it is and where it is from, one line for people.
    pub source: String,
}

/// Finds an engine and its model, or fetches them, into the user's cache folder. When both are there it takes
/// milliseconds and starts no child; else seconds to minutes, by the network. Dropping the future ends the fetch, and
/// the next call recovers.
///
/// # Errors
/// One [`Cause`] with the way out, made for people; its text ends in the offer of the built-in engine.
pub async fn prepare(progress: &Progress) -> Result<Engine, QuickstartError> {
    prepare_in(&Place::of_user()?, &Pins::shipped(), progress).await
}

/// [`prepare`] for another place, or other versions.
///
/// # Errors
/// As [`prepare`].
pub async fn prepare_in(place: &Place, pins: &Pins, progress: &Progress) -> Result<Engine, QuickstartError> {
    let server = place.program("llama-server");
    let store = Store { place, pins, engine: server.is_none() };
    if !store.whole() {
        fetch::fill(store, progress).await?;
    }
    Ok(match server {
        Some(server) => installed(&server, &store.model()),
        None => packaged(&store),
    })
}

/// The user's own llama.cpp.
fn installed(server: &Path, model: &Path) -> Engine {
    let (slots, total) = (SLOTS.to_string(), (CONTEXT * SLOTS).to_string());
    let (server, model) = (text(server), text(model));
    let fixed = [
        "--host",
        "127.0.0.1",
        "--port",
        "{port}",
        "-t",
        "1",
        "-tb",
        "1",
        "-n",
        "512",
        "--metrics",
        "--slots",
    ];
    let mut command = vec![server.clone(), "-m".into(), model.clone(), "-a".into(), MODEL.into()];
    command.extend(fixed.map(String::from));
    command.extend(["-np".into(), slots, "-c".into(), total]);
    // As a variable, because versions that do not know the limit refuse the argument. Their default is 8 GiB or none.
    let env = BTreeMap::from([("LLAMA_ARG_CACHE_RAM".into(), "256".into())]);
    engine(command, env, format!("{server} with {model}"))
}

/// llama.cpp's server from the private environment.
fn packaged(store: &Store<'_>) -> Engine {
    let model = text(&store.model());
    let head =
        [text(&store.venv().python()), "-I".into(), text(&store.launcher()), model.clone(), "{port}".into()];
    let tail = [SLOTS.to_string(), CONTEXT.to_string(), MODEL.into()];
    let source = format!("llama.cpp's server ({}) with {model}", store.pins.engine.title());
    engine(head.into_iter().chain(tail).collect(), BTreeMap::new(), source)
}

fn engine(command: Vec<String>, env: BTreeMap<String, String>, source: String) -> Engine {
    Engine { command, env, model: MODEL, slots: SLOTS, context: CONTEXT, source }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
