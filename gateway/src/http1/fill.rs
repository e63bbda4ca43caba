//! Reads from a connection into memory that all connections of a core share, so that one that waits holds none.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes that one read takes at most. Large answers come in few pieces, and it fits into a core's cache.
pub const READ: usize = 64 << 10;

/// Room behind bytes that were moved out of the shared memory.
const ROOM: usize = 64;

thread_local! {
    static SHARED: Cell<Option<BytesMut>> = const { Cell::new(None) };
}

/// Reads once and adds what came to `held`. Gives the number of bytes, 0 at the end of the stream. What comes into an
/// empty `held` is not copied: it lies in the shared memory, which is taken anew for the next read while anybody holds
/// a piece of it; what stays in `held` while nothing comes is moved out of it.
///
/// # Errors
/// Those of the connection.
pub fn poll_fill<S: AsyncRead + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    held: &mut BytesMut,
) -> Poll<io::Result<usize>> {
    let mut shared = SHARED.take().unwrap_or_default();
    shared.reserve(READ);
    // Has no state of its own.
    let read = pin!(stream.read_buf(&mut shared)).poll(cx);
    match read {
        Poll::Ready(Ok(1..)) if held.is_empty() => *held = shared.split(),
        Poll::Ready(Ok(1..)) => {
            held.extend_from_slice(&shared);
            shared.clear();
        }
        Poll::Ready(_) => {}
        Poll::Pending => settle(held),
    }
    SHARED.set(Some(shared));
    read
}

/// Moves what is in `held` out of the shared memory; with nothing in it, it holds no memory at all.
pub fn settle(held: &mut BytesMut) {
    if held.is_empty() {
        *held = BytesMut::new();
    } else if held.capacity() == held.len() {
        // Pieces of the shared memory have no room behind them; what was moved has.
        let mut moved = BytesMut::with_capacity(held.len() + ROOM);
        moved.extend_from_slice(held);
        *held = moved;
    }
}

/// Reads once, straight into `into`, at most `most` bytes.
///
/// # Errors
/// Those of the connection.
pub fn poll_read_into<S: AsyncRead + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    into: &mut BytesMut,
    most: usize,
) -> Poll<io::Result<usize>> {
    use bytes::BufMut;
    let mut into = into.limit(most);
    let read = ready!(pin!(stream.read_buf(&mut into)).poll(cx))?;
    Poll::Ready(Ok(read))
}

/// Whether nothing has come and the other side has not ended the connection, as far as this core has heard. Asked
/// outside of the task's share of turns: with that used up, tokio says that nothing is there without having looked.
pub fn is_quiet<S: AsyncRead + Unpin>(stream: &mut S) -> bool {
    let mut byte = [0];
    let mut into = tokio::io::ReadBuf::new(&mut byte);
    let look = poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut into));
    let mut nobody = Context::from_waker(std::task::Waker::noop());
    pin!(tokio::task::unconstrained(look)).poll(&mut nobody).is_pending()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures_util::FutureExt;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::consume_budget;

    use super::*;

    /// A connection at rest on which the other side does something before it is looked at, by a task whose share of
    /// turns is used up.
    async fn seen(act: impl AsyncFnOnce(TcpStream)) -> bool {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind");
        let theirs = TcpStream::connect(listener.local_addr().expect("address")).await.expect("connect");
        let (mut ours, _) = listener.accept().await.expect("accept");
        assert!(is_quiet(&mut ours));
        act(theirs).await;
        ours.readable().await.expect("readable");
        while consume_budget().now_or_never().is_some() {}
        let mut nothing = [0];
        let read =
            poll_fn(|cx| Pin::new(&mut ours).poll_read(cx, &mut tokio::io::ReadBuf::new(&mut nothing)));
        assert!(read.now_or_never().is_none(), "it is used up: a plain look sees nothing");
        is_quiet(&mut ours)
    }

    #[tokio::test]
    async fn r5_a_dead_connection_is_no_quiet_one_to_a_task_that_has_done_much() {
        assert!(!seen(async |theirs| drop(theirs)).await, "it was closed");
        assert!(!seen(async |mut theirs: TcpStream| theirs.write_all(b"x").await.expect("sent")).await);
    }
}
