//! Messages that HTTP/1.1 and HTTP/2 allow, forbid or leave open, as bytes on a socket: nothing that a proxy in front
//! or a replica behind could read in two ways, and no way to keep a place by sending more.

use std::time::Duration;

use tidegate_shared::names::metric;
use tidegate_tests::client::{Raw, post};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::within;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{assert_error_shape, chat, delta};
use tidegate_tests::script::Script;
use tidegate_tests::streams::{block, frame};
use tidegate_tests::stub::{End, Stub};
use tidegate_tests::wire::Framing;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::CHAT;

async fn serve(stub: &Stub) -> Gateway {
    Gateway::start(Config::of(Deployment::chat([stub]))).await
}

#[tokio::test]
async fn h7_leaving_is_noticed_behind_a_pipelined_request() {
    let stub = Stub::with(|request| match request.json()["stream"] == true {
        true => Script::sse().event(&delta("a")).stall(),
        false => Script::new().stall(),
    })
    .await;
    let one = Deployment::chat([&stub]).set("concurrency_limit", 1).set("queue.headroom", "10m");
    let gateway = Gateway::start(Config::of(one)).await;
    let body = chat("chat", "next").to_string();
    let next = post(CHAT, &[&format!("content-length: {}", body.len())]) + &body;
    let mut rest = vec!["\r\n".to_owned(), "GE".to_owned(), next.clone(), next.repeat(100)];
    // Half a request of which the rest will never come.
    rest.push(next[..next.len() - 1].to_owned());
    for (index, rest) in rest.iter().enumerate() {
        for stream in [false, true] {
            let body = serde_json::json!({"model": "chat", "stream": stream, "messages": []}).to_string();
            let mut raw = Raw::posted(gateway.address, CHAT, &body).await;
            raw.send(rest).await;
            stub.request(stub.count().max(2 * index + usize::from(stream) + 1) - 1).await;
            if stream {
                let mut framing = raw.head().await.expect("a head").framing(Framing::Close);
                assert!(raw.piece(&mut framing).await.expect("an event").is_some());
            }
            let mut waiter = Raw::posted(gateway.address, CHAT, &body).await;
            waiter.send(rest).await;
            gateway.queued(1).await;
            drop(waiter);
            gateway.queued(0).await;
            let work = stub.count();
            drop(raw);
            assert_eq!(stub.ended(work - 1).await, End::PeerLeft);
            gateway.assert_idle().await;
        }
    }
    assert_eq!(stub.count(), 2 * rest.len(), "what was pipelined behind is never sent");
}

