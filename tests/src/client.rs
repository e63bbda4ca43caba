//! Clients: one that sends any bytes over a raw socket and can leave at any moment, and a well-behaved one for
//! HTTP/1.1 and for HTTP/2: in the clear with prior knowledge, or as agreed on inside TLS.
//!
//! Each request of the well-behaved client has a connection of its own, so that no test depends on another's.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::deadline::within;
use crate::front::{self, Pipe, Trust};
use crate::partly::Partly;
use crate::wire::{Framing, Head, Wire, find};

/// The version that a [`Client`] speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.1.
    H1,
    /// HTTP/2; in the clear with prior knowledge.
    H2,
}

/// A well-behaved client of one server.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    server: SocketAddr,
    version: Version,
    trust: Option<&'static Trust>,
}

impl Client {
    /// A client that speaks HTTP/1.1.
    pub fn h1(server: SocketAddr) -> Self {
        Self { server, version: Version::H1, trust: None }
    }

    /// A client that speaks HTTP/2.
    pub fn h2(server: SocketAddr) -> Self {
        Self { server, version: Version::H2, trust: None }
    }

    /// The same client, inside TLS where there is somebody to trust.
    pub fn inside(self, trust: Option<&'static Trust>) -> Self {
        Self { trust, ..self }
    }

    /// The version that it speaks.
    pub fn version(self) -> Version {
        self.version
    }

    async fn connect(self) -> io::Result<Box<dyn Pipe>> {
        front::reach(self.server, self.trust, self.version == Version::H2).await
    }

