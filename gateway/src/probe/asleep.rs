//! Engines that can sleep: whether one does, and how it is asked to and woken, as vLLM has it (`GET /is_sleeping`,
//! `POST /sleep?level=1`, `POST /wake_up`). Decides neither who sleeps nor when.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Empty;
use serde::Deserialize;
use tidegate_scaler::fleet::NoSleep;

use super::excerpt;
use crate::once::{self, NoAnswer, Place};

/// Between two questions whether it sleeps yet, or still.
const AGAIN: Duration = Duration::from_millis(50);
/// For how long an engine is waited for here at most; whoever asks has a limit of his own.
const LONGEST: Duration = Duration::from_secs(600);

/// How long the answer to the question whether it sleeps may take.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Deserialize)]
struct State {
    is_sleeping: bool,
}

/// Whether the engine at `place` sleeps; `None` where it knows no sleep.
///
/// # Errors
/// There is no answer.
pub async fn is_asleep(place: Place<'_>) -> Result<Option<bool>, NoAnswer> {
    let (status, body) = once::get(place, "/is_sleeping", PATIENCE).await?;
    let state = serde_json::from_slice::<State>(&body).ok().filter(|_| status == StatusCode::OK);
    Ok(state.map(|state| state.is_sleeping))
}

/// Asks the engine to sleep, with its weights kept in the machine's memory; ends when it does.
///
/// # Errors
/// [`NoSleep::Unknown`] where it knows no sleep, or is not set up for it.
pub async fn sleep(place: Place<'_>) -> Result<(), NoSleep> {
    match is_asleep(place).await.map_err(failed)? {
        None => return Err(NoSleep::Unknown),
        Some(true) => return Ok(()),
        Some(false) => {}
    }
    let (status, body) = post(place, "/sleep?level=1").await.map_err(failed)?;
    match status {
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
            return Err(NoSleep::Unknown);
        }
        status if status.is_success() => {}
        status => return Err(NoSleep::Failed(format!("/sleep answers {status}: {}", excerpt(&body)))),
    }
    until(place, true).await.map_err(failed)
}

/// Wakes the engine; ends when it says that it does not sleep any more.
///
/// # Errors
/// Why it does not wake up, for people.
pub async fn wake(place: Place<'_>) -> Result<(), String> {
    let (status, body) = post(place, "/wake_up").await.map_err(|none| none.to_string())?;
    if !status.is_success() {
        return Err(format!("/wake_up answers {status}: {}", excerpt(&body)));
    }
    until(place, false).await.map_err(|none| none.to_string())
}

async fn post(place: Place<'_>, path: &str) -> Result<(StatusCode, Bytes), NoAnswer> {
    let request =
        Request::post(path).body(Empty::<Bytes>::new()).map_err(|_| format!("{path} is no path"))?;
    let response = once::ask(place, request, LONGEST).await?;
    Ok((response.status(), response.into_body()))
}

/// Some versions answer before it is done.
async fn until(place: Place<'_>, asleep: bool) -> Result<(), NoAnswer> {
    while is_asleep(place).await? == Some(!asleep) {
        tokio::time::sleep(AGAIN).await;
    }
    Ok(())
}

fn failed(none: NoAnswer) -> NoSleep {
    NoSleep::Failed(none.to_string())
}
