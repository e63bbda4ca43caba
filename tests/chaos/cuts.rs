//! Clients that leave at every moment, many at a time (Q5, H7): whatever they had, in the gateway and in the engines,
//! is given back at once, and what comes after is served as on the first day.

use std::time::{Duration, Instant};

use hyper::Request;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_shared::names::metric;
use tidegate_tests::client::{Raw, post};
use tidegate_tests::deadline::{eventually, within};
use tidegate_tests::partly::Partly;
use tidegate_tests::wire::Framing;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::CHAT;
use crate::fleet::{Engine, Fleet, descriptors, engines, long, resident};

/// Requests that are cut, and how many of them at a time.
const CUTS: usize = 10_000;
const WAVE: usize = 1000;
/// Conversations that are remembered at most: far fewer than begin.
const CONVERSATIONS: i64 = 500;
/// Requests that share one HTTP/2 connection.
const SHARED: usize = 10;

/// Numbers that look random and are the same in each run (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }
}

/// When a client leaves.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// Within the head, at this share of it in percent.
    Head(usize),
    /// Within the body, at this share of it in percent.
    Body(usize),
    /// When all is sent.
    Sent,
    /// This long after that: in the queue, in the prefill, in the answer.
    Later(Duration),
    /// After so many pieces of the answer.
    Answer(u64),
}

#[derive(Clone, Debug)]
struct Plan {
    moment: Moment,
    reset: bool,
    body: String,
}

impl Plan {
    fn new(index: usize, dice: &mut Dice) -> Self {
        let percent = usize::try_from(1 + dice.roll(98)).expect("small");
        let moment = match dice.roll(8) {
            0 => Moment::Head(percent),
            1 => Moment::Body(percent),
            2 => Moment::Sent,
            3..=5 => Moment::Later(Duration::from_millis(dice.roll(600))),
            _ => Moment::Answer(dice.roll(6)),
        };
        let words = usize::try_from(1 + dice.roll(150)).expect("small");
        let text = format!("{index} {}", "tide ".repeat(words));
        Self { moment, reset: dice.roll(2) == 0, body: long(&text, 60).to_string() }
    }
}

fn share(text: &str, percent: usize) -> &str {
    &text[..text.len() * percent / 100]
}

/// One request over a connection of its own.
async fn cut_h1(address: std::net::SocketAddr, plan: Plan) {
    let mut raw = Raw::connect(address).await;
    let head = post(CHAT, &[&format!("content-length: {}", plan.body.len())]);
    let (head, body) = match plan.moment {
        Moment::Head(percent) => (share(&head, percent), ""),
        Moment::Body(percent) => (head.as_str(), share(&plan.body, percent)),
        _ => (head.as_str(), plan.body.as_str()),
    };
    let _ = raw.offer(head).await && raw.offer(body).await;
    let answer = async |raw: &mut Raw, pieces: u64| {
        let Some(head) = raw.head().await else { return };
        let mut framing = head.framing(Framing::Close);
        for _ in 0..pieces {
            if !matches!(raw.piece(&mut framing).await, Ok(Some(_))) {
                return;
            }
        }
    };
    match plan.moment {
        Moment::Later(pause) => drop(timeout(pause, answer(&mut raw, u64::MAX)).await),
        Moment::Answer(pieces) => answer(&mut raw, pieces).await,
        _ => {}
    }
    if plan.reset {
        raw.reset();
    }
}

/// One request over a shared connection: it leaves by a reset of its stream.
async fn cut_h2(mut sender: SendRequest<Partly>, address: std::net::SocketAddr, plan: Plan) {
    let (data, whole) = match plan.moment {
        Moment::Head(percent) | Moment::Body(percent) => (share(&plan.body, percent), false),
        _ => (plan.body.as_str(), true),
    };
    let data = [data.to_owned().into()];
    let body = if whole { Partly::whole(data) } else { Partly::endless(data) };
    let request = Request::post(format!("http://{address}{CHAT}")).body(body).expect("a request");
    if within("a stream is free", sender.ready()).await.is_err() {
        return;
    }
    let sent = sender.send_request(request);
    let answer = async |pieces: u64| {
        let Ok(response) = sent.await else { return };
        let mut body = response.into_body();
        for _ in 0..pieces {
            if !matches!(http_body_util::BodyExt::frame(&mut body).await, Some(Ok(_))) {
                return;
            }
        }
    };
    match plan.moment {
        Moment::Answer(pieces) => within("an answer", answer(pieces)).await,
        Moment::Later(pause) => drop(timeout(pause, answer(u64::MAX)).await),
        // Long enough that the request leaves this process.
        _ => drop(timeout(Duration::from_millis(5), answer(u64::MAX)).await),
    }
}

