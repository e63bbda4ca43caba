//! Chunks that are no chunks.

use super::*;

#[test]
fn h6_chunks_that_another_reader_could_take_otherwise_are_refused() {
    for bytes in [
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nab\r\n0\r\n\r\n",
        "\r\n0\r\n\r\n",
        "3;a\nb\r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "+3\r\nabc\r\n0\r\n\r\n",
        "10000000000000003\r\nabc\r\n0\r\n\r\n",
        "0\r\nx: y\n\r\n",
        "0\n\n",
        "0\r\n\r0",
        "3\r\nabc\n0\r\n\r\n",
        " 3\r\nabc\r\n0\r\n\r\n",
        "3 3\r\nabc\r\n0\r\n\r\n",
    ] {
        assert_eq!(body(bytes.as_bytes(), usize::MAX, Left::chunked()), None, "{bytes:?}");
    }
    let aside = |text: &str| body(text.as_bytes(), usize::MAX, Left::chunked()).is_some();
    assert!(
        aside(&format!("0;{}\r\n\r\n", "x".repeat(16_000)))
            && !aside(&format!("0;{}\r\n\r\n", "x".repeat(17_000)))
    );
    assert!(
        aside(&format!("0\r\n{}\r\n\r\n", "x".repeat(16_000)))
            && !aside(&format!("0\r\n{}\r\n\r\n", "x".repeat(17_000)))
    );
}

#[test]
fn h3_h6_what_came_whole_is_given_and_broken_chunks_never_end() {
    for behind in ["5;a\nX\r\n0\r\n\r\n", "zz", "-1\r\n", "0\r\nx: y\n\r\n"] {
        let mut left = Left::chunked();
        let mut held = BytesMut::from(format!("3\r\nabc\r\n2\r\nde\r\n{behind}").as_bytes());
        let data = |taken: Result<Option<Bytes>, _>| taken.expect("data").expect("some");
        assert_eq!(data(left.take(&mut held)), "abc");
        assert_eq!(data(left.take(&mut held)), "de", "{behind:?}");
        let bad = left.take(&mut held).expect_err(behind);
        for _ in 0..5 {
            assert_eq!(left.take(&mut held), Err(bad), "{held:?}");
            assert!(!left.is_over());
        }
    }
}
