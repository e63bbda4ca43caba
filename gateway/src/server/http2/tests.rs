//! Connections at the level of frames, in virtual time: whoever keeps one is served, whoever holds one up is not.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::timeout;

use super::frame::kind::*;
use super::frame::{END_HEADERS, END_STREAM};
use super::*;
use crate::clock::Seldom;
use crate::layer::relay::{Relays, STALL};
use crate::server::handshake::Handshakes;
use crate::server::{Closing, Gateway, Stage, tests::gateway};
use crate::telemetry::access::AccessLog;
use crate::telemetry::request_id::RequestIds;
use crate::upstream::Upstream;

mod heads;

const ACK: u8 = 1;

impl Socket for DuplexStream {
    fn forsake(&mut self) {}
}

/// A frame: kind, flags, stream, payload.
type Frame = (u8, u8, u32, Vec<u8>);

/// A client that says what it is told to say.
struct Client {
    wire: DuplexStream,
    /// It answers no ping.
    is_dead: bool,
}

impl Client {
    async fn send(&mut self, (kind, flags, stream, payload): (u8, u8, u32, &[u8])) -> bool {
        self.wire.write_all(&frame::of(kind, flags, stream, payload)).await.is_ok()
    }

    /// Asks for something on a stream.
    async fn ask(&mut self, stream: u32, method: u8, flags: u8) {
        assert!(self.send((HEADERS, END_HEADERS | flags, stream, &block(method))).await, "it listens");
    }

    async fn read(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.wire.read_exact(&mut head).await.ok()?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.wire.read_exact(&mut payload).await.ok()?;
        Some((kind, flags, u32::from_be_bytes(stream), payload))
    }

    /// The next frame that says something; `None` at the end of the connection.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            let frame = timeout(Duration::from_secs(3600), self.read()).await.expect("within an hour")?;
            match frame {
                (SETTINGS | WINDOW_UPDATE, ..) => {}
                (PING, 0, _, payload) if !self.is_dead => {
                    self.send((PING, ACK, 0, &payload)).await;
                }
                (PING, ..) => {}
                frame => return Some(frame),
            }
        }
    }

    /// The next one of `kind`, on `stream`.
    async fn until(&mut self, kind: u8, stream: u32) -> Vec<u8> {
        loop {
            let frame = self.next().await.unwrap_or_else(|| panic!("a frame {kind} on {stream}"));
            if (frame.0, frame.2) == (kind, stream) {
                return frame.3;
            }
        }
    }

    /// What the connection ends with: the reasons of all its farewells, and its end.
    async fn farewells(&mut self) -> Vec<Reason> {
        let mut reasons = Vec::new();
        while let Some((kind, _, _, payload)) = self.next().await {
            if kind == GOAWAY {
                reasons.push(Reason::from(u32::from_be_bytes(payload[4..8].try_into().expect("a reason"))));
            }
        }
        reasons
    }
}

/// The head of a request for `/livez`: 2 is GET and 3 is POST in the static table.
fn block(method: u8) -> Vec<u8> {
    [&[0x80 | method, 0x86, 0x04, 6][..], b"/livez", &[0x01, 1], b"x"].concat()
}

/// A client of a gateway without replicas, whose streams have a window of so many bytes.
async fn client<A: AsyncFnOnce(Client)>(window: u32, act: A) {
    client_of(window, async |client, _| act(client).await).await;
}

/// The same, with the gateway.
async fn client_of<A: AsyncFnOnce(Client, &Gateway)>(window: u32, act: A) {
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let (gateway, _pool, stage) = gateway(nobody, STALL, AccessLog::off()).await;
    let (clock, closing) = (gateway.clock, Closing::default());
    let (upstream, relays) = (Upstream::new(clock), Relays::new(clock, STALL));
    let (ids, handshakes) = (RequestIds::default(), Handshakes::default());
    let (full, stuck) = (Seldom::default(), Seldom::default());
    let core = Rc::new(Core { gateway, upstream, relays, ids, closing, handshakes, full, stuck });
    let (ours, theirs) = duplex(1 << 20);
    let mut client = Client { wire: theirs, is_dead: false };
    let stopped = RefCell::new(stage);
    let local = LocalSet::new();
    local
        .run_until(async {
            tokio::task::spawn_local(serve(Rc::clone(&core), ours, Ipv4Addr::LOCALHOST.into()));
            client.wire.write_all(PREFACE).await.expect("sent");
            client.send((SETTINGS, 0, 0, &[&[0, 4], &window.to_be_bytes()[..]].concat())).await;
            act(client, &core.gateway).await;
        })
        .await;
    drop::<watch::Sender<Stage>>(stopped.into_inner());
}

