//! `kill -9` of the gateway at any moment (C-005): the next start finds the same containers again, leaves no orphan,
//! makes no duplicate, and touches nothing else.

use tidegate_tests::books::{Books, PRICE, kills};
use tidegate_tests::deadline::eventually;

use crate::fleet::Fleet;

/// Waits for a moment that differs from round to round: so many containers there, `least` at the end of a way down, or so
/// many lines of the log later; and then some turns.
async fn moment(fleet: &Fleet, round: u32, least: usize) {
    let wanted = (round % 4) as usize;
    let before = fleet.log().lines().count();
    eventually("the moment of the kill", async || {
        let (there, said) = (fleet.containers().len(), fleet.log().lines().count() - before);
        let now = there >= wanted || there == least || said > 20;
        if now { Ok(()) } else { Err(format!("{there} containers")) }
    })
    .await;
    for _ in 0..round * 97 % 1009 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn c_005_m2_killed_at_any_moment_and_still_three_containers() {
    let fleet = Fleet::launch(false, |deployment| {
        deployment.set("max", 3).set("window", "1s").set("docker.price", PRICE)
    })
    .await;
    let Some(mut fleet) = fleet else { return };
    let bystander = fleet.dockerd.docker(&[
        "run",
        "--detach",
        "--network",
        "fleet",
        "--label",
        "tidegate.deployment=chat",
        "--label",
        "tidegate.owner=another",
        "--label",
        "tidegate.replica=1",
        "tidegate-under-test",
        "engine",
    ]);
    let mut books = Books::new(3);
    for round in 0..kills() {
        // Up and down in turn.
        let min = [3, 1, 2, 0][(round % 4) as usize];
        books.change(&fleet, min).await;
        moment(&fleet, round, min as usize).await;
        books.look(&fleet).await;
        fleet.kill();
        if round % 3 == 2 {
            // One of them dies while nobody looks.
            fleet.ended().await;
            if let Some(one) = fleet.containers().first() {
                fleet.dockerd.docker(&["rm", "--force", &one.id]);
            }
        }
        fleet.restart().await;
        books.check(&fleet).await;
        let there = fleet.containers();
        assert!(there.len() <= 3, "round {round}: {there:?}");
    }
    books.change(&fleet, 3).await;
    let settled = fleet.settled(3).await;
    assert_eq!(fleet.ask("after").await, 200);
    // Killed with all three up: the same three, with their ids and their addresses.
    fleet.kill();
    fleet.restart().await;
    assert_eq!(fleet.settled(3).await, settled, "the same containers");
    fleet.terminate();
    assert!(fleet.ended().await.success());
    assert_eq!(fleet.containers(), [], "SIGTERM leaves nothing");
    let lives = fleet.dockerd.docker(&["inspect", "--format", "{{.State.Running}}", &bystander]);
    assert_eq!(lives, "true", "what is not this gateway's is not touched");
}

#[tokio::test]
async fn c_005_a_container_that_was_made_and_not_started_is_cleaned_up() {
    let fleet = Fleet::launch(false, |deployment| deployment.set("min", 1).set("max", 1)).await;
    let Some(mut fleet) = fleet else { return };
    let before = fleet.settled(1).await;
    fleet.kill();
    fleet.ended().await;
    // As if it had been killed between the two calls of a start: made, never started, and under the next name.
    let labels = fleet.dockerd.docker(&["inspect", "--format", "{{json .Config.Labels}}", &before[0].id]);
    let mut labels: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&labels).expect("JSON");
    labels.insert("tidegate.replica".to_owned(), "2".into());
    let name = fleet.dockerd.docker(&["inspect", "--format", "{{.Name}}", &before[0].id]);
    let name = name.trim_start_matches('/').trim_end_matches('1').to_owned() + "2";
    let mut words =
        vec!["create".to_owned(), "--network".to_owned(), "fleet".to_owned(), "--name".to_owned(), name];
    for (label, value) in &labels {
        words.extend(["--label".to_owned(), format!("{label}={}", value.as_str().expect("a text"))]);
    }
    words.extend(["tidegate-under-test".to_owned(), "engine".to_owned()]);
    fleet.dockerd.docker(&words.iter().map(String::as_str).collect::<Vec<_>>());
    fleet.restart().await;
    assert_eq!(fleet.settled(1).await, before, "the half one is gone, the whole one is as it was");
}

#[tokio::test]
async fn c_005_another_recipe_ends_the_old_containers() {
    let fleet = Fleet::launch(false, |deployment| deployment.set("min", 2).set("max", 2)).await;
    let Some(mut fleet) = fleet else { return };
    let before = fleet.settled(2).await;
    fleet.kill();
    fleet.ended().await;
    let file = fleet.dir().join("tidegate.toml");
    let text = std::fs::read_to_string(&file).expect("the configuration");
    std::fs::write(&file, text.replace("\"2000\"", "\"1999\"")).expect("change it");
    fleet.restart().await;
    let after = eventually("two new containers", async || {
        let all = fleet.containers();
        let new = all.iter().all(|one| !before.contains(one) && one.running);
        if new && all.len() == 2 { Ok(all) } else { Err(format!("{all:?}")) }
    });
    let after = after.await;
    assert_eq!(fleet.settled(2).await, after);
    // A deployment that is gone takes its containers along.
    fleet.kill();
    fleet.ended().await;
    let text = std::fs::read_to_string(&file).expect("the configuration");
    std::fs::write(&file, text.replace("name = \"chat\"", "name = \"other\"").replace("min = 2", "min = 0"))
        .expect("it");
    fleet.restart().await;
    assert_eq!(fleet.containers(), [], "gone with their deployment");
}
