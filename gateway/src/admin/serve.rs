//! Connections of the operator's side and what stands before each of its requests, as a stack of layers: who comes while
//! too many are being answered is told so at once, and a handler that panics is answered for. Knows no path.

use std::convert::Infallible;
use std::net::TcpListener;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Method, Request, Response};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;
use tower::util::BoxCloneService;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

use super::Admin;
use super::ask::Refusal;
use super::tune::Feed;
use crate::clock::Seldom;
use crate::telemetry::meter;

/// How long a connection may be idle or take to send a request's head.
const HEADER_READ: Duration = Duration::from_secs(30);
/// Requests with a body that are answered at a time.
const REQUESTS: usize = 32;

type Answer = Response<Either<Full<Bytes>, Feed>>;

/// Serves the operator's side for ever, on so many `connections` at a time; who comes then waits until one ends. They take
/// descriptors that clients want.
pub async fn serve(listener: TcpListener, admin: Arc<Admin>, connections: usize) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!("the admin port cannot be served: {error}");
            return;
        }
    };
    let room = Arc::new(Semaphore::new(connections));
    let (clock, stuck) = (admin.gateway.clock, Seldom::default());
    let looks = caught(service_fn(move |request: Request<Incoming>| {
        let admin = Arc::clone(&admin);
        async move { Ok::<_, Infallible>(admin.answer(request).await) }
    }));
    let brings = limited(looks.clone());
    // Who only looks brings no body that he could be slow with, and must be able to when others are.
    let service = service_fn(move |request: Request<Incoming>| {
        let (looks, brings) = (looks.clone(), brings.clone());
        async move {
            match *request.method() {
                Method::GET | Method::HEAD => looks.oneshot(request).await,
                _ => brings.oneshot(request).await,
            }
        }
    });
    // Nobody closes it.
    while let Ok(place) = Arc::clone(&room).acquire_owned().await {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                if stuck.is_due(clock.now()) {
                    tracing::warn!("cannot accept a connection on the admin port: {error}");
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let _place = place;
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_READ)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// `inner`, of which a panic is answered and counted.
fn caught<R, S>(inner: S) -> BoxCloneService<R, Answer, Infallible>
where
    R: Send + 'static,
    S: Service<R, Response = Answer, Error = Infallible, Future: Send> + Clone + Send + 'static,
{
    BoxCloneService::new(service_fn(move |request: R| {
        let answer = AssertUnwindSafe(inner.clone().oneshot(request)).catch_unwind();
        async move {
            answer.await.unwrap_or_else(|_| {
                meter::panicked();
                Ok(refused(Refusal::bug()))
            })
        }
    }))
}

/// `inner` for a bounded number of requests at a time, of all connections together.
fn limited<R, S>(inner: S) -> BoxCloneService<R, Answer, Infallible>
where
    R: Send + 'static,
    S: Service<R, Response = Answer, Error = Infallible, Future: Send> + Clone + Send + 'static,
{
    let stack = ServiceBuilder::new().load_shed().concurrency_limit(REQUESTS).service(inner);
    BoxCloneService::new(service_fn(move |request: R| {
        let answer = stack.clone().oneshot(request);
        async move { Ok(answer.await.unwrap_or_else(|_| refused(Refusal::busy(REQUESTS)))) }
    }))
}

fn refused(refusal: Refusal) -> Answer {
    refusal.response().map(Full::new).map(Either::Left)
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use tokio::sync::Notify;

    use super::*;

    fn fine() -> Answer {
        Response::new(Either::Left(Full::new(Bytes::from_static(b"fine"))))
    }

    #[tokio::test]
    async fn c_046_who_comes_while_many_are_answered_is_told_at_once() {
        let gate = Arc::new(Notify::new());
        let stack = limited(service_fn(|gate: Arc<Notify>| async move {
            gate.notified().await;
            Ok(fine())
        }));
        let busy: Vec<_> =
            (0..REQUESTS).map(|_| tokio::spawn(stack.clone().oneshot(Arc::clone(&gate)))).collect();
        // They have their places as soon as they wait at the gate.
        tokio::task::yield_now().await;
        let answer = stack.clone().oneshot(Arc::clone(&gate)).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.headers()["retry-after"], "1");
        gate.notify_waiters();
        for answer in busy {
            assert_eq!(answer.await.expect("a task").expect("an answer").status(), StatusCode::OK);
        }
        gate.notify_one();
        assert_eq!(stack.oneshot(gate).await.expect("an answer").status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn c_062_a_panic_is_answered_and_gives_its_place_back() {
        let stack = limited(caught(service_fn(|bad: bool| async move {
            assert!(!bad, "a bug");
            Ok(fine())
        })));
        for _ in 0..=REQUESTS {
            let answer = stack.clone().oneshot(true).await.expect("an answer");
            assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        }
        assert_eq!(stack.oneshot(false).await.expect("an answer").status(), StatusCode::OK);
    }
}