#[tokio::test(start_paused = true)]
async fn h6_a_connection_over_which_nothing_is_asked_ends_with_a_farewell() {
    client(1 << 16, async |mut client| {
        client.ask(1, 2, END_STREAM).await;
        client.until(DATA, 1).await;
        // Told first that it ends, so that nothing that is on its way is lost; then that it has.
        assert_eq!(client.farewells().await, [Reason::NO_ERROR; 2]);
    })
    .await;
    client(1 << 16, async |mut client| {
        client.is_dead = true;
        assert_eq!(client.farewells().await, [Reason::NO_ERROR], "it is not waited for without end");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn h6_what_comes_in_the_last_moment_of_a_connection_is_served() {
    client(1 << 16, async |mut client| {
        client.is_dead = true;
        client.until(GOAWAY, 0).await;
        // Both are there when the connection is looked at next.
        client.ask(1, 2, END_STREAM).await;
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(client.until(DATA, 1).await, b"{\"status\":\"ok\"}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn h6_a_head_must_come_to_its_end() {
    for drops in [false, true] {
        client(1 << 16, async |mut client| {
            assert!(client.send((HEADERS, END_STREAM, 1, &block(2))).await);
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(11)).await;
                if drops {
                    assert!(client.send((CONTINUATION, 0, 1, &[])).await);
                }
            }
            assert_eq!(client.farewells().await, [Reason::ENHANCE_YOUR_CALM]);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn h6_an_answer_without_room_is_given_up_and_the_connection_goes_on() {
    client(0, async |mut client| {
        client.ask(1, 2, END_STREAM).await;
        client.until(HEADERS, 1).await;
        assert_eq!(client.until(RST_STREAM, 1).await, u32::from(Reason::CANCEL).to_be_bytes());
        client.ask(3, 2, END_STREAM).await;
        client.until(HEADERS, 3).await;
        client.send((WINDOW_UPDATE, 0, 3, &100_u32.to_be_bytes())).await;
        assert_eq!(client.until(DATA, 3).await, b"{\"status\":\"ok\"}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn h6_an_answer_may_be_taken_slowly_over_http_2_but_must_come_to_its_end() {
    for (pause, ends) in [(1, DATA), (25, RST_STREAM)] {
        client(0, async |mut client| {
            client.ask(1, 2, END_STREAM).await;
            client.until(HEADERS, 1).await;
            let end = loop {
                tokio::time::sleep(Duration::from_secs(pause)).await;
                client.send((WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes())).await;
                let (kind, flags, ..) = client.next().await.expect("the connection goes on");
                if kind == RST_STREAM || flags & END_STREAM != 0 {
                    break kind;
                }
            };
            assert_eq!(end, ends, "a byte every {pause} s");
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn h6_a_connection_without_room_for_any_answer_ends() {
    client(1 << 20, async |mut client| {
        let (mut taken, mut stream) = (0, 1);
        // Its connection's window is never widened.
        while taken < 65_535 {
            client.ask(stream, 2, END_STREAM).await;
            taken += client.until(DATA, stream).await.len();
            stream += 2;
        }
        client.ask(stream, 2, END_STREAM).await;
        client.until(HEADERS, stream).await;
        assert_eq!(client.farewells().await, [Reason::ENHANCE_YOUR_CALM]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn h6_an_upload_may_be_slow_but_must_come_to_an_end() {
    let upload = [&[0x83, 0x86, 0x04, 14][..], b"/v1/embeddings", &[0x01, 1], b"x"].concat();
    client(1 << 16, async |mut client| {
        assert!(client.send((HEADERS, END_HEADERS, 1, &upload)).await);
        let answer = client.until(DATA, 1).await;
        assert!(String::from_utf8_lossy(&answer).contains("no byte of the body came for 60 s"));
        // A byte now and then, whatever else comes.
        assert!(client.send((HEADERS, END_HEADERS, 3, &upload)).await);
        loop {
            client.send((DATA, 0, 3, b" ")).await;
            if let Ok(frame) = timeout(Duration::from_secs(25), client.next()).await
                && let (DATA, _, 3, answer) = frame.expect("the connection goes on")
            {
                let text = String::from_utf8_lossy(&answer).into_owned();
                break assert!(text.contains("less than 16384 bytes per second"), "{text}");
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn h6_who_floods_is_cut_and_who_asks_now_and_then_is_not() {
    for flood in [
        (PING, 0, 0, &[7; 8][..]),
        (SETTINGS, 0, 0, &[]),
        (2, 0, 1, &[0, 0, 0, 0, 9]),
        (0xfa, 0, 0, b"unknown"),
        (DATA, 0, 1, &[]),
    ] {
        let kind = flood.0;
        client(1 << 16, async |mut client| {
            client.ask(1, 3, 0).await;
            let mut sent = 0;
            while sent < 5000 && client.send(flood).await {
                sent += 1;
                tokio::task::yield_now().await;
            }
            assert!(client.farewells().await.contains(&Reason::ENHANCE_YOUR_CALM), "frames {kind}");
        })
        .await;
    }
    client(1 << 16, async |mut client| {
        for round in 0..5000 {
            assert!(client.send((PING, 0, 0, &[7; 8])).await, "{round}");
            tokio::time::sleep(Duration::from_millis(11)).await;
            if round % 100 == 0 {
                let stream = round / 50 + 1;
                client.ask(stream, 2, END_STREAM).await;
                client.until(DATA, stream).await;
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn h6_streams_that_are_reset_at_once_are_no_way_to_keep_a_gateway_busy() {
    client(1 << 16, async |mut client| {
        let (reset, mut stream) = (u32::from(Reason::CANCEL).to_be_bytes(), 1);
        loop {
            let open = client.send((HEADERS, END_HEADERS, stream, &block(3))).await;
            tokio::task::yield_now().await;
            if !open || !client.send((RST_STREAM, 0, stream, &reset)).await || stream > 20_000 {
                break;
            }
            tokio::task::yield_now().await;
            stream += 2;
        }
        assert!(client.farewells().await.contains(&Reason::ENHANCE_YOUR_CALM));
        assert!((4000..20_000).contains(&stream), "after a few thousand: {}", stream / 2);
    })
    .await;
}
