//! Heads that take more of the gateway than of their clients, over one connection and over all (C-072).

use super::*;

/// The head of a request whose body is to come, with 60 KB in 15 fields that the connection has had before; in the first one
/// is new.
fn large_block(is_first: bool) -> Vec<u8> {
    let start = [&[0x83, 0x86, 0x04, 14][..], b"/v1/embeddings", &[0x01, 1], b"x"].concat();
    // 4000 as 127 and the rest (RFC 7541, 5.1).
    let new = [&[0x40, 3][..], b"x-a", &[0x7f, 0xa1, 0x1e], &[b'a'; 4000]].concat();
    [start, if is_first { new } else { vec![0xbe; 15] }].concat()
}

#[tokio::test(start_paused = true)]
async fn c_072_heads_that_cost_their_client_nothing_are_bounded_together() {
    let refused = u32::from(Reason::REFUSED_STREAM).to_be_bytes();
    client(1 << 16, async |mut client| {
        let last = 2 * 100 + 1;
        for stream in (1..=last).step_by(2) {
            assert!(client.send((HEADERS, END_HEADERS, stream, &large_block(stream == 1))).await);
        }
        // The first and 17 large ones are 1 MiB but for a few KiB.
        for stream in (37..=last).step_by(2) {
            assert_eq!(client.next().await, Some((RST_STREAM, 0, stream, refused.to_vec())));
        }
        client.ask(last + 2, 2, END_STREAM).await;
        assert_eq!(client.until(DATA, last + 2).await, b"{\"status\":\"ok\"}", "others are served");
        // Whoever leaves makes room for another.
        client.send((RST_STREAM, 0, 3, &u32::from(Reason::CANCEL).to_be_bytes())).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        client.send((HEADERS, END_HEADERS, last + 4, &large_block(false))).await;
        client.send((DATA, END_STREAM, last + 4, b"{}")).await;
        assert!(client.until(DATA, last + 4).await.starts_with(b"{\"error\""));
        client.send((HEADERS, END_HEADERS, last + 6, &large_block(false))).await;
        client.send((DATA, END_STREAM, last + 6, b"{}")).await;
        assert!(client.until(DATA, last + 6).await.starts_with(b"{\"error\""), "an answer made room");
        // To be refused for ever is no way to keep a gateway busy.
        let mut stream = last + 8;
        client.send((HEADERS, END_HEADERS, stream, &large_block(false))).await;
        while stream < 20_000 && client.send((HEADERS, END_HEADERS, stream + 2, &large_block(false))).await {
            stream += 2;
            tokio::task::yield_now().await;
        }
        assert!(client.farewells().await.contains(&Reason::ENHANCE_YOUR_CALM));
    })
    .await;
}

/// The head of a request whose body is to come, with so many fields of three bytes: a byte each, but for the first.
fn tiny_block(fields: usize, is_first: bool) -> Vec<u8> {
    let start = [&[0x83, 0x86, 0x04, 14][..], b"/v1/embeddings", &[0x01, 1], b"x"].concat();
    let new = [&[0x40, 1][..], b"x", &[2], b"ab"].concat();
    let fields = vec![0xbe; fields];
    [start, if is_first { new } else { Vec::new() }, fields].concat()
}

/// Bytes of the room for all heads that a test leaves, and those that it takes.
const ROOM: u64 = 40 << 10;

fn take_all_but_room(gateway: &Gateway) -> u64 {
    let taken = crate::server::http2::heads::budget(1 << 20).max() - ROOM;
    assert!(gateway.heads.take(taken));
    taken
}

#[tokio::test(start_paused = true)]
async fn c_072_the_heads_of_all_connections_are_bounded_together() {
    let refused = u32::from(Reason::REFUSED_STREAM).to_be_bytes();
    client_of(1 << 16, async |mut client, gateway| {
        let before = take_all_but_room(gateway);
        // Over another connection, for all that this one knows.
        for stream in [1, 3, 5] {
            assert!(client.send((HEADERS, END_HEADERS, stream, &tiny_block(90, stream == 1))).await);
        }
        assert_eq!(client.next().await, Some((RST_STREAM, 0, 5, refused.to_vec())));
        // An answer makes room for another.
        client.send((DATA, END_STREAM, 3, b"{}")).await;
        assert!(client.until(DATA, 3).await.starts_with(b"{\"error\""));
        client.send((HEADERS, END_HEADERS, 7, &tiny_block(90, false))).await;
        for stream in [7, 1] {
            client.send((DATA, END_STREAM, stream, b"{}")).await;
            assert!(client.until(DATA, stream).await.starts_with(b"{\"error\""));
        }
        client.ask(9, 2, END_STREAM).await;
        assert_eq!(client.until(DATA, 9).await, b"{\"status\":\"ok\"}", "a small one has room");
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(gateway.heads.used(), before, "all of it was given back");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn c_072_a_block_that_is_not_whole_and_trailers_count_as_what_they_become() {
    client_of(1 << 16, async |mut client, gateway| {
        let before = take_all_but_room(gateway);
        // Is held until it is whole, and is a request then.
        assert!(client.send((HEADERS, 0, 1, &tiny_block(90, true))).await);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(gateway.heads.used() >= before + 90 * 72, "{}", gateway.heads.used() - before);
        assert!(client.send((CONTINUATION, END_HEADERS, 1, &[])).await);
        assert!(client.send((DATA, 0, 1, b"{")).await);
        // Behind the body: thrown away.
        assert!(client.send((HEADERS, END_HEADERS | END_STREAM, 1, &[0xbe; 90])).await);
        assert!(client.until(DATA, 1).await.starts_with(b"{\"error\""));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(gateway.heads.used(), before, "all of it was given back");
        // More than there is room for.
        assert!(client.send((HEADERS, 0, 3, &tiny_block(1000, false))).await);
        assert_eq!(client.farewells().await, [Reason::ENHANCE_YOUR_CALM]);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(gateway.heads.used(), before, "with the connection all of it is given back");
    })
    .await;
}