#[tokio::test]
async fn h6_who_begins_a_request_and_does_not_end_it_gets_408_and_who_says_nothing_is_closed() {
    let stub = Stub::start().await;
    let config = Config::of(Deployment::chat([&stub])).set("limits.header_read", "300ms");
    let gateway = Gateway::start(config).await;
    let request = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-slow: ";
    for start in ["P", "PRI * HTTP/2.0\r\n\r\nSM", request] {
        let mut raw = Raw::connect(gateway.address).await;
        raw.send(start).await;
        let head = raw.head().await.expect("an answer");
        let error = assert_error_shape(&raw.body(&head).await.0);
        assert_eq!((head.status(), &error["code"]), (408, &"request_timeout".into()), "{start:?}");
        assert!(error["message"].as_str().is_some_and(|text| text.contains("300ms")), "{error}");
        assert!(raw.head().await.is_none(), "the connection ends");
    }
    let given_up = async |reason, count| {
        gateway.until_metric(metric::GAVE_UP, &[("reason", reason)], count).await;
    };
    given_up("head", 3.0).await;
    gateway.until_metric(metric::REQUESTS, &[("status", "408")], 3.0).await;
    gateway.access_line("its line", |line| (line["status"] == 408).then_some(())).await;

    let idle = gateway.metrics().await.total(metric::GAVE_UP, &[("reason", "idle")]);
    let mut raw = Raw::connect(gateway.address).await;
    assert!(raw.head().await.is_none(), "nothing was asked, nothing is answered");
    // The second request of a connection: none at all, or half of one.
    for (second, status) in [("", None), ("\r\n", None), (request, Some(408))] {
        let mut raw = Raw::connect(gateway.address).await;
        raw.send("GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let head = raw.head().await.expect("an answer");
        raw.body(&head).await.1.expect("a whole answer");
        raw.send(second).await;
        assert_eq!(raw.head().await.map(|head| head.status()), status, "{second:?}");
    }
    given_up("head", 4.0).await;
    given_up("idle", idle + 3.0).await;
}

#[tokio::test]
async fn h6_http_1_1_needs_exactly_one_host() {
    let stub = Stub::start().await;
    let gateway = serve(&stub).await;
    let status = async |head: &str| {
        let mut raw = Raw::connect(gateway.address).await;
        raw.send(head).await;
        let head = raw.head().await.expect("an answer");
        let (body, _) = raw.body(&head).await;
        if head.status() >= 400 {
            assert_error_shape(&body);
        }
        head.status()
    };
    for hosts in ["", "host: a\r\nhost: a\r\n", "host: a b\r\n", "host: user@a\r\n", "host: a/b\r\n"] {
        assert_eq!(status(&format!("GET /v1/models HTTP/1.1\r\n{hosts}\r\n")).await, 400, "{hosts:?}");
    }
    for hosts in ["host:\r\n", "host: a_b.c:80\r\n", "host: [::1]:8080\r\n"] {
        assert_eq!(status(&format!("GET /v1/models HTTP/1.1\r\n{hosts}\r\n")).await, 200, "{hosts:?}");
    }
    assert_eq!(status("GET /v1/models HTTP/1.0\r\n\r\n").await, 200, "HTTP/1.0 has none");
}

#[tokio::test]
async fn h6_a_transfer_coding_that_is_not_understood_is_refused() {
    let stub = Stub::start().await;
    let gateway = serve(&stub).await;
    let body = chat("chat", "hi").to_string();
    for (coding, status) in [
        ("gzip, chunked", 501),
        ("chunked, chunked", 400),
        ("chunked, gzip", 400),
        ("x-chunked", 400),
        ("identity", 400),
    ] {
        let mut raw = Raw::connect(gateway.address).await;
        raw.send(post(CHAT, &[&format!("transfer-encoding: {coding}")])).await;
        raw.offer(format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())).await;
        let head = raw.head().await.expect("an answer");
        let error = assert_error_shape(&raw.body(&head).await.0);
        assert_eq!((head.status(), head.header("connection")), (status, Some("close")), "{coding}");
        assert!(error["message"].as_str().is_some_and(|text| text.contains("chunked")), "{error}");
    }
    assert_eq!(stub.count(), 0);
}

#[tokio::test]
async fn h4_a_bad_chunk_is_named() {
    let stub = Stub::start().await;
    let gateway = serve(&stub).await;
    for (body, fault) in [
        ("0x3\r\nabc\r\n0\r\n\r\n", "bad chunk: its size is no number"),
        ("3\r\nabcd\r\n0\r\n\r\n", "bad chunk: it is longer than its size"),
    ] {
        let mut raw = Raw::connect(gateway.address).await;
        raw.send(post(CHAT, &["transfer-encoding: chunked"]) + body).await;
        let head = raw.head().await.expect("an answer");
        let (body, _) = raw.body(&head).await;
        assert_eq!((head.status(), assert_error_shape(&body)["message"].as_str()), (400, Some(fault)));
    }
    assert_eq!(stub.count(), 0);
}

