//! A replica that speaks HTTP/2 in the clear at the level of frames, so that a test can say which stream is answered,
//! refused or left behind (RFC 9113).
//!
//! Reads just enough: headers are not decoded, and a request without a body is a probe, which gets 404.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::deadline::within;
use crate::frame::{ACK, END_HEADERS, END_STREAM, Frame, PREFACE, frame, kind, reason};

/// A request for work.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The connection that carried it; those that carried work are counted from 0.
    pub connection: usize,
    /// Its stream.
    pub stream: u32,
    /// Its body.
    pub body: Bytes,
}

/// What happens next on a connection.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// The stream is answered with 200.
    Answer(u32),
    /// The stream is answered with a header that HTTP/2 forbids.
    Malform(u32),
    /// The stream is refused: RST_STREAM with REFUSED_STREAM.
    Refuse(u32),
    /// GOAWAY: streams above this one are not worked on.
    GoAway(u32),
    /// The connection is closed.
    Close,
}

type Handler = Arc<dyn Fn(&[Asked]) -> Vec<Act> + Send + Sync>;

/// See the module. Dropped, it is killed.
pub struct Frames {
    address: SocketAddr,
    asked: Arc<watch::Sender<Vec<Asked>>>,
    life: JoinHandle<()>,
}

struct Inner {
    /// Streams at a time; `None` says nothing about it.
    streams: Option<u32>,
    handler: Handler,
    asked: Arc<watch::Sender<Vec<Asked>>>,
    working: Mutex<usize>,
}

impl Frames {
    /// A replica that takes so many streams at a time on a connection and acts as `handler` says after each request for
    /// work; it is given all requests of that connection so far, and stays silent where it says nothing.
    pub async fn start(
        streams: Option<u32>,
        handler: impl Fn(&[Asked]) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind");
        let address = listener.local_addr().expect("address");
        let asked = Arc::new(watch::Sender::new(Vec::new()));
        let inner = Inner {
            streams,
            handler: Arc::new(handler),
            asked: Arc::clone(&asked),
            working: Mutex::default(),
        };
        let life = tokio::spawn(accept(listener, Arc::new(inner)));
        Self { address, asked, life }
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Requests for work so far, over all connections.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.borrow().clone()
    }

    /// Waits until there were so many requests for work.
    pub async fn until_asked(&self, count: usize) -> Vec<Asked> {
        let mut asked = self.asked.subscribe();
        let found = within("requests arrive", asked.wait_for(|asked| asked.len() >= count)).await;
        found.expect("the replica lives").clone()
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.life.abort();
    }
}

async fn accept(listener: TcpListener, inner: Arc<Inner>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).expect("no delay");
        let inner = Arc::clone(&inner);
        connections.spawn(async move { serve(stream, &inner).await });
        while connections.try_join_next().is_some() {}
    }
}

/// Ends when the peer leaves or the handler says so.
async fn serve(mut wire: TcpStream, inner: &Inner) -> std::io::Result<()> {
    let settings = inner.streams.map_or_else(Vec::new, |most| [&[0, 3], &most.to_be_bytes()[..]].concat());
    wire.write_all(&frame(kind::SETTINGS, 0, 0, &settings)).await?;
    wire.read_exact(&mut [0; PREFACE.len()]).await?;
    let mut number = None;
    let mut here: Vec<Asked> = Vec::new();
    let mut bodies: Vec<(u32, Vec<u8>)> = Vec::new();
    loop {
        let Frame { kind, flags, stream, payload } = Frame::read(&mut wire).await?;
        match kind {
            kind::SETTINGS if flags & ACK == 0 => wire.write_all(&frame(kind::SETTINGS, ACK, 0, &[])).await?,
            kind::PING if flags & ACK == 0 => wire.write_all(&frame(kind::PING, ACK, 0, &payload)).await?,
            kind::HEADERS if flags & END_STREAM != 0 => {
                // 13 in the static table: status 404.
                wire.write_all(&frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &[0x80 | 13])).await?;
            }
            kind::HEADERS => bodies.push((stream, Vec::new())),
            kind::DATA => {
                let at = bodies.iter().position(|(known, _)| *known == stream).expect("headers come first");
                bodies[at].1.extend_from_slice(&payload);
                if flags & END_STREAM == 0 {
                    continue;
                }
                let body = bodies.remove(at).1.into();
                let connection = *number.get_or_insert_with(|| next(&inner.working));
                let asked = Asked { connection, stream, body };
                here.push(asked.clone());
                inner.asked.send_modify(|all| all.push(asked));
                for act in (inner.handler)(&here) {
                    match bytes(act) {
                        Some(bytes) => wire.write_all(&bytes).await?,
                        None => return Ok(()),
                    }
                }
            }
            _ => {}
        }
    }
}

fn next(counter: &Mutex<usize>) -> usize {
    let mut counter = counter.lock().expect("counter");
    *counter += 1;
    *counter - 1
}

/// `None`: the connection is closed.
fn bytes(act: Act) -> Option<Vec<u8>> {
    Some(match act {
        Act::Answer(stream) => {
            // 8 in the static table: status 200; then 31, content-type, with a value of 16 bytes.
            let head = [&[0x80 | 8, 0x0f, 31 - 15, 16][..], b"application/json"].concat();
            let body = br#"{"id":"c1","object":"chat.completion"}"#;
            let (head, body) = (
                frame(kind::HEADERS, END_HEADERS, stream, &head),
                frame(kind::DATA, END_STREAM, stream, body),
            );
            [head, body].concat()
        }
        Act::Malform(stream) => {
            let head = [&[0x80 | 8, 0, 10][..], b"connection", &[1], b"x"].concat();
            frame(kind::HEADERS, END_HEADERS, stream, &head)
        }
        Act::Refuse(stream) => frame(kind::RST_STREAM, 0, stream, &reason::REFUSED_STREAM.to_be_bytes()),
        Act::GoAway(last) => frame(kind::GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat()),
        Act::Close => return None,
    })
}
