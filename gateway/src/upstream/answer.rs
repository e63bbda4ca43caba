//! The body of a replica's answer, over either protocol, and with it the connection that it comes over.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use thiserror::Error;

use super::Upstream;
use super::lane::Lease;
use super::line::{Broken, LineAnswer};
use crate::endpoint::Endpoint;

/// Why there is no more of an answer.
#[derive(Debug, Error)]
pub enum AnswerError {
    /// Over HTTP/1.1.
    #[error(transparent)]
    Http1(#[from] Broken),
    /// Over HTTP/2.
    #[error(transparent)]
    Http2(#[from] hyper::Error),
}

#[derive(Debug)]
enum Kind {
    Http1(LineAnswer, Rc<Upstream>, Arc<Endpoint>),
    Http2 {
        body: Incoming,
        _lease: Lease,
    },
    /// The connection is given back, or closed.
    Over,
}

/// See the module. Dropped before [`Answer::give_back`], the connection is closed, or the stream on it reset.
#[derive(Debug)]
pub struct Answer(Kind);

impl Answer {
    pub(super) fn http1(answer: LineAnswer, upstream: &Rc<Upstream>, endpoint: &Arc<Endpoint>) -> Self {
        Self(Kind::Http1(answer, Rc::clone(upstream), Arc::clone(endpoint)))
    }

    pub(super) fn http2(body: Incoming, lease: Lease) -> Self {
        Self(Kind::Http2 { body, _lease: lease })
    }

    /// The answer was read to its end: the connection can carry the next request.
    pub fn give_back(&mut self) {
        if let Kind::Http1(answer, upstream, endpoint) = std::mem::replace(&mut self.0, Kind::Over)
            && !endpoint.is_closed()
            && let Some(line) = answer.into_line()
        {
            upstream.keep(line, &endpoint);
        }
    }

    /// No more of it is wanted: the connection is closed, or the stream on it reset.
    pub fn close(&mut self) {
        self.0 = Kind::Over;
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = AnswerError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        match &mut self.get_mut().0 {
            Kind::Http1(answer, ..) => {
                answer.poll_data(cx).map(|data| data.map(|data| data.map(Frame::data).map_err(Into::into)))
            }
            Kind::Http2 { body, .. } => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            Kind::Over => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Http1(answer, ..) => answer.is_over(),
            Kind::Http2 { body, .. } => body.is_end_stream(),
            Kind::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Http1(answer, ..) => answer.size_hint(),
            Kind::Http2 { body, .. } => body.size_hint(),
            Kind::Over => SizeHint::with_exact(0),
        }
    }
}
