//! Floods: connections that say nothing, heads that never end, bodies that fill the memory, streams that nobody reads.
//! Others are served meanwhile, and memory stays within its bounds (H6, C-072).

use bytes::Bytes;
use procfs::process::Process;
use rustix::process::{Resource, getrlimit, setrlimit};
use tidegate_shared::names::metric;
use tidegate_tests::client::{Raw, post};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{chat, chat_stream, delta, reply};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::streams::{END_HEADERS, Ended, Streams, frame, kind, reason};
use tidegate_tests::stub::{End, Stub};
use tokio::task::JoinSet;

use crate::CHAT;
use crate::fleet::{descriptors, resident};
use crate::limited::Limited;

/// Lets this process have as many descriptors as it may, and gives how many connections are sensible then.
fn room_for(wanted: usize) -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("more descriptors");
    let most = limit.current.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    wanted.min(most / 2)
}

#[tokio::test]
async fn h6_thousands_of_silent_connections_are_closed_in_time() {
    let count = room_for(5000);
    let stub = Stub::start().await;
    let config = Config::of(Deployment::chat([&stub])).set("limits.header_read", "5s");
    let gateway = Gateway::start(config).await;
    let (files, memory) = (descriptors(&gateway), resident(&gateway));
    let mut silent = JoinSet::new();
    for index in 0..count {
        let mut raw = Raw::connect(gateway.address).await;
        if index % 4 == 0 {
            raw.offer("POST /v1/chat/completions HTTP/1.1\r\nhost: tidegate\r\nx-slow: ").await;
        }
        silent.spawn(async move { raw.head().await });
    }
    for client in [gateway.client(), gateway.h2()] {
        assert_eq!(client.post(CHAT, &chat("chat", "meanwhile")).await.status, 200);
    }
    let during = resident(&gateway);
    while let Some(head) = silent.join_next().await {
        let head = head.expect("an end");
        assert!(head.is_none_or(|head| head.status() == 408), "closed, with 408 at most");
    }
    eventually("their descriptors are closed", async || match descriptors(&gateway) {
        now if now <= files + 16 => Ok(()),
        now => Err(format!("{now} after {files}")),
    })
    .await;
    eprintln!("{count} connections: {memory} MiB before, {during} MiB with them");
    assert!(during < memory + 200, "{during} MiB with them, {memory} MiB before");
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h6_the_gateway_takes_all_descriptors_that_it_may_have() {
    let stub = Stub::start().await;
    let mut gateway = Limited::start(&stub, "-Sn 64").await;
    gateway.until("serving").await;
    let pid = i32::try_from(gateway.child.id().expect("it runs")).expect("a pid");
    let limits = Process::new(pid).and_then(|process| process.limits()).expect("its limits");
    let (soft, hard) = (limits.max_open_files.soft_limit, limits.max_open_files.hard_limit);
    assert_eq!(format!("{soft:?}"), format!("{hard:?}"));
}

#[tokio::test]
async fn c_072_large_bodies_at_once_stay_within_the_limit() {
    let gate = Gate::closed();
    let open = gate.clone();
    let stub = Stub::with(move |request| Script::new().wait(&gate).then(reply(request))).await;
    let deployment = Deployment::chat([&stub]).set("concurrency_limit", 1).set("queue.headroom", "10m");
    let config = Config::of(deployment.set("queue.bytes", "1GiB")).set("limits.buffered", "128MiB");
    let gateway = Gateway::start(config).await;
    let memory = resident(&gateway);
    let body = chat("chat", &"x".repeat((64 << 20) - 100)).to_string();
    let mut clients = JoinSet::new();
    for _ in 0..6 {
        let (body, client) = (body.clone(), gateway.client());
        clients.spawn(async move { client.send(hyper::Method::POST, CHAT, &[], body).await });
    }
    let mut most = 0;
    let mut refused = 0;
    while refused < 4 {
        let answer = clients.join_next().await.expect("a client").expect("an answer");
        assert_eq!(answer.status, 503, "{:?}", answer.body);
        assert!(answer.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1));
        refused += 1;
        most = most.max(resident(&gateway));
        let small = gateway.client().get("/v1/models").await;
        assert_eq!(small.status, 200);
        if clients.len() == 1 {
            break;
        }
    }
    eprintln!("6 bodies of 64 MiB: {memory} MiB before, {most} MiB at most");
    assert!(most <= bound(memory, 128, 6), "{most} MiB, {memory} MiB before, 128 MiB are allowed");
    open.open();
    while let Some(answer) = clients.join_next().await {
        let answer = answer.expect("an answer");
        assert!([200, 503].contains(&answer.status), "{:?}", answer.body);
    }
    gateway.until_metric(metric::BUFFERED_BYTES, &[], 0.0).await;
    gateway.assert_idle().await;
}

/// The most that the gateway may take while so many connections bring bodies, in MiB: `before`, the limit and a quarter of
/// it, and 128 KiB for each connection.
fn bound(before: u64, limit: u64, connections: usize) -> u64 {
    before + limit * 5 / 4 + connections as u64 / 8
}

