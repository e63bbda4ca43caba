//! The daemon goes and comes back (C2): the fleet is held and said to be, nothing is lost, nothing is there twice.

use rustix::process::Signal;
use serde_json::Value;

use crate::fleet::{Container, Fleet};

fn trouble(chat: &Value) -> Option<String> {
    chat["trouble"].as_str().map(str::to_owned)
}

/// Waits until the status says that the daemon does not answer.
async fn told_to_be_gone(fleet: &Fleet) {
    let told = fleet.until_status("the daemon is said to be gone", |chat| {
        trouble(chat).filter(|text| text.contains("provider docker does not answer"))
    });
    let text = told.await;
    assert!(text.contains(&fleet.dockerd.host()), "it says which: {text}");
}

#[tokio::test]
async fn c2_containers_that_outlive_their_daemon_are_the_same_afterwards() {
    let fleet = Fleet::launch(true, |deployment| deployment.set("min", 2).set("max", 2)).await;
    let Some(mut fleet) = fleet else { return };
    let before = fleet.settled(2).await;
    for signal in [Signal::TERM, Signal::KILL] {
        fleet.dockerd.end(signal).await;
        told_to_be_gone(&fleet).await;
        fleet.dockerd.revive().await;
        assert_eq!(fleet.settled(2).await, before, "neither replaced nor doubled");
        fleet.until_status("the trouble is over", |chat| chat["trouble"].is_null().then_some(())).await;
        assert_eq!(fleet.ask("after").await, 200);
    }
}

#[tokio::test]
async fn c2_containers_that_die_with_their_daemon_are_replaced_once_it_is_back() {
    let fleet = Fleet::launch(false, |deployment| deployment.set("min", 2).set("max", 2)).await;
    let Some(mut fleet) = fleet else { return };
    let before = fleet.settled(2).await;
    fleet.dockerd.end(Signal::TERM).await;
    told_to_be_gone(&fleet).await;
    fleet.dockerd.revive().await;
    let after = fleet.settled(2).await;
    let names = |all: &[Container]| all.iter().map(|one| one.replica.clone()).collect::<Vec<_>>();
    assert_eq!(
        (names(&before), names(&after)),
        (vec!["chat-1".to_owned(), "chat-2".to_owned()], vec!["chat-3".to_owned(), "chat-4".to_owned()],)
    );
    assert_eq!(fleet.ask("after").await, 200);
}

#[tokio::test]
async fn c_121_a_daemon_that_is_down_keeps_no_gateway_from_starting() {
    let fleet = Fleet::launch(true, |deployment| deployment.set("min", 1).set("max", 1)).await;
    let Some(mut fleet) = fleet else { return };
    let before = fleet.settled(1).await;
    fleet.kill();
    fleet.dockerd.end(Signal::TERM).await;
    fleet.restart().await;
    told_to_be_gone(&fleet).await;
    fleet.dockerd.revive().await;
    assert_eq!(fleet.settled(1).await, before, "adopted as soon as there is a list");
}
