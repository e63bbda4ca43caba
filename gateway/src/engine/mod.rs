//! `tidegate engine`: a stand-in engine, its own process, that speaks the OpenAI API in real time and says in each
//! answer that it is no model.
//!
//! What it costs and when each token appears is decided by the model of an engine in `tidegate-sim`; here that
//! model gets a clock and a socket. It never pretends to understand: an answer depends on the hash of its prompt.
//!
//! One task owns the model (`driver`), one task serves each connection (`serve`), and an answer follows its
//! progress (`relay`). A client that leaves drops its answer, which takes the request out of the engine. What
//! `POST /faults` does is written in `faults`, and in `tidegate engine --help`.

mod args;
mod clock;
mod driver;
mod faults;
mod openai;
mod page;
mod relay;
mod reply;
mod serve;
mod sleep;
#[cfg(test)]
mod tests;
mod text;

pub use self::args::{EngineArgs, EngineError};
pub use self::serve::Server;

/// Serves until SIGTERM or SIGINT, then ends at once, whatever is under way, as real engines do.
///
/// # Errors
/// [`EngineError`]: the address is taken, or the fault `exit` was commanded.
pub async fn run(args: EngineArgs) -> Result<(), EngineError> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminate = signal(SignalKind::terminate()).map_err(EngineError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(EngineError::Signals)?;
    let server = Server::bind(&args).await?;
    tracing::info!("stand-in engine for `{}` on http://{}; it is no model", args.model, server.address());
    tokio::select! {
        ended = server.serve() => ended,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}
