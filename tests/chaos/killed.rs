//! `kill -9` of the gateway (C-005): the next start finds the same engines again, and touches nothing else.

use std::process::Stdio;

use procfs::process::Process;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use tidegate_shared::names::metric;
use tidegate_tests::books::{Books, PRICE, kills};
use tidegate_tests::client::Raw;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::shown::replicas;
use tidegate_tests::stub::Stub;
use tokio::process::{Child, Command};

use crate::CHAT;
use crate::fleet::{Engine, Fleet, QUICK, brief, engines, long};

/// A process that is nobody's replica.
fn bystander() -> Child {
    let mut command = Command::new("sleep");
    command.arg("600").stdin(Stdio::null()).kill_on_drop(true);
    command.spawn().expect("a bystander")
}

/// Writes records that name the bystander as replicas of the deployment: as if their pids had been used again, with
/// the right start time and with a wrong one.
fn forge(gateway: &Gateway, bystander: &Child) {
    let pid = i32::try_from(bystander.id().expect("it lives")).expect("a pid");
    let started = Process::new(pid).and_then(|process| process.stat()).expect("stat").starttime;
    let folder = gateway.dir().join("state/chat");
    let files = std::fs::read_dir(&folder).expect("the records");
    let record = files
        .map(|file| file.expect("a file").path())
        .find(|path| path.extension().is_some_and(|ending| ending == "json"))
        .expect("a record");
    let mut record: Value = serde_json::from_slice(&std::fs::read(record).expect("a record")).expect("JSON");
    for (id, start) in [(901, started), (902, started + 1)] {
        let identity = serde_json::json!({"pid": pid, "start": start});
        record["id"] = id.into();
        record["leader"] = identity.clone();
        record["members"] = serde_json::json!([identity]);
        std::fs::write(folder.join(format!("{id}.json")), record.to_string()).expect("forge");
    }
}

#[tokio::test]
async fn c_005_ten_kills_and_still_the_same_three_engines() {
    let mut fleet = Fleet::launch(engines(QUICK).set("min", 3).set("max", 3)).await;
    let before = fleet.settled(3).await;
    let mut bystander = bystander();
    for round in 0..10 {
        forge(&fleet, &bystander);
        fleet.kill();
        fleet.restart().await;
        let answer = fleet.ask(&format!("round {round}")).await;
        assert_eq!(answer.status, 200, "served at once: {:?}", answer.body);
        assert_eq!(fleet.settled(3).await, before, "the same engines after kill {round}");
        let told = before.iter().map(|engine| {
            let Engine { id, pid, port, .. } = engine;
            format!(" {id} is adopted: it runs since the last gateway (pid {pid}, port {port})")
        });
        for line in told {
            assert_eq!(fleet.log().matches(&line).count(), round + 1, "{line}, once for each start");
        }
        assert!(bystander.try_wait().expect("wait").is_none(), "the bystander lives on");
    }
    fleet.terminate();
    assert_eq!(fleet.ended().await.code(), Some(0));
    assert_eq!(fleet.engines(), [], "SIGTERM leaves nothing");
    assert!(bystander.try_wait().expect("wait").is_none(), "nor does the end touch it");
}