    /// Gets a path.
    pub async fn get(self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    /// Posts JSON.
    pub async fn post(self, path: &str, body: &Value) -> Answer {
        self.post_with(path, &[], body).await
    }

    /// Posts JSON with headers.
    pub async fn post_with(self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.send(Method::POST, path, headers, body.to_string()).await
    }

    /// Sends any request and reads the whole answer.
    pub async fn send(
        self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let stream = self.open(method, path, headers, body).await;
        stream.whole().await
    }

    /// Posts JSON and returns as soon as the head of the answer is there.
    pub async fn stream(self, path: &str, body: &Value) -> Stream {
        self.open(Method::POST, path, &[], body.to_string()).await
    }

    /// Sends any request and returns as soon as the head of the answer is there. A body is JSON unless a header says
    /// otherwise.
    pub async fn open(
        self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Stream {
        let request = self.typed(method, path, headers, body.into());
        let stream = within("a connection", self.connect()).await.expect("connect");
        Stream::from(within("an answer", self.exchange(stream, request)).await.expect("an answer"))
    }

    /// Sends any request to a server that may die meanwhile; `None` where there is no connection, or no whole answer.
    pub async fn attempt(self, method: Method, path: &str, body: impl Into<Bytes>) -> Option<Answer> {
        let request = self.typed(method, path, &[], body.into());
        let stream = within("a connection, or none", self.connect()).await.ok()?;
        let mut answer =
            Stream::from(within("an answer, or its end", self.exchange(stream, request)).await.ok()?);
        while let Some(more) = answer.bytes().await.ok()? {
            answer.ahead.extend_from_slice(&more);
        }
        Some(answer.whole().await)
    }

    /// A request whose body, if it has one, is JSON unless a header says otherwise.
    fn typed(
        self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Request<Full<Bytes>> {
        let of_no_type = !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let json = [("content-type", "application/json")];
        let typed = &json[..usize::from(of_no_type && !body.is_empty())];
        self.request(method, path, &[typed, headers].concat(), Full::new(body))
    }

    /// Posts a body of JSON piece by piece and returns as soon as the head of the answer is there. Where no header tells
    /// its length, it goes out in chunks over HTTP/1.1 and without a length over HTTP/2.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn upload(
        self,
        path: &str,
        headers: &[(&str, &str)],
        body: Partly,
    ) -> Result<Stream, hyper::Error> {
        let headers = [&[("content-type", "application/json")], headers].concat();
        let request = self.request(Method::POST, path, &headers, body);
        let stream = within("a connection", self.connect()).await.expect("connect");
        within("an answer, or its end", self.exchange(stream, request)).await.map(Stream::from)
    }

    fn request<B>(self, method: Method, path: &str, headers: &[(&str, &str)], body: B) -> Request<B> {
        let mut request = Request::builder().method(method);
        request = match self.version {
            Version::H1 => request.uri(path).header("host", self.server.to_string()),
            Version::H2 if self.trust.is_some() => request.uri(format!("https://{}{path}", self.server)),
            Version::H2 => request.uri(format!("http://{}{path}", self.server)),
        };
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(body).expect("a request")
    }

    async fn exchange<B>(
        self,
        stream: Box<dyn Pipe>,
        request: Request<B>,
    ) -> Result<Response<Incoming>, hyper::Error>
    where
        B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
    {
        let io = TokioIo::new(stream);
        match self.version {
            Version::H1 => {
                let (mut sender, connection) = http1::handshake(io).await?;
                tokio::spawn(async move { drop(connection.await) });
                sender.send_request(request).await
            }
            Version::H2 => {
                let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
                tokio::spawn(async move { drop(connection.await) });
                sender.send_request(request).await
            }
        }
    }
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Answer {
    /// A header as text; empty when it is missing.
    pub fn header(&self, name: &str) -> &str {
        text(&self.headers, name)
    }

    /// Its body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// An answer that is still coming. Dropped, the client has left.
#[derive(Debug)]
pub struct Stream {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    body: Incoming,
    ahead: BytesMut,
}

impl From<Response<Incoming>> for Stream {
    fn from(response: Response<Incoming>) -> Self {
        let (parts, body) = response.into_parts();
        Self { status: parts.status.as_u16(), headers: parts.headers, body, ahead: BytesMut::new() }
    }
}

impl Stream {
    /// A header as text; empty when it is missing.
    pub fn header(&self, name: &str) -> &str {
        text(&self.headers, name)
    }

    /// The next bytes as they come; `None` at the proper end; `Err` when the transfer is cut.
    async fn bytes(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        loop {
            match within("the next bytes of an answer", self.body.frame()).await {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Reads on until there are as many bytes as in `wanted`, which they must be.
    pub async fn begins(&mut self, wanted: &str) {
        while self.ahead.len() < wanted.len() {
            let more = self.bytes().await.expect("the answer goes on").expect("more of the answer");
            self.ahead.extend_from_slice(&more);
        }
        assert_eq!(String::from_utf8_lossy(&self.ahead), wanted);
    }

    /// Reads on until the transfer is cut, which must come before its proper end. Gives the bytes before that.
    pub async fn cut(mut self) -> Bytes {
        while let Ok(more) = self.bytes().await {
            let more = more.expect("a cut, and no proper end");
            self.ahead.extend_from_slice(&more);
        }
        self.ahead.freeze()
    }

    /// Reads on until it ends, however it does; gives whether it ended properly.
    pub async fn end(mut self) -> bool {
        loop {
            match self.bytes().await {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// The next event with its empty line; `None` at the proper end of the stream.
    pub async fn event(&mut self) -> Option<String> {
        loop {
            if let Some(at) = find(&self.ahead, b"\n\n") {
                return Some(String::from_utf8_lossy(&self.ahead.split_to(at + 2)).into_owned());
            }
            match self.bytes().await.expect("the stream goes on") {
                Some(bytes) => self.ahead.extend_from_slice(&bytes),
                None => {
                    assert!(self.ahead.is_empty(), "bytes after the last event: {:?}", self.ahead);
                    return None;
                }
            }
        }
    }

    /// The rest of the answer, which must end properly.
    pub async fn whole(mut self) -> Answer {
        while let Some(bytes) = self.bytes().await.expect("the answer goes on") {
            self.ahead.extend_from_slice(&bytes);
        }
        Answer { status: self.status, headers: self.headers, body: self.ahead.freeze() }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// A client that sends any bytes. Dropped, it closes the connection.
#[derive(Debug)]
pub struct Raw {
    wire: Wire,
}

/// Some bytes of a body and when they came.
#[derive(Clone, Debug)]
pub struct Piece {
    /// When they were read.
    pub at: Instant,
    /// The bytes.
    pub bytes: Bytes,
}

impl Raw {
    /// A connection to a server.
    pub async fn connect(server: SocketAddr) -> Self {
        let stream = within("a connection", TcpStream::connect(server)).await.expect("connect");
        Self { wire: Wire::new(stream) }
    }

    /// A connection over which a POST with this body was sent.
    pub async fn posted(server: SocketAddr, path: &str, body: &str) -> Self {
        let mut raw = Self::connect(server).await;
        raw.send(post(path, &[&format!("content-length: {}", body.len())])).await;
        raw.send(body).await;
        raw
    }

    /// Sends bytes; the server must take them.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        assert!(self.offer(bytes).await, "the server did not take the bytes");
    }

    /// Sends bytes; `false` when the server has closed.
    pub async fn offer(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        within("the server takes bytes", self.wire.send_unless_gone(bytes.as_ref())).await
    }

    /// The head of the next answer; `None` when the server closed without one.
    pub async fn head(&mut self) -> Option<Head> {
        within("the head of an answer", self.wire.head()).await.ok().flatten()
    }

    /// The next piece of a body; see [`Wire::piece`].
    pub async fn piece(&mut self, framing: &mut Framing) -> std::io::Result<Option<Piece>> {
        let bytes = within("a piece of an answer", self.wire.piece(framing)).await?;
        Ok(bytes.map(|bytes| Piece { at: Instant::now(), bytes }))
    }

    /// The body that follows a head, and whether it ended properly.
    pub async fn body(&mut self, head: &Head) -> (Bytes, std::io::Result<()>) {
        within("the body of an answer", self.wire.body(head.framing(Framing::Close))).await
    }

    /// All bytes up to the end of the connection, whatever they are.
    pub async fn rest(&mut self) -> Bytes {
        within("the end of the connection", self.wire.body(Framing::Close)).await.0
    }

    /// Sends no more, and still listens.
    pub async fn finish(&mut self) {
        self.wire.finish().await.expect("half close");
    }

    /// Leaves by a reset.
    pub fn reset(self) {
        self.wire.reset();
    }
}

/// The head of a POST of JSON; `headers` are lines without their ends.
pub fn post(path: &str, headers: &[&str]) -> String {
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: tidegate\r\ncontent-type: application/json\r\n");
    for line in headers {
        head.push_str(line);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    head
}
