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

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The client's first bytes.
const PREFACE: usize = 24;

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
    wire.write_all(&frame(SETTINGS, 0, 0, &settings)).await?;
    wire.read_exact(&mut [0; PREFACE]).await?;
    let mut number = None;
    let mut here: Vec<Asked> = Vec::new();
    let mut bodies: Vec<(u32, Vec<u8>)> = Vec::new();
    loop {
        let (kind, flags, stream, payload) = read(&mut wire).await?;
        match kind {
            SETTINGS if flags & ACK == 0 => wire.write_all(&frame(SETTINGS, ACK, 0, &[])).await?,
            PING if flags & ACK == 0 => wire.write_all(&frame(PING, ACK, 0, &payload)).await?,
            HEADERS if flags & END_STREAM != 0 => {
                // 13 in the static table: status 404.
                wire.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &[0x80 | 13])).await?;
            }
            HEADERS => bodies.push((stream, Vec::new())),
            DATA => {
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

/// The next frame: type, flags, stream, payload.
async fn read(wire: &mut TcpStream) -> std::io::Result<(u8, u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    wire.read_exact(&mut head).await?;
    let [a, b, c, kind, flags, stream @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    wire.read_exact(&mut payload).await?;
    Ok((kind, flags, u32::from_be_bytes(stream) & 0x7fff_ffff, payload))
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `None`: the connection is closed.
fn bytes(act: Act) -> Option<Vec<u8>> {
    Some(match act {
        Act::Answer(stream) => {
            // 8 in the static table: status 200; then 31, content-type, with a value of 16 bytes.
            let head = [&[0x80 | 8, 0x0f, 31 - 15, 16][..], b"application/json"].concat();
            let body = br#"{"id":"c1","object":"chat.completion"}"#;
            let (head, body) =
                (frame(HEADERS, END_HEADERS, stream, &head), frame(DATA, END_STREAM, stream, body));
            [head, body].concat()
        }
        Act::Malform(stream) => {
            let head = [&[0x80 | 8, 0, 10][..], b"connection", &[1], b"x"].concat();
            frame(HEADERS, END_HEADERS, stream, &head)
        }
        Act::Refuse(stream) => frame(RST_STREAM, 0, stream, &7u32.to_be_bytes()),
        Act::GoAway(last) => frame(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat()),
        Act::Close => return None,
    })
}