/// Every other way to end. A program that is built with `panic = "abort"` ends by SIGABRT when it panics, as one that fails
/// an allocation does; SIGQUIT leaves it no word either.
#[tokio::test]
async fn c_005_however_it_ends_there_are_three_engines_after_it() {
    let mut fleet = Fleet::launch(engines(QUICK).set("min", 3).set("max", 3)).await;
    let mut before = fleet.settled(3).await;
    let mut bystander = bystander();
    for signal in [Signal::ABORT, Signal::TERM, Signal::INT, Signal::QUIT] {
        forge(&fleet, &bystander);
        let ports: Vec<_> = before.iter().map(|engine| engine.port).collect();
        kill_process(fleet.pid().expect("it runs"), signal).expect("signal");
        let ended = fleet.ended().await;
        let in_peace = signal == Signal::TERM || signal == Signal::INT;
        assert_eq!(ended.success(), in_peace, "{signal:?}: {ended}");
        assert_eq!(fleet.engines().len(), if in_peace { 0 } else { 3 }, "{signal:?}");
        fleet.restart().await;
        let after = fleet.settled(3).await;
        if in_peace {
            let fresh =
                |engine: &Engine| before.iter().all(|old| old.id != engine.id && old.pid != engine.pid);
            assert!(after.iter().all(fresh), "{signal:?}: {after:?} after {before:?}");
        } else {
            assert_eq!(after, before, "{signal:?}: adopted, on ports {ports:?}");
        }
        for engine in &after {
            assert_eq!(engine.client().get("/health").await.status, 200, "{signal:?}: each at its own port");
        }
        assert_eq!(fleet.ask("after").await.status, 200, "{signal:?}");
        assert!(bystander.try_wait().expect("wait").is_none(), "{signal:?}: the bystander lives on");
        before = after;
    }
    fleet.assert_idle().await;
    fleet.terminate();
    assert_eq!(fleet.ended().await.code(), Some(0));
    assert_eq!(fleet.engines(), [], "nothing is left");
    assert!(bystander.try_wait().expect("wait").is_none(), "nor does the end touch it");
}

#[tokio::test]
async fn c_005_m2_killed_at_any_moment_of_growth_and_shrinking_and_nothing_is_lost_or_doubled() {
    let arguments = ["--model", "chat", "--load-time", "200ms"];
    let deployment = engines(&arguments).set("max", 4).set("window", "1s").set("process.price", PRICE);
    let mut fleet = Fleet::with(Config::of(deployment).set("budget.credit", 1_000_000)).await;
    let mut books = Books::new(4);
    for round in 0..kills() {
        // Up and down in turn; the moment differs from round to round: so many lines of the log later, and some turns.
        let before = fleet.log().lines().count();
        let (min, lines) = ([4, 1, 3, 0][(round % 4) as usize], (round * 7 % 11) as usize);
        books.change(&fleet, min).await;
        eventually("the moment of the kill", async || {
            let (said, there) = (fleet.log().lines().count() - before, fleet.engines().len());
            let done = there == min as usize
                && fleet.metrics().await.total(metric::REPLICAS, &[("phase", "ready")]) == f64::from(min);
            if said >= lines || done { Ok(()) } else { Err(format!("{said} lines, {there} engines")) }
        })
        .await;
        for _ in 0..round * 97 % 1009 {
            tokio::task::yield_now().await;
        }
        books.look(&fleet).await;
        fleet.kill();
        if round % 5 == 4 {
            // One of them dies while nobody looks.
            fleet.ended().await;
            fleet.engines().first().iter().for_each(|engine| engine.signal(Signal::KILL));
        }
        fleet.restart().await;
        books.check(&fleet).await;
        let engines = fleet.engines();
        assert!(engines.len() <= 4, "round {round}: {engines:?}");
        let mut ids: Vec<_> = engines.iter().map(|engine| &engine.id).collect();
        ids.dedup();
        assert_eq!(ids.len(), engines.len(), "round {round}: one engine for each id: {engines:?}");
    }
    books.change(&fleet, 3).await;
    fleet.settled(3).await;
    assert_eq!(fleet.ask("after").await.status, 200);
    fleet.terminate();
    assert_eq!(fleet.ended().await.code(), Some(0));
    assert_eq!(fleet.engines(), [], "SIGTERM leaves nothing");
}

