//! Conversations and their homes (R1, R2, R4, R5, R7), as the headers of H5 tell them.

use serde_json::{Value, json};
use tidegate_shared::names::metric;
use tidegate_tests::client::Answer;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{chat, reply};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::Stub;

use crate::{CHAT, serve};

/// `count` stubs that answer.
async fn stubs(count: usize) -> Vec<Stub> {
    let mut stubs = Vec::new();
    for _ in 0..count {
        stubs.push(Stub::start().await);
    }
    stubs
}

/// Route and replica of an answer.
fn routed(answer: &Answer) -> (String, String) {
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    (answer.header("x-tidegate-route").to_owned(), answer.header("x-tidegate-replica").to_owned())
}

/// One request: headers and body.
type Turn = (Vec<(&'static str, String)>, Value);

async fn ask(gateway: &Gateway, (headers, body): &Turn) -> (String, String) {
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    routed(&gateway.client().post_with(CHAT, &headers, body).await)
}

/// Five conversations of five turns each, in turns: the first turn is placed, every later one goes home.
async fn assert_sticky(turn: impl Fn(usize, usize) -> Turn) {
    let stubs = stubs(3).await;
    let gateway = Gateway::start(Config::of(Deployment::chat(&stubs))).await;
    let mut homes = Vec::new();
    for number in 0..5 {
        for (conversation, index) in (0..5).zip(0..) {
            let (route, replica) = ask(&gateway, &turn(conversation, number)).await;
            if number == 0 {
                assert_eq!(route, "placed", "conversation {conversation}");
                homes.push(replica);
            } else {
                let home: &String = &homes[index];
                assert_eq!(
                    (route.as_str(), &replica),
                    ("home", home),
                    "conversation {conversation}, turn {number}"
                );
            }
        }
    }
    homes.sort();
    homes.dedup();
    assert_eq!(homes, ["chat-1", "chat-2", "chat-3"], "new ones are spread");
    gateway.until_metric(metric::CONVERSATIONS, &[("deployment", "chat")], 5.0).await;
}

#[tokio::test]
async fn r1_r2_x_conversation_id_names_a_conversation() {
    assert_sticky(|who, turn| {
        (vec![("x-conversation-id", format!("c{who}"))], chat("chat", &turn.to_string()))
    })
    .await;
}

#[tokio::test]
async fn r1_r2_x_session_id_names_a_conversation() {
    assert_sticky(|who, turn| (vec![("x-session-id", format!("c{who}"))], chat("chat", &turn.to_string())))
        .await;
}

#[tokio::test]
async fn r1_r2_prompt_cache_key_names_a_conversation() {
    assert_sticky(|who, turn| {
        let mut body = chat("chat", &turn.to_string());
        body["prompt_cache_key"] = format!("c{who}").into();
        (vec![("x-request-id", format!("never an identity {who} {turn}"))], body)
    })
    .await;
}

#[tokio::test]
async fn r1_r2_metadata_conversation_id_names_a_conversation() {
    assert_sticky(|who, turn| {
        let mut body = chat("chat", &turn.to_string());
        body["metadata"] = json!({"other": 1, "conversation_id": format!("c{who}")});
        (vec![], body)
    })
    .await;
}

/// A chat of `turns` answered turns and a new question; all share the system prompt.
fn history(who: usize, turns: usize) -> Value {
    let mut messages = vec![json!({"role": "system", "content": "You are a tide table."})];
    for turn in 0..turns {
        messages.push(json!({"role": "user", "content": format!("question {turn} of {who}")}));
        messages.push(json!({"role": "assistant", "content": format!("answer {turn} to {who}")}));
    }
    messages.push(json!({"role": "user", "content": format!("question {turns} of {who}")}));
    json!({"model": "chat", "messages": messages, "temperature": 0.5})
}

#[tokio::test]
async fn r1_r2_a_follow_up_is_known_by_its_prefix() {
    assert_sticky(|who, turn| (vec![], history(who, turn))).await;
}

#[tokio::test]
async fn r1_the_first_match_wins() {
    let stubs = stubs(3).await;
    let gateway = Gateway::start(Config::of(Deployment::chat(&stubs))).await;
    let turn = |header: &str, key: &str, id: &str| -> Turn {
        let mut body = chat("chat", "hi");
        body["prompt_cache_key"] = key.into();
        body["metadata"] = json!({"conversation_id": id});
        (vec![("x-conversation-id", header.to_owned())], body)
    };
    let (route, home) = ask(&gateway, &turn("h1", "k1", "m1")).await;
    assert_eq!(route, "placed");
    assert_eq!(ask(&gateway, &turn("h1", "k2", "m2")).await, ("home".to_owned(), home), "the header decides");
    assert_eq!(
        ask(&gateway, &turn("h2", "k1", "m1")).await.0,
        "placed",
        "another header, another conversation"
    );
}

#[tokio::test]
async fn r1_the_same_opening_twice_is_two_conversations() {
    let stubs = stubs(2).await;
    let gateway = Gateway::start(Config::of(Deployment::chat(&stubs))).await;
    let one = ask(&gateway, &(vec![], history(1, 0))).await;
    let two = ask(&gateway, &(vec![], history(1, 0))).await;
    assert_eq!([one.0.as_str(), two.0.as_str()], ["placed", "placed"], "an opening is no second turn");
}

#[tokio::test]
async fn r1_embeddings_go_anywhere() {
    let stubs = stubs(2).await;
    let gateway = Gateway::start(Config::of(Deployment::chat(&stubs))).await;
    for _ in 0..40 {
        let headers = [("x-conversation-id", "one")];
        let body = json!({"model": "chat", "input": "x", "prompt_cache_key": "k"});
        let answer = gateway.client().post_with("/v1/embeddings", &headers, &body).await;
        assert_eq!(routed(&answer).0, "any");
    }
    assert_eq!([stubs[0].count(), stubs[1].count()], [20, 20]);
    gateway.until_metric(metric::CONVERSATIONS, &[], 0.0).await;
}

#[tokio::test]
async fn r5_after_the_home_died_the_next_turn_is_rehomed() {
    let stubs = stubs(3).await;
    let gateway = Gateway::start(Config::of(Deployment::chat(&stubs))).await;
    let turn = |number: usize| -> Turn { (vec![("x-session-id", "s".to_owned())], history(1, number)) };
    let (_, home) = ask(&gateway, &turn(0)).await;
    let home_stub = stubs.iter().find(|stub| stub.count() == 1).expect("a home");
    home_stub.kill().await;
    let (route, new_home) = ask(&gateway, &turn(1)).await;
    assert_eq!(route, "rehomed");
    assert_ne!(new_home, home);
    assert_eq!(ask(&gateway, &turn(2)).await, ("home".to_owned(), new_home.clone()));
    home_stub.revive();
    gateway.ready_replicas(3).await;
    assert_eq!(
        ask(&gateway, &turn(3)).await,
        ("home".to_owned(), new_home),
        "it stays where its cache is now"
    );
    gateway.assert_idle().await;
}

#[tokio::test]
async fn r4_a_full_home_sheds_for_one_request() {
    let gate = Gate::closed();
    let mut stubs = Vec::new();
    for _ in 0..2 {
        let gate = gate.clone();
        stubs.push(
            Stub::with(move |request| match request.head.header("x-hold") {
                Some(_) => Script::new().wait(&gate).then(reply(request)),
                None => reply(request),
            })
            .await,
        );
    }
    let gateway = Gateway::start(Config::of(Deployment::chat(&stubs).set("concurrency_limit", 1))).await;
    let turn = |number: usize| -> Turn { (vec![("x-session-id", "s".to_owned())], history(1, number)) };
    let (_, home) = ask(&gateway, &turn(0)).await;
    let client = gateway.client();
    let holding = tokio::spawn(async move {
        let headers = [("x-session-id", "s"), ("x-hold", "1")];
        routed(&client.post_with(CHAT, &headers, &history(1, 1)).await)
    });
    gateway.in_flight(1).await;
    let (route, elsewhere) = ask(&gateway, &turn(2)).await;
    assert_eq!(route, "detour");
    assert_ne!(elsewhere, home);
    gate.open();
    assert_eq!(holding.await.expect("an answer"), ("home".to_owned(), home.clone()));
    gateway.assert_idle().await;
    assert_eq!(ask(&gateway, &turn(3)).await, ("home".to_owned(), home), "the home is unchanged");
}

#[tokio::test]
async fn r7_the_table_is_bounded() {
    let stub = Stub::start().await;
    let deployment = Deployment::chat([&stub]).set("conversations.max", 10);
    let gateway = Gateway::start(Config::of(deployment)).await;
    let turn = |who: usize| -> Turn { (vec![("x-session-id", who.to_string())], chat("chat", "hi")) };
    for who in 0..50 {
        assert_eq!(ask(&gateway, &turn(who)).await.0, "placed");
    }
    assert!(gateway.metrics().await.total(metric::CONVERSATIONS, &[]) <= 10.0);
    assert_eq!(ask(&gateway, &turn(49)).await.0, "home", "the latest is known");
    assert_eq!(ask(&gateway, &turn(0)).await.0, "placed", "the oldest is forgotten");
}

#[tokio::test]
async fn h5_routes_are_counted() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    for number in 0..3 {
        ask(&gateway, &(vec![("x-session-id", "s".to_owned())], history(1, number))).await;
    }
    gateway.until_metric(metric::ROUTES, &[("deployment", "chat"), ("route", "placed")], 1.0).await;
    gateway.until_metric(metric::ROUTES, &[("deployment", "chat"), ("route", "home")], 2.0).await;
}