/// Several requests over one connection, which is closed when the last has left.
async fn cut_together(address: std::net::SocketAddr, plans: Vec<Plan>) {
    let stream = within("a connection", TcpStream::connect(address)).await.expect("connect");
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("handshake");
    let connection = tokio::spawn(async move { drop(connection.await) });
    let mut requests = JoinSet::new();
    for plan in plans {
        requests.spawn(cut_h2(sender.clone(), address, plan));
    }
    while let Some(done) = requests.join_next().await {
        done.expect("a cut");
    }
    connection.abort();
}

async fn wave(address: std::net::SocketAddr, first: usize, dice: &mut Dice) {
    let mut clients = JoinSet::new();
    let plans: Vec<Plan> = (first..first + WAVE).map(|index| Plan::new(index, dice)).collect();
    for (index, plans) in plans.chunks(SHARED).enumerate() {
        if index % 2 == 0 {
            clients.spawn(cut_together(address, plans.to_vec()));
        } else {
            plans.iter().for_each(|plan| drop(clients.spawn(cut_h1(address, plan.clone()))));
        }
    }
    while let Some(done) = clients.join_next().await {
        done.expect("a cut");
    }
}

/// Waits until nothing is in flight and nothing waits, in the gateway and in every engine.
async fn idle(fleet: &Fleet) {
    fleet.assert_idle().await;
    for engine in fleet.engines() {
        eventually("the engine is idle", async || match engine.busy().await {
            (0.0, 0.0) => Ok(()),
            busy => Err(format!("{} runs and holds {busy:?}", engine.id)),
        })
        .await;
    }
}

#[tokio::test]
async fn q5_h7_r7_ten_thousand_cut_requests_leave_nothing_behind() {
    let arguments = ["--model", "chat", "--load-time", "0s", "--step-us", "4000", "--prefill-rate", "4000"];
    let arguments = [&arguments[..], &["--slots", "6"]].concat();
    let deployment = engines(&arguments)
        .set("min", 3)
        .set("max", 3)
        .set("concurrency_limit", 8)
        .set("queue.headroom", "10m")
        .set("conversations.max", CONVERSATIONS);
    let fleet = Fleet::launch(deployment).await;
    let before = fleet.settled(3).await;
    fleet.chat(&long("warm up", 8)).await.whole().await;
    let (files, memory) = (descriptors(&fleet), resident(&fleet));
    let mut dice = Dice(2);
    for first in (0..CUTS).step_by(WAVE) {
        wave(fleet.address, first, &mut dice).await;
        let last_cut = Instant::now();
        idle(&fleet).await;
        let remembered = fleet.metrics().await.total(metric::CONVERSATIONS, &[]);
        assert!(remembered <= CONVERSATIONS as f64, "{remembered} conversations are remembered");
        eprintln!("{} cuts: idle {:?} after the last", first + WAVE, last_cut.elapsed());
    }
    assert_eq!(fleet.metrics().await.total(metric::PANICS, &[]), 0.0);
    assert_eq!(fleet.settled(3).await, before, "no engine was hurt");
    eventually("its descriptors are closed", async || match descriptors(&fleet) {
        now if now <= files + 16 => Ok(()),
        now => Err(format!("{now} after {files}")),
    })
    .await;
    eprintln!("resident: {memory} MiB before, {} MiB after", resident(&fleet));
    assert!(resident(&fleet) <= memory + 128, "{} MiB after {memory}", resident(&fleet));
    assert_placed_evenly(&fleet, &before).await;
}

/// Twelve new streams are four on each of three engines, as if nothing had been cut.
///
/// That is exact, since nothing is left of what was cut: all loads are zero before the first. It would not be for any twelve
/// streams. While they begin, each engine is asked once a second what it holds, one before the other, so that for up to a
/// second the figure of one stands beside the gateway's estimate of another; where the engine counts 416 tokens for what
/// was taken for 260, that was five, three and four streams now and then. So these ask for what is reserved for them: less
/// than the usual answer, of which nothing was learned here, since a stream without usage teaches nothing.
async fn assert_placed_evenly(fleet: &Fleet, engines: &[Engine]) {
    eventually("twelve streams at the same time", async || {
        idle(fleet).await;
        let mut streams = Vec::new();
        for index in 0..12 {
            streams.push(fleet.chat(&long(&format!("after {index}"), 250)).await);
        }
        let running = fleet.metrics().await.total(metric::IN_FLIGHT, &[]);
        if running < 12.0 {
            return Err(format!("{running} were left when the last had begun"));
        }
        let there = |engine: &Engine| {
            streams.iter().filter(|stream| stream.header("x-tidegate-replica") == engine.id).count()
        };
        let there: Vec<usize> = engines.iter().map(there).collect();
        assert_eq!(there, [4, 4, 4]);
        Ok(())
    })
    .await;
}