#[tokio::test]
async fn c_005_killed_while_an_engine_starts() {
    let arguments = ["--model", "chat", "--load-time", "1500ms"];
    let deployment = || engines(&arguments).set("max", 2).set("window", "1s");
    for moment in ["queued", "process", "starting"] {
        let mut fleet = Fleet::launch(deployment()).await;
        let asking = Raw::posted(fleet.address, CHAT, &brief("wake up").to_string()).await;
        match moment {
            "queued" => fleet.queued(1).await,
            "process" => {
                eventually("an engine's process", async || {
                    fleet.engines().first().map(drop).ok_or_else(|| "none".to_owned())
                })
                .await;
            }
            _ => {
                let starting = |chat: &Value| (chat["replicas"][0]["phase"] == "starting").then_some(());
                fleet.until_status("a replica starts", starting).await;
            }
        }
        let before = fleet.engines();
        fleet.kill();
        fleet.restart().await;
        drop(asking);
        let after = fleet.engines();
        for engine in &after {
            assert!(before.is_empty() || before.contains(engine), "{moment}: no duplicate: {after:?}");
        }
        assert_eq!(fleet.ask("after").await.status, 200, "{moment}");
        fleet.settled(1).await;
        fleet.empty().await;
    }
}

#[tokio::test]
async fn c_005_killed_while_a_replica_drains() {
    let arguments = ["--model", "chat", "--load-time", "0s", "--step-us", "20000"];
    let deployment = engines(&arguments)
        .set("min", 1)
        .set("max", 2)
        .set("window", "1s")
        .set("target_concurrency", 2)
        .set("concurrency_limit", 2);
    let mut fleet = Fleet::launch(deployment).await;
    fleet.settled(1).await;
    let mut streams = Vec::new();
    for index in 0..4 {
        streams.push(fleet.chat(&long(&format!("stream {index}"), 8000)).await);
    }
    let both = fleet.settled(2).await;
    // One stream stays on each: one replica would do, so one of the two drains, and cannot end yet.
    for engine in &both {
        let of = |stream: &tidegate_tests::client::Stream| stream.header("x-tidegate-replica") == engine.id;
        let at = streams.iter().position(of).expect("a stream on each");
        drop(streams.swap_remove(at));
    }
    fleet
        .until_status("one drains", |chat| {
            let all = chat["replicas"].as_array()?;
            all.iter()
                .any(|replica| replica["phase"] == "draining" && replica["in_flight"] == 1)
                .then_some(())
        })
        .await;
    fleet.kill();
    fleet.restart().await;
    drop(streams);
    assert_eq!(fleet.ask("after").await.status, 200);
    let left = fleet.settled(1).await;
    assert!(both.contains(&left[0]), "one of the two goes on: {left:?} of {both:?}");
    for engine in &left {
        eventually("its engine is idle", async || match engine.busy().await {
            (0.0, 0.0) => Ok(()),
            busy => Err(format!("{busy:?}")),
        })
        .await;
    }
}

#[tokio::test]
async fn c_005_an_engine_that_died_meanwhile_is_replaced_and_not_adopted() {
    let mut fleet = Fleet::launch(engines(QUICK).set("min", 2).set("max", 2)).await;
    let before = fleet.settled(2).await;
    fleet.kill();
    fleet.ended().await;
    before[0].signal(Signal::KILL);
    fleet.restart().await;
    let after = fleet.settled(2).await;
    assert!(after.contains(&before[1]), "the living one is adopted: {after:?} after {before:?}");
    assert_eq!(replicas(&fleet.status().await).len(), 2);
    assert!(after.iter().all(|engine| engine.id != before[0].id), "an id is never used again: {after:?}");
}

#[tokio::test]
async fn c_005_engines_of_a_configuration_that_starts_none_any_more_are_ended() {
    let mut fleet = Fleet::launch(engines(QUICK).set("min", 2).set("max", 2)).await;
    fleet.settled(2).await;
    fleet.kill();
    fleet.ended().await;
    let stub = Stub::start().await;
    let config = Config::of(Deployment::chat(&[stub]));
    let text = config.render(fleet.dir(), fleet.address.port(), fleet.admin.port());
    std::fs::write(fleet.dir().join("tidegate.toml"), text).expect("change it");
    fleet.restart().await;
    assert_eq!(fleet.engines(), [], "they are ended at the start");
}
