//! What is asked, and comments on a clock that jumps from timer to timer.

use std::collections::VecDeque;

use super::*;

#[test]
fn c_083_seconds_are_checked_and_only_streams_are_asked() {
    let asked = |value: &'static str, stream| {
        let mut fields = Fields::default();
        fields.set(NAME, value);
        fields.set(Name::AcceptEncoding, "gzip");
        let seconds = asked(&mut fields, stream).map(|every| every.map(|every| every.as_secs()));
        assert!(!fields.has(NAME), "it ends here");
        (seconds, fields.has(Name::AcceptEncoding))
    };
    assert_eq!(asked("1", true), (Ok(Some(1)), false));
    assert_eq!(asked(" 300 ", true), (Ok(Some(300)), false));
    assert_eq!(asked("15", false), (Ok(None), true));
    for bad in ["0", "301", "-1", "1.5", "15s", ""] {
        let (error, _) = asked(bad, true);
        let error = error.expect_err(bad).error.message;
        assert!(error.contains(&format!("`{bad}`")) && error.contains("1 to 300"), "{error}");
    }
    assert_eq!(super::asked(&mut Fields::default(), true), Ok(None));
    let mut twice = Fields::default();
    for seconds in ["15", "20"] {
        twice.add(NAME.as_str().as_bytes(), seconds.as_bytes());
    }
    let error = super::asked(&mut twice.clone(), true).expect_err("twice");
    assert_eq!((error.status, error.error.param), (400, Some(NAME.as_str())));
    assert!(error.error.message.contains("`20`"), "{error:?}");
    assert_eq!(super::asked(&mut twice, false), Ok(None), "nobody is asked");
    assert!(twice.is_empty());
}

#[tokio::test]
async fn c_083_a_stream_that_may_get_comments_tells_no_length() {
    let event = Bytes::from_static(b"data: x\n\n");
    let mut answer = respond::events(ResponseBody::from(event), &"id".into());
    answer.fields.set(Name::ContentLength, "9");
    let (every, clock, id) = (Duration::from_secs(300), Clock::start(), "id".into());
    let kept = keep(async { answer }, every, clock, id);
    let kept = tokio::task::LocalSet::new().run_until(kept).await;
    assert!(matches!(kept.body, ResponseBody::Kept(_)));
    assert!(!kept.fields.has(Name::ContentLength), "over HTTP/2 it would be believed");
}

/// A body whose pieces come at these seconds of a silence before each.
struct Paced(VecDeque<(u64, &'static str)>, Pin<Box<Sleep>>);

impl Paced {
    fn new(pieces: &[(u64, &'static str)]) -> Self {
        let first = pieces.first().map_or(0, |(pause, _)| *pause);
        Self(pieces.iter().copied().collect(), Box::pin(tokio::time::sleep(Duration::from_secs(first))))
    }
}

impl From<Bytes> for Paced {
    fn from(_: Bytes) -> Self {
        Self::new(&[])
    }
}

impl Inner for Paced {
    fn give_up(&mut self) -> bool {
        true
    }
}

impl Body for Paced {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let Some(&(_, piece)) = self.0.front() else { return Poll::Ready(None) };
        std::task::ready!(self.1.as_mut().poll(cx));
        self.0.pop_front();
        let next = self.0.front().map_or(0, |(pause, _)| *pause);
        self.1.set(tokio::time::sleep(Duration::from_secs(next)));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(piece.as_bytes())))))
    }
}

/// 45 s before the head, 45 s between two events and 45 s inside one, on a clock that jumps from timer to timer.
#[tokio::test(start_paused = true)]
async fn c_083_silences_of_45_seconds_get_comments_between_events_and_none_inside_one() {
    let answer = async {
        tokio::time::sleep(Duration::from_secs(45)).await;
        let pieces = [(0, "data: 1\n\n"), (45, "data: {\"half\""), (45, ":1}\n\ndata: [DONE]\n\n")];
        let mut answer = Response::new(http::StatusCode::OK, Paced::new(&pieces));
        answer.fields.set(Name::ContentType, "text/event-stream");
        answer
    };
    let clock = Clock::start();
    let tasks = tokio::task::LocalSet::new();
    let told = tasks.run_until(async {
        let pending = Pending(tokio::task::spawn_local(answer));
        let mut kept = Kept::new(State::Waiting(pending), Duration::from_secs(20), clock);
        let mut told = Vec::new();
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut kept).poll_frame(cx)).await {
            let data = frame.expect("no cut").into_data().expect("data");
            let at = clock.now().since(tidegate_shared::time::Instant::ZERO).as_secs();
            told.push((at, String::from_utf8(data.to_vec()).expect("text")));
        }
        told
    });
    let told = told.await;
    let told: Vec<_> = told.iter().map(|(at, text)| (*at, text.as_str())).collect();
    let comment = ": keep-alive\n\n";
    let wanted = [
        (20, comment),
        (40, comment),
        (45, "data: 1\n\n"),
        (65, comment),
        (85, comment),
        (90, "data: {\"half\""),
        (135, ":1}\n\ndata: [DONE]\n\n"),
    ];
    assert_eq!(told, wanted);
}

#[test]
fn c_083_any_text_is_one_event_that_says_the_same() {
    let text = "{\n  \"error\": {\"message\": \"no\"}\r\n}\n";
    let event = as_event(text.as_bytes());
    assert_eq!(&event[..], b"data: {\ndata:   \"error\": {\"message\": \"no\"}\ndata: }\n\n");
    let mut scan = SseScan::new();
    scan.push(&event);
    assert!(scan.at_boundary());
    assert_eq!(scan.events(), 1);
}
