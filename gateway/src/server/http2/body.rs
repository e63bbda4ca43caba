//! The body of a request over HTTP/2: its bytes as they come, each of which makes room for another.
//!
//! Never hands over the last byte of an announced length before the stream has ended there: one that goes on is malformed
//! (RFC 9113, 8.1.1), which the library says then, and nothing of it is to be forwarded. Trailers end here.

use std::task::{Context, Poll, ready};

use h2::RecvStream;

use crate::layer::read::Source;
use crate::layer::space::Space;

/// See the module.
#[derive(Debug)]
pub(in crate::server) struct Body {
    stream: RecvStream,
    announced: Option<u64>,
    /// Bytes that came.
    got: u64,
    /// Bytes that came and were not told of yet.
    untold: usize,
}

impl Body {
    /// The body in `stream`, of so many bytes where that was told.
    pub(super) fn new(stream: RecvStream, announced: Option<u64>) -> Self {
        let announced = if stream.is_end_stream() { Some(0) } else { announced };
        Self { stream, announced, got: 0, untold: 0 }
    }

    /// Whether all of it has come.
    pub(super) fn is_over(&self) -> bool {
        self.stream.is_end_stream()
    }
}

impl Source for Body {
    type Error = h2::Error;

    fn announced(&self) -> Option<u64> {
        self.announced
    }

    fn poll_more(&mut self, cx: &mut Context<'_>, into: &mut Space) -> Poll<Result<usize, h2::Error>> {
        while let Some(data) = ready!(self.stream.poll_data(cx)).transpose()? {
            // Fails when the stream is gone, which is told at the next look.
            let _ = self.stream.flow_control().release_capacity(data.len());
            into.extend(&data);
            self.got += data.len() as u64;
            self.untold += data.len();
            let goes_on = self.announced.is_none_or(|announced| self.got < announced);
            if self.untold > 0 && goes_on {
                break;
            }
        }
        Poll::Ready(Ok(std::mem::take(&mut self.untold)))
    }
}