/// Large bodies lie in pages of their own. In the heap, glibc's allocator took them from its arenas once it had freed some
/// (its threshold for pages grows up to 32 MiB), where they left holes: waves of these took 322 to 456 MiB.
#[tokio::test]
async fn c_072_a_crowd_of_large_bodies_for_a_cold_model_leaves_room_for_others() {
    let count = room_for(512);
    let stub = Stub::start().await;
    let cold = Deployment::named("cold").engine(&["--model", "cold", "--load-time", "1h"]).set("max", 1);
    let config = Config::of(cold.set("queue.requests", 512).set("queue.bytes", "1GiB"));
    let config = config.and(Deployment::chat([&stub])).set("limits.buffered", "128MiB");
    let gateway = Gateway::launch(config).await;
    gateway.until_metric(metric::REPLICAS, &[("phase", "ready")], 1.0).await;
    let memory = resident(&gateway);
    // One piece of memory for all of them.
    let body = Bytes::from(chat("cold", &"x".repeat(20 << 20)).to_string());
    // The second wave finds what the first has left of the memory.
    for wave in 0..2 {
        let mut clients = JoinSet::new();
        for index in 0..count {
            let client = if index % 2 == 0 { gateway.client() } else { gateway.h2() };
            let body = body.clone();
            clients.spawn(async move { client.send(hyper::Method::POST, CHAT, &[], body).await });
        }
        let mut most = 0;
        while clients.len() > 6 {
            let answer = clients.join_next().await.expect("a client").expect("an answer");
            let code = answer.json()["error"]["code"].clone();
            assert_eq!((answer.status, code.as_str()), (503, Some("queue_bytes")));
            assert!(answer.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1));
            most = most.max(resident(&gateway));
            let held = gateway.metrics().await.total(metric::BUFFERED_BYTES, &[]);
            assert!(held <= f64::from(128 << 20), "{held} bytes");
        }
        eprintln!("wave {wave}: {most} MiB at most, {memory} MiB before");
        assert!(most <= bound(memory, 128, count), "wave {wave}: {most} MiB, {memory} MiB before");
        let small = gateway.client().post(CHAT, &chat("chat", "small")).await;
        assert_eq!(small.status, 200, "others are served: {:?}", small.body);
        clients.shutdown().await;
        gateway.until_metric(metric::BUFFERED_BYTES, &[], 0.0).await;
        gateway.assert_idle().await;
        eventually("the bodies' memory is the system's again", async || match resident(&gateway) {
            now if now <= bound(memory, 0, count) => Ok(()),
            now => Err(format!("{now} MiB, {memory} MiB before")),
        })
        .await;
    }
    assert_eq!(gateway.metrics().await.total(metric::PANICS, &[]), 0.0);
}

/// A field that a connection has had before costs its client a byte: 6 KiB on the wire are 15 MiB of heads.
#[tokio::test]
async fn c_072_heads_of_which_the_client_sends_next_to_nothing_stay_within_the_limit() {
    let stub = Stub::start().await;
    let gateway = Gateway::start(Config::of(Deployment::chat([&stub]))).await;
    let memory = resident(&gateway);
    // A POST for embeddings whose body is to come; its field of 4000 bytes, new and 15 times as the table has it.
    let start = [&[0x83, 0x86, 0x04, 14][..], b"/v1/embeddings", &[0x01, 1], b"x"].concat();
    let field = [&[0x40, 3][..], b"x-a", &[0x7f, 0xa1, 0x1e], &[b'a'; 4000]].concat();
    let [first, next] = [field, vec![0xbe; 15]].map(|fields| [&start[..], &fields].concat());
    let mut clients = Vec::new();
    for _ in 0..50 {
        let mut client = Streams::connect(gateway.address, &[]).await;
        for index in 0..256 {
            let block = if index == 0 { &first } else { &next };
            assert!(client.send(kind::HEADERS, END_HEADERS, 2 * index + 1, block).await);
        }
        assert_eq!(client.ended(2 * 255 + 1).await, Ended::Reset(reason::REFUSED_STREAM));
        clients.push(client);
    }
    let during = resident(&gateway);
    eprintln!("{} connections: {memory} MiB before, {during} MiB with them", clients.len());
    assert!(during <= memory + 2 * clients.len() as u64, "{during} MiB with them, {memory} MiB before");
    assert_eq!(gateway.client().post(CHAT, &chat("chat", "meanwhile")).await.status, 200);
    drop(clients);
    gateway.assert_idle().await;
}

/// The head of a POST for embeddings whose body is to come, with so many fields of three bytes: a byte each on the wire, but
/// for the first of a connection.
fn tiny_fields(fields: usize, is_first: bool) -> Vec<u8> {
    let start = [&[0x83, 0x86, 0x04, 14][..], b"/v1/embeddings", &[0x01, 1], b"x"].concat();
    let new = [&[0x40, 1][..], b"x", &[2], b"ab"].concat();
    [start, if is_first { new } else { Vec::new() }, vec![0xbe; fields]].concat()
}