#[tokio::test]
async fn h6_no_request_hides_behind_a_length_beside_chunks() {
    let stub = Stub::start().await;
    let gateway = serve(&stub).await;
    // The length would have a proxy in front take the second request for the body of the first.
    let hidden = "GET /livez HTTP/1.1\r\nhost: a\r\n\r\n";
    let both = format!("content-length: {}\r\ntransfer-encoding: chunked", 5 + hidden.len());
    for start in ["GET /v1/models", "POST /v1/models", "GET /livez", "PUT /unknown", &format!("GET {CHAT}")] {
        let mut raw = Raw::connect(gateway.address).await;
        raw.send(format!("{start} HTTP/1.1\r\nhost: a\r\n{both}\r\n\r\n0\r\n\r\n{hidden}")).await;
        let head = raw.head().await.expect("an answer");
        assert_eq!((head.status(), head.header("connection")), (400, Some("close")), "{start}");
        let (body, _) = raw.body(&head).await;
        assert_error_shape(&body);
        assert!(raw.head().await.is_none(), "{start}: nothing behind it is answered");
    }
}

#[tokio::test]
async fn c_091_a_length_beside_chunks_cuts_no_answer() {
    let stub = Stub::with(|_| {
        Script::new()
            .raw("HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n")
            .chunk("{\"whole\":1}")
            .end()
    })
    .await;
    let gateway = serve(&stub).await;
    let answer = gateway.client().post(CHAT, &chat("chat", "hi")).await;
    assert_eq!((answer.status, &answer.body[..]), (200, &b"{\"whole\":1}"[..]));
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h3_an_answer_in_another_transfer_coding_is_not_relayed_as_if_it_were_none() {
    let stub = Stub::start().await;
    let gateway = serve(&stub).await;
    for coding in ["gzip, chunked", "gzip", "identity", "chunked, chunked"] {
        let script = Script::new().raw(format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {coding}\r\n\r\n"));
        let script = script.chunk("?").end();
        stub.on_work(move |_| script.clone());
        let answer = gateway.client().post(CHAT, &chat("chat", "hi")).await;
        let error = assert_error_shape(&answer.body);
        assert_eq!((answer.status, &error["code"]), (502, &"bad_gateway".into()), "{coding}");
        assert!(error["message"].as_str().is_some_and(|text| text.contains("transfer-encoding")), "{error}");
        let trouble =
            gateway.access_line("its line", |line| Some(line["trouble"].as_str()?.to_owned())).await;
        assert!(trouble.contains("transfer-encoding"), "{trouble}");
    }
    assert_eq!(stub.count(), 4, "each was worked on: none is sent again");
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h6_a_head_that_is_too_large_is_refused_with_the_reason() {
    let stub = Stub::start().await;
    let gateway = serve(&stub).await;
    let body = chat("chat", "hi");
    for client in [gateway.client(), gateway.h2()] {
        let fits = "x".repeat(60 << 10);
        assert_eq!(client.post_with(CHAT, &[("x-long", &fits)], &body).await.status, 200);
        let answer = client.post_with(CHAT, &[("x-long", &"x".repeat(65 << 10))], &body).await;
        let error = assert_error_shape(&answer.body);
        assert_eq!((answer.status, &error["code"]), (431, &"headers_too_large".into()));
        assert!(error["message"].as_str().is_some_and(|text| text.contains("65536")), "{error}");
    }
    // One that never ends.
    let mut raw = Raw::connect(gateway.address).await;
    raw.send(format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\nx-endless: {}", "x".repeat(65 << 10))).await;
    assert_eq!(raw.head().await.map(|head| head.status()), Some(431));
    gateway.until_metric(metric::REQUESTS, &[("status", "431")], 3.0).await;
    assert_eq!(stub.count(), 2);
}

#[tokio::test]
async fn odd_answers_of_a_replica_end_cleanly() {
    let head = "HTTP/1.1 200 OK\r\n";
    let odd = [
        (
            format!(
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n{head}content-length: 2\r\n\r\n{{}}"
            ),
            200,
        ),
        ("HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\n{}".to_owned(), 204),
        ("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n".to_owned(), 502),
        (format!("{head}content-length: 3\r\ncontent-length: 2\r\n\r\n{{}}"), 502),
        (format!("{head}x-folded: a\r\n b\r\ncontent-length: 2\r\n\r\n{{}}"), 502),
        (format!("{head}x-nul: a\0b\r\ncontent-length: 2\r\n\r\n{{}}"), 502),
        (format!("{head}connection: content-type, x-request-id\r\ncontent-length: 2\r\n\r\n{{}}"), 200),
        (format!("{head}transfer-encoding: chunked\r\n\r\n2;a=b\r\n{{}}\r\n0\r\nx-trailer: 1\r\n\r\n"), 200),
        ("HTTP/1.0 200 OK\r\n\r\n{}".to_owned(), 200),
    ];
    for (answer, status) in odd {
        let script = Script::new().raw(answer.clone()).close();
        let stub = Stub::with(move |_| script.clone()).await;
        let gateway = serve(&stub).await;
        for client in [gateway.client(), gateway.h2()] {
            let got = client.post(CHAT, &chat("chat", "hi")).await;
            assert_eq!(got.status, status, "{answer:?}");
            assert!(got.header("x-request-id").starts_with("req-"), "{answer:?}");
            match status {
                200 => assert_eq!(&got.body[..], b"{}", "{answer:?}"),
                204 => assert!(got.body.is_empty(), "{answer:?}"),
                _ => drop(assert_error_shape(&got.body)),
            }
        }
        gateway.assert_idle().await;
    }
}

/// Floods a gateway over one HTTP/2 connection with what `more` gives for each stream id.
async fn flood(gateway: &Gateway, times: u32, more: impl Fn(u32) -> Vec<u8>) {
    let mut stream = within("a connection", TcpStream::connect(gateway.address)).await.expect("connect");
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    let (mut reader, mut writer) = stream.split();
    let write = async {
        let mut open = writer.write_all(&bytes).await.is_ok();
        for index in 0..times {
            open = open && writer.write_all(&more(2 * index + 1)).await.is_ok();
        }
    };
    let mut sink = Vec::new();
    let read = async { drop(reader.read_to_end(&mut sink).await) };
    // Whether the gateway closes the connection or puts up with it is its choice.
    within("the flood is over", async {
        tokio::select! {
            () = write => {}
            () = read => {}
        }
    })
    .await;
    let answer = within("others are served", gateway.client().get("/v1/models")).await;
    assert_eq!(answer.status, 200);
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h6_floods_over_http_2_are_bounded() {
    let stub = Stub::start().await;
    let gateway = serve(&stub).await;
    let before = crate::fleet::resident(&gateway);
    let block =
        block(&[(":method", "GET"), (":scheme", "http"), (":path", "/v1/models"), (":authority", "x")]);
    // Streams that are opened and reset at once.
    let reset = |id| [frame(1, 0x5, id, &block), frame(3, 0, id, &8_u32.to_be_bytes())].concat();
    flood(&gateway, 20_000, reset).await;
    // Streams whose header block never ends.
    flood(&gateway, 1, |id| frame(1, 0x1, id, &block)).await;
    let endless = |id| if id == 1 { frame(1, 0x1, 1, &block) } else { frame(9, 0, 1, &[0x40; 8192]) };
    flood(&gateway, 2_000, endless).await;
    // Pings, settings, windows of nothing, and data for nobody.
    flood(&gateway, 20_000, |_| frame(6, 0, 0, &[7; 8])).await;
    flood(&gateway, 20_000, |_| frame(4, 0, 0, &[])).await;
    flood(&gateway, 20_000, |_| frame(2, 0, 0, &[0; 5])).await;
    let after = crate::fleet::resident(&gateway);
    assert!(after < before + 64, "resident: {after} MiB after {before}");
    assert_eq!(gateway.metrics().await.total(metric::PANICS, &[]), 0.0);
    let calm = timeout(Duration::from_secs(30), gateway.h2().get("/v1/models")).await;
    assert_eq!(calm.expect("an answer").status, 200);
}
