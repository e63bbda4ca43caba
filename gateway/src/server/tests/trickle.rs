//! Clients that take an answer by drops, in virtual time.

use super::*;
use crate::http1::write::Framing;
use crate::layer::body::ResponseBody;
use crate::layer::relay;

/// How an answer of 256 KiB ends to a client that takes 2 KiB and then rests for `pause`, again and again.
async fn trickled(pause: Duration) -> Option<reply::Sent> {
    let (mut stream, mut client) = tokio::io::duplex(4 << 10);
    let (clock, size) = (Clock::start(), 256 << 10);
    let body = ResponseBody::from(Bytes::from(vec![b'x'; size]));
    let mut reply = reply::Reply::new(|_| {}, Framing::Length(size as u64), Some(body));
    let mut alarm = Box::pin(tokio::time::sleep(Duration::ZERO));
    let sent = poll_fn(|cx| {
        loop {
            if let Poll::Ready(sent) = reply.poll(&mut stream, cx) {
                return Poll::Ready(Some(sent));
            }
            let by = reply.until(clock, relay::STALL).expect("it waits for the client alone");
            if by <= clock.now() {
                assert!(reply.give_up());
                return Poll::Ready(None);
            }
            alarm.as_mut().reset(clock.timer(by));
            std::task::ready!(alarm.as_mut().poll(cx));
        }
    });
    let take = async {
        let mut some = vec![0; 2 << 10];
        while client.read(&mut some).await.expect("bytes") > 0 {
            tokio::time::sleep(pause).await;
        }
    };
    tokio::select! {
        sent = sent => sent,
        () = take => unreachable!("the answer ends first"),
    }
}

#[tokio::test(start_paused = true)]
async fn h6_an_answer_may_be_taken_slowly_but_must_come_to_its_end() {
    assert_eq!(trickled(Duration::from_secs(1)).await, Some(reply::Sent::Whole), "2 KiB a second");
    assert_eq!(trickled(Duration::from_secs(30)).await, None, "70 bytes a second");
}
