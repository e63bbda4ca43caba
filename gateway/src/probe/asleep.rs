//! Engines that can sleep: whether one does, and how it is asked to and woken, as vLLM has it (`GET /is_sleeping`,
//! `POST /sleep?level=1`, `POST /wake_up`). Decides neither who sleeps nor when.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Empty;
use serde::Deserialize;
use tidegate_scaler::fleet::NoSleep;

use super::{PATIENCE, excerpt};
use crate::once::{self, NoAnswer, Place};

/// Between two questions whether it sleeps yet, or still.
const AGAIN: Duration = Duration::from_millis(50);
/// For how long an engine is waited for here at most; whoever asks has a limit of his own.
const LONGEST: Duration = Duration::from_secs(600);

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

/// Asks the engine to sleep, with its weights kept in the machine's memory; ends when it does, which may be never: the
/// caller has a limit.
///
/// # Errors
/// [`NoSleep::Unknown`] where it knows no sleep, or is not set up for it.
pub async fn sleep(place: Place<'_>) -> Result<(), NoSleep> {
    match answered(place).await.map_err(failed)? {
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

/// Wakes the engine; ends when it says that it does not sleep any more, which may be never: the caller has a limit.
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
    while answered(place).await? == Some(!asleep) {
        tokio::time::sleep(AGAIN).await;
    }
    Ok(())
}

/// The first answer to the question whether it sleeps: an engine answers nobody while it moves its weights.
async fn answered(place: Place<'_>) -> Result<Option<bool>, NoAnswer> {
    loop {
        match is_asleep(place).await {
            Err(NoAnswer::Slow(_) | NoAnswer::Late(_)) => tokio::time::sleep(AGAIN).await,
            answer => return answer,
        }
    }
}

fn failed(none: NoAnswer) -> NoSleep {
    NoSleep::Failed(none.to_string())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::sleep as put_to_bed;
    use super::*;
    use crate::config::BaseUrl;
    use crate::upstream::dial::Site;

    /// The next connection, and what is asked over it.
    async fn next(listener: &TcpListener) -> (TcpStream, String) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut asked).await.unwrap(), 0, "a whole request");
        }
        let line = String::from_utf8(asked).unwrap();
        (stream, line.lines().next().unwrap_or_default().to_owned())
    }

    async fn says(mut stream: TcpStream, body: &str) {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).await.unwrap();
    }

    #[tokio::test]
    async fn c6_an_engine_that_answers_nobody_while_it_moves_its_weights_is_asked_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = BaseUrl::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let site = Site::plain(&url, LONGEST);
        let engine = async {
            let is_asleep = "GET /is_sleeping HTTP/1.1";
            for round in 0..2 {
                let (mute, asked) = next(&listener).await;
                assert_eq!(asked, is_asleep, "round {round}");
                tokio::time::pause();
                tokio::time::advance(PATIENCE * 2).await;
                tokio::time::resume();
                let (stream, asked) = next(&listener).await;
                assert_eq!(asked, is_asleep, "again in round {round}");
                drop(mute);
                says(
                    stream,
                    if round == 0 { r#"{"is_sleeping": false}"# } else { r#"{"is_sleeping": true}"# },
                )
                .await;
                if round == 0 {
                    let (stream, asked) = next(&listener).await;
                    assert_eq!(asked, "POST /sleep?level=1 HTTP/1.1");
                    says(stream, "").await;
                }
            }
        };
        let (slept, ()) = tokio::join!(put_to_bed(Place { site: &site, prefix: "" }), engine);
        assert!(slept.is_ok(), "{slept:?}");
    }
}
