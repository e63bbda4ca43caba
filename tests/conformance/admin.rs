//! The operator's side, seen from outside: the page for people, what else is there, and who is not answered.

use hyper::Method;
use tidegate_tests::client::Client;
use tidegate_tests::stub::Stub;

use super::serve;

#[tokio::test]
async fn e1_the_status_page_runs_only_its_own_script() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let page = Client::h1(gateway.admin).get("/").await;
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert!(page.body.starts_with(b"<!doctype html>"));
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
}

#[tokio::test]
async fn e1_the_status_tells_what_the_page_shows() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    gateway.ready_replicas(1).await;
    let status = gateway.status().await;
    let replica = &status["deployments"][0]["replicas"][0];
    assert_eq!((&replica["id"], &replica["phase"]), (&"chat-1".into(), &"ready".into()), "{status}");
    assert_eq!((&replica["in_flight"], &replica["limit"]), (&0.into(), &40.into()), "Q1: {status}");
}

#[tokio::test]
async fn an_unknown_path_is_told_what_there_is() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    for path in ["/state", "/v1/chat/completions"] {
        let answer = Client::h1(gateway.admin).get(path).await;
        assert_eq!(answer.status, 404);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(text.contains(path) && text.contains("/status") && text.contains("/metrics"), "{text}");
    }
}

#[tokio::test]
async fn the_admin_side_is_only_read() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    for path in ["/", "/status", "/metrics", "/livez"] {
        let head = Client::h1(gateway.admin).send(Method::HEAD, path, &[], "").await;
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        for method in [Method::POST, Method::DELETE] {
            let answer = Client::h1(gateway.admin).send(method, path, &[], "{}").await;
            assert_eq!((answer.status, answer.header("allow")), (405, "GET, HEAD"), "{path}");
        }
    }
}

/// A page of another site cannot read the status by having its own name point here.
#[tokio::test]
async fn a_rebound_name_is_not_answered() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    for path in ["/", "/status", "/metrics", "/nowhere"] {
        let answer =
            Client::h1(gateway.admin).send(Method::GET, path, &[("host", "rebound.example")], "").await;
        assert_eq!(answer.status, 421, "{path}");
    }
    let answer =
        Client::h1(gateway.admin).send(Method::GET, "/status", &[("host", "localhost:8081")], "").await;
    assert_eq!(answer.status, 200);
}