/// What the gateway may take while so many connections over HTTP/2 bring heads, in MiB: `before`, 20 MiB for all heads (16 by
/// its account, and what memory costs in addition), and 256 KiB for each connection: the library's buffers, tables and
/// places for 256 streams.
fn bound_of_heads(before: u64, connections: usize) -> u64 {
    before + 20 + connections as u64 / 4
}

#[tokio::test]
async fn c_072_a_crowd_of_connections_full_of_tiny_fields_stays_within_one_bound() {
    let stub = Stub::start().await;
    // The least that heads have, whatever bodies have.
    let config = Config::of(Deployment::chat([&stub])).set("limits.buffered", "64MiB");
    let gateway = Gateway::start(config).await;
    let memory = resident(&gateway);
    let mut clients = Vec::new();
    for _ in 0..room_for(256) {
        let mut client = Streams::connect(gateway.address, &[]).await;
        let heads = (0..256)
            .flat_map(|index| frame(kind::HEADERS, END_HEADERS, 2 * index + 1, &tiny_fields(60, index == 0)));
        assert!(client.offer(&heads.collect::<Vec<u8>>()).await, "it listens");
        clients.push(client);
    }
    // The last ones find no room.
    for client in &mut clients[200..] {
        assert_eq!(client.ended(2 * 255 + 1).await, Ended::Reset(reason::REFUSED_STREAM));
    }
    let (during, bound) = (resident(&gateway), bound_of_heads(memory, clients.len()));
    eprintln!("{} connections: {memory} MiB before, {during} MiB with them", clients.len());
    assert!(during <= bound, "{during} MiB with them, {memory} MiB before");
    assert_eq!(gateway.client().post(CHAT, &chat("chat", "meanwhile")).await.status, 200);
    drop(clients);
    gateway.assert_idle().await;
    // Each leaves a block that is not whole: those for which there is no room are ended.
    let mut clients = JoinSet::new();
    for _ in 0..room_for(256) {
        let mut client = Streams::connect(gateway.address, &[]).await;
        // No frame may come between those of a block.
        client.is_alive = false;
        assert!(client.send(kind::HEADERS, 0, 1, &tiny_fields(3500, true)).await, "it listens");
        clients.spawn(async move { client.farewell().await });
    }
    while clients.len() > 32 {
        let farewell = clients.join_next().await.expect("a client").expect("an end");
        assert_eq!(farewell, Some(reason::ENHANCE_YOUR_CALM));
    }
    let during = resident(&gateway);
    eprintln!("open blocks: {memory} MiB before, {during} MiB with them");
    assert!(during <= bound, "{during} MiB with them, {memory} MiB before");
    assert_eq!(gateway.h2().post(CHAT, &chat("chat", "meanwhile")).await.status, 200);
    clients.shutdown().await;
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h6_a_client_that_never_reads_costs_little() {
    let event = delta(&"x".repeat(100_000));
    let stub = Stub::with(move |request| {
        let events = if request.json()["messages"][0]["content"] == "read" { 200 } else { 2000 };
        (0..events).fold(Script::sse(), |script, _| script.event(&event)).done()
    })
    .await;
    let gateway = Gateway::start(Config::of(Deployment::chat([&stub]))).await;
    let memory = resident(&gateway);
    let mut lazy = Vec::new();
    for _ in 0..10 {
        let body = chat_stream("chat", "never read").to_string();
        lazy.push(Raw::posted(gateway.address, CHAT, &body).await);
    }
    stub.request(9).await;
    // Whoever reads gets the whole stream meanwhile.
    let answer = gateway.client().post(CHAT, &chat_stream("chat", "read")).await;
    assert!(answer.body.ends_with(b"data: [DONE]\n\n") && answer.body.len() > 200 * 100_000);
    let during = resident(&gateway);
    eprintln!("10 streams that nobody reads: {memory} MiB before, {during} MiB with them");
    assert!(during < memory + 64, "{during} MiB with them, {memory} MiB before");
    drop(lazy);
    for index in 0..10 {
        assert_eq!(stub.ended(index).await, End::PeerLeft);
    }
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h6_slow_bodies_hold_nobody_up() {
    let stub = Stub::start().await;
    let gateway = Gateway::start(Config::of(Deployment::chat([&stub]))).await;
    let body = chat("chat", "slow").to_string();
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut raw = Raw::connect(gateway.address).await;
        raw.send(post(CHAT, &[&format!("content-length: {}", body.len())])).await;
        raw.send(&body[..10]).await;
        slow.push(raw);
    }
    assert_eq!(gateway.client().post(CHAT, &chat("chat", "quick")).await.status, 200);
    gateway.in_flight(0).await;
    for raw in &mut slow {
        raw.send(&body[10..]).await;
        assert_eq!(raw.head().await.expect("an answer").status(), 200);
    }
    gateway.assert_idle().await;
    gateway.until_metric(metric::BUFFERED_BYTES, &[], 0.0).await;
}
