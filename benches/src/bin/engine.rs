//! Stands in for engines: answers at once, and costs as little as it can, so that what is measured is the proxy in front.
//!
//!     engine PORT… [--chunks N] [--pause MS]
//!
//! Health and models as probes want them; chat as 1 KB of JSON, or as a stream of `--chunks` events, `--pause`
//! milliseconds apart; embeddings as 30 KB. Ends with its parent's standard input.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use http::{StatusCode, Version};
use tidegate::http1::body::Left;
use tidegate::http1::fields::{Fields, Name, text};
use tidegate::http1::head::RequestHead;
use tidegate::http1::write::{self, After, Framing};
use tidegate_benches::wire::Wire;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// An event as chat streams have them.
const EVENT: &str = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"bench\",\
    \"choices\":[{\"index\":0,\"delta\":{\"content\":\"the tide comes in, the tide goes out\"},\"finish_reason\":null}]}\n\n";

#[derive(Clone, Copy)]
struct Stream {
    chunks: u32,
    pause: Duration,
}

fn chat() -> String {
    let text = "The tide comes in, the tide goes out. ".repeat(20);
    format!(
        "{{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"bench\",\"choices\":[{{\"index\":0,\
         \"message\":{{\"role\":\"assistant\",\"content\":\"{text}\"}},\"finish_reason\":\"stop\"}}],\
         \"usage\":{{\"prompt_tokens\":200,\"completion_tokens\":170,\"total_tokens\":370}}}}"
    )
}

fn embedding() -> String {
    let numbers = vec!["0.0123456789012345"; 1536].join(",");
    format!(
        "{{\"object\":\"list\",\"data\":[{{\"object\":\"embedding\",\"index\":0,\"embedding\":[{numbers}]}}],\"model\":\"bench\",\
         \"usage\":{{\"prompt_tokens\":8,\"total_tokens\":8}}}}"
    )
}

fn head(into: &mut Vec<u8>, kind: &'static str, framing: Framing) {
    let mut fields = Fields::default();
    fields.set(Name::ContentType, kind);
    let line = (Version::HTTP_11, StatusCode::OK);
    write::response(into, line, &fields, framing, After::Keep, std::time::SystemTime::now());
}

/// The next request and its body.
async fn request(wire: &mut Wire) -> io::Result<Option<(RequestHead, BytesMut)>> {
    let Some(message) = wire.request().await? else { return Ok(None) };
    let length = message.fields.get(Name::ContentLength).and_then(|value| text(value)?.parse().ok());
    let mut left = Left::Length(length.unwrap_or(0));
    let mut body = BytesMut::new();
    while let Some(piece) = wire.piece(&mut left).await? {
        body.extend_from_slice(&piece);
    }
    Ok(Some((message, body)))
}

async fn serve(mut wire: Wire, stream: Stream) -> io::Result<()> {
    let (chat, embedding) = (chat(), embedding());
    while let Some((request, body)) = request(&mut wire).await? {
        let mut out = Vec::new();
        let path = request.target.path();
        let streams = body.windows(13).any(|part| part == b"\"stream\":true");
        let whole = match path {
            _ if path.ends_with("/embeddings") => &embedding,
            _ if path.ends_with("/models") => {
                "{\"object\":\"list\",\"data\":[{\"id\":\"bench\",\"object\":\"model\"}]}"
            }
            "/health" => "{}",
            _ if streams => {
                head(&mut out, "text/event-stream", Framing::Chunked);
                tell(&mut wire, out, stream).await?;
                continue;
            }
            _ => &chat,
        };
        head(&mut out, "application/json", Framing::Length(whole.len() as u64));
        out.extend_from_slice(whole.as_bytes());
        wire.send(&out).await?;
    }
    Ok(())
}

async fn tell(wire: &mut Wire, mut out: Vec<u8>, stream: Stream) -> io::Result<()> {
    let mut due = Instant::now();
    for index in 0..stream.chunks {
        write::chunk(&mut out, &EVENT.into());
        if index + 1 == stream.chunks {
            write::chunk(&mut out, &"data: [DONE]\n\n".into());
            out.extend_from_slice(b"0\r\n\r\n");
        }
        wire.send(&out).await?;
        out.clear();
        due += stream.pause;
        tokio::time::sleep_until(due).await;
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let mut stream = Stream { chunks: 50, pause: Duration::from_millis(20) };
    let mut ports = Vec::new();
    let mut words = std::env::args().skip(1);
    let bad = |word: &str| io::Error::other(format!("{word} wants a number"));
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|number| number.parse().ok()).ok_or_else(|| bad(&word));
        match word.as_str() {
            "--chunks" => stream.chunks = number()?,
            "--pause" => stream.pause = Duration::from_millis(number()?.into()),
            port => ports.push(port.parse::<u16>().map_err(|_| bad(port))?),
        }
    }
    tidegate_benches::wire::run(async move {
        for port in ports {
            let listener = TcpListener::bind(("127.0.0.1", port)).await?;
            tokio::task::spawn_local(async move {
                while let Ok((client, _)) = listener.accept().await {
                    if let Ok(wire) = Wire::new(client) {
                        tokio::task::spawn_local(serve(wire, stream));
                    }
                }
            });
        }
        tidegate_benches::wire::until_orphaned().await;
        Ok(())
    })
}
