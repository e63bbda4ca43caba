//! Routes, headers and bytes of plain requests (H1, H2, H3, H5, H6), over HTTP/1.1 and HTTP/2.

use hyper::Method;
use serde_json::{Value, json};
use tidegate_tests::client::{Answer, Client, Raw, Version, post};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{assert_error_shape, chat};
use tidegate_tests::recipe::everywhere;
use tidegate_tests::script::Script;
use tidegate_tests::stub::Stub;

use crate::{CHAT, serve};

#[tokio::test]
async fn h1_every_route_reaches_the_replica_by_its_model() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let routes = [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/responses",
        "/v1/messages",
        "/v1/rerank",
        "/v1/score",
        "/tokenize",
        "/detokenize",
        "/v1/images/generations",
        "/v1/videos",
        "/v1/audio/speech",
    ];
    for (index, route) in routes.into_iter().enumerate() {
        let answer =
            gateway.client().post(route, &json!({"model": "chat", "input": "x", "prompt": "x"})).await;
        assert_eq!(answer.status, 200, "{route}");
        assert_eq!(stub.request(index).await.path(), route);
    }
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h1_routes_without_v1_mean_the_same() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    for (index, route) in ["/chat/completions", "/completions", "/embeddings"].into_iter().enumerate() {
        let answer =
            gateway.client().post(route, &json!({"model": "chat", "input": "x", "prompt": "x"})).await;
        assert_eq!(answer.status, 200, "{route}");
        assert_eq!(
            stub.request(index).await.path(),
            format!("/v1{route}"),
            "engines know the route with /v1"
        );
    }
}

#[tokio::test]
async fn h1_multipart_is_routed_by_its_model_part() {
    let (one, two) = (Stub::start().await, Stub::start().await);
    let config = Config::of(Deployment::chat([&one]))
        .and(Deployment::named("whisper").set("model", "chat-two").replica(&two.url(), 1));
    two.on_probe(|request| match request.path() {
        "/v1/models" => Script::json(200, &json!({"object": "list", "data": [{"id": "chat-two"}]})),
        _ => tidegate_tests::stub::healthy(request),
    });
    let gateway = Gateway::start(config).await;
    let body = "--b0\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\
                Content-Type: audio/wav\r\n\r\nRIFF\0\u{1}model\r\n--b0\r\n\
                Content-Disposition: form-data; name=\"model\"\r\n\r\nchat\r\n--b0--\r\n";
    for (index, route) in ["/v1/audio/transcriptions", "/v1/images/edits"].into_iter().enumerate() {
        let headers = [("content-type", "multipart/form-data; boundary=b0")];
        let answer = gateway.client().send(Method::POST, route, &headers, body).await;
        assert_eq!(answer.status, 200, "{route}: {:?}", answer.body);
        let seen = one.request(index).await;
        assert_eq!((seen.path(), &seen.body[..]), (route, body.as_bytes()));
    }
    assert_eq!(two.count(), 0);
}

#[tokio::test]
async fn h2_models_answer_from_configuration() {
    let stub = Stub::start().await;
    let config = Config::of(Deployment::chat([&stub]).set("aliases", vec!["gpt-4o"]))
        .and(Deployment::named("org/cold-7B:q4").engine(&[]));
    let gateway = Gateway::start(config).await;
    for client in [gateway.client(), gateway.h2()] {
        let list = client.get("/v1/models").await;
        assert_eq!((list.status, list.json()["object"].as_str()), (200, Some("list")));
        let models = list.json()["data"].as_array().cloned().unwrap_or_default();
        assert!(models.iter().all(|model| model["object"] == "model"), "{models:?}");
        for name in ["chat", "org/cold-7B:q4"] {
            assert!(models.iter().any(|model| model["id"] == name), "{name} in {models:?}");
            let one = client.get(&format!("/v1/models/{name}")).await;
            assert_eq!(
                (one.status, one.json()["id"].as_str()),
                (200, Some(name)),
                "a model at zero is listed"
            );
        }
        let unknown = client.get("/v1/models/nobody").await;
        assert_eq!(unknown.status, 404);
        assert_eq!(assert_error_shape(&unknown.body)["code"], "model_not_found");
    }
    assert_eq!(stub.count(), 0, "no replica was asked");
}

