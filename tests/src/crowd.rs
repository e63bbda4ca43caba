//! Many requests at little cost: a few connections of HTTP/2 that all of them share, and so many of them at a time.
//!
//! For tests that count. One that looks at connections, or cuts them, uses [`Client`](crate::client::Client), whose
//! requests have a connection each.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::client::{Answer, Stream};
use crate::deadline::within;

/// Clients of one server that share its connections. A clone shares them, too.
#[derive(Clone, Debug)]
pub struct Crowd {
    connections: Arc<[SendRequest<Full<Bytes>>]>,
    next: Arc<AtomicUsize>,
    server: SocketAddr,
}

impl Crowd {
    /// Opens so many connections; requests take them in turns.
    pub async fn of(server: SocketAddr, connections: usize) -> Self {
        let mut opened = Vec::new();
        for _ in 0..connections {
            let stream = within("a connection", TcpStream::connect(server)).await.expect("connect");
            stream.set_nodelay(true).expect("no delay");
            let (sender, connection) =
                handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("handshake");
            tokio::spawn(async move { drop(connection.await) });
            opened.push(sender);
        }
        Self { connections: opened.into(), next: Arc::default(), server }
    }

    /// Posts JSON and returns as soon as the head of the answer is there.
    pub async fn stream(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Stream {
        self.attempt(path, headers, body).await.expect("an answer")
    }

    /// The same for a server that may be about to leave.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn attempt(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Result<Stream, hyper::Error> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let mut sender = self.connections[turn % self.connections.len()].clone();
        let mut request = Request::post(format!("http://{}{path}", self.server));
        request = request.header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_string()))).expect("a request");
        let response = within("an answer", async move {
            sender.ready().await?;
            sender.send_request(request).await
        });
        response.await.map(Stream::from)
    }

    /// Posts JSON and reads the whole answer.
    pub async fn post(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.stream(path, headers, body).await.whole().await
    }
}

/// Does `work` for each number below `count`, for `width` of them at a time; gives the results in order of the numbers.
pub async fn at_a_time<T, W>(count: usize, width: usize, work: impl Fn(usize) -> W) -> Vec<T>
where
    T: Send + 'static,
    W: Future<Output = T> + Send + 'static,
{
    let (mut results, mut running) = (Vec::from_iter((0..count).map(|_| None)), JoinSet::new());
    for index in 0..count + width {
        if index < count {
            let work = work(index);
            running.spawn(async move { (index, work.await) });
        }
        if index + 1 >= width
            && let Some(done) = running.join_next().await
        {
            let (index, result) = done.expect("a piece of work");
            results[index] = Some(result);
        }
    }
    results.into_iter().map(|result| result.expect("all are done")).collect()
}