#[tokio::test]
async fn h2_live_and_ready_answer_200() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    for path in ["/livez", "/readyz"] {
        assert_eq!(gateway.client().get(path).await.status, 200, "{path}");
        assert_eq!(gateway.h2().get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn h3_body_goes_upstream_byte_for_byte() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let bodies = [
        "{\"model\":\"chat\",\"messages\":[]}",
        " {\n\t\"unknown\" : {\"deep\": [1e400, 12345678901234567890, -0.0, \"\\u0000\\ud83d\\ude00\"]} ,\r\n  \
         \"messages\" : [ {\"role\":\"user\",\"content\":\"h\\u00e9 \\\"model\\\":\\\"x\\\" \\/ \"} ] , \
         \"model\" : \"ch\\u0061t\", \"temperature\":1.0, \"stream\" : false }\n",
        "{\"messages\":[{\"model\":\"nested\",\"content\":[{\"type\":\"text\",\"text\":\"é😀\"}]}],\"model\":\"chat\"}",
    ];
    for (index, body) in bodies.into_iter().enumerate() {
        for (half, client) in [gateway.client(), gateway.h2()].into_iter().enumerate() {
            let answer = client.send(Method::POST, CHAT, &[], body).await;
            assert_eq!(answer.status, 200, "{body}: {:?}", answer.body);
            assert_eq!(stub.request(index * 2 + half).await.body, body);
        }
    }
}

#[tokio::test]
async fn h3_an_alias_changes_only_the_bytes_of_the_model() {
    let stub = Stub::start().await;
    stub.on_probe(|request| match request.path() {
        "/v1/models" => Script::json(200, &json!({"object": "list", "data": [{"id": "engine/name"}]})),
        _ => tidegate_tests::stub::healthy(request),
    });
    let deployment = Deployment::chat([&stub]).set("aliases", vec!["gpt-4o"]).set("model", "engine/name");
    let gateway = Gateway::start(Config::of(deployment)).await;
    for (index, name) in ["gpt-4o", "chat"].into_iter().enumerate() {
        let body =
            format!("{{ \"n\":1.0 , \"model\" : \"{name}\" ,\"messages\":[{{\"content\":\"{name}\"}}]}}");
        let answer = gateway.client().send(Method::POST, CHAT, &[], body.clone()).await;
        assert_eq!(answer.status, 200);
        let wanted = body.replacen(name, "engine/name", 1);
        let seen = stub.request(index).await;
        assert_eq!(seen.body, wanted);
        assert_eq!(seen.head.header("content-length"), Some(wanted.len().to_string().as_str()), "C-091");
        let line =
            gateway.access_line("its line", |line| (line["model"] == name).then(|| line.clone())).await;
        let deployment = line.get("deployment").and_then(Value::as_str);
        assert_eq!(deployment, (name != "chat").then_some("chat"), "told where it is another word");
    }
}

#[tokio::test]
async fn h3_answer_comes_back_byte_for_byte() {
    let body =
        "{\"id\" : \"x\",\n \"choices\":[ ] , \"usage\":{\"prompt_tokens\":1.0}, \"é\":\"\\u00e9\"}\n\n";
    let stub = Stub::with(move |_| {
        Script::answer(
            200,
            &["content-type: application/json; charset=utf-8", "x-engine: a", "X-Engine: b"],
            body,
        )
    })
    .await;
    let gateway = serve(&[&stub]).await;
    for client in [gateway.client(), gateway.h2()] {
        let answer = client.post(CHAT, &chat("chat", "hi")).await;
        assert_eq!(answer.body, body);
        assert_eq!(answer.header("content-type"), "application/json; charset=utf-8");
        let engine: Vec<_> = answer.headers.get_all("x-engine").iter().collect();
        assert_eq!(engine, ["a", "b"]);
    }
}

#[tokio::test]
async fn c_142_query_string_forwarded_byte_for_byte() {
    let stub = Stub::start().await;
    let queries =
        ["?a=1&a=2&b=%2F+x&c=", "?", "?api-version=2026-01-01&x=%zz;'", "?a?b=/../%2e%2E//&&=&%C3%a9=[1]"];
    everywhere(Config::of(Deployment::chat([&stub])), async |gateway, way| {
        for query in queries {
            let (target, body) = (format!("{}{query}", way.path), way.body("x").to_string());
            let answer = way.client.send(Method::POST, &target, &[], body.clone()).await;
            assert_eq!(answer.status, 200, "{way}: {query}");
            assert_eq!(stub.request(stub.count() - 1).await.head.target(), target, "{way}");
            // As bytes, too, where they can be sent as such.
            if way.client.version() == Version::H1 {
                let mut raw = Raw::posted(gateway.address, &target, &body).await;
                assert_eq!(raw.head().await.map(|head| head.status()), Some(200), "{way}: {query}");
                assert_eq!(stub.request(stub.count() - 1).await.head.target(), target, "{way}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn h5_answers_name_request_replica_and_route() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let named = |answer: &Answer| answer.header("x-request-id").to_owned();
    let ask = async |client: Client, headers: &[(&str, &str)]| {
        client.post_with(CHAT, headers, &chat("chat", "hi")).await
    };
    for client in [gateway.client(), gateway.h2()] {
        let kept = ask(client, &[("x-request-id", "my-id/7")]).await;
        assert_eq!(named(&kept), "my-id/7");
        let (one, two) = (ask(client, &[]).await, ask(client, &[]).await);
        assert!(!named(&one).is_empty() && named(&one) != named(&two), "an id is made for each request");
        assert_eq!(one.header("x-tidegate-replica"), "chat-1", "an id, never an address");
        assert_eq!(one.header("x-tidegate-route"), "placed");
    }
    assert_eq!(stub.request(0).await.head.header("x-request-id"), Some("my-id/7"), "the replica sees it too");
    let refused = gateway.client().post(CHAT, &chat("nobody", "hi")).await;
    assert!(!named(&refused).is_empty(), "errors carry the request's id as well");
}

#[tokio::test]
async fn h5_hop_by_hop_headers_are_dropped_both_ways() {
    let stub = Stub::with(|_| {
        let headers = [
            "content-type: application/json",
            "connection: keep-alive, x-private",
            "x-private: 1",
            "keep-alive: timeout=5",
            "proxy-connection: keep-alive",
            "x-public: 1",
        ];
        Script::answer(200, &headers, "{}")
    })
    .await;
    let gateway = serve(&[&stub]).await;
    let body = chat("chat", "hi").to_string();
    let length = format!("content-length: {}", body.len());
    let mut raw = Raw::connect(gateway.address).await;
    let headers = [
        length.as_str(),
        "connection: keep-alive, X-Private",
        "x-private: 1",
        "keep-alive: timeout=9",
        "proxy-connection: keep-alive",
        "proxy-authorization: Basic eDp5",
        "te: trailers",
        "x-public: 1",
    ];
    raw.send(post(CHAT, &headers) + &body).await;
    let answer = raw.head().await.expect("an answer");
    let seen = stub.request(0).await.head;
    for head in [&answer, &seen] {
        assert_eq!(head.header("x-public"), Some("1"), "{head:?}");
        for name in ["x-private", "keep-alive", "proxy-connection", "proxy-authorization", "te"] {
            assert_eq!(head.header(name), None, "{name} in {head:?}");
        }
    }
}

#[tokio::test]
async fn h5_authorization_stays_here() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    for client in [gateway.client(), gateway.h2()] {
        let headers = [("authorization", "Bearer secret-of-the-client")];
        assert_eq!(client.post_with(CHAT, &headers, &chat("chat", "hi")).await.status, 200);
    }
    for index in 0..2 {
        assert_eq!(stub.request(index).await.head.header("authorization"), None);
    }
    assert!(!gateway.log().contains("secret-of-the-client"));
}

#[tokio::test]
async fn h6_c_115_a_client_of_http_2_is_served_by_replicas_of_http_1() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    for index in 0..100 {
        let answer = gateway.h2().post(CHAT, &chat("chat", &format!("{index}"))).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["object"], "chat.completion");
        let seen = stub.request(index).await;
        assert!(seen.head.start.ends_with("HTTP/1.1"), "{}", seen.head.start);
        assert_eq!(seen.json(), chat("chat", &format!("{index}")));
    }
    assert_eq!(gateway.h2().get("/v1/nothing").await.status, 404);
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h6_an_expecting_client_is_told_to_go_on() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let body = chat("chat", "hi").to_string();
    let mut raw = Raw::connect(gateway.address).await;
    raw.send(post(CHAT, &[&format!("content-length: {}", body.len()), "expect: 100-continue"])).await;
    assert_eq!(raw.head().await.map(|head| head.status()), Some(100));
    raw.send(&body).await;
    assert_eq!(raw.head().await.map(|head| head.status()), Some(200));
    assert_eq!(stub.request(0).await.json(), serde_json::from_str::<Value>(&body).expect("JSON"));
}
