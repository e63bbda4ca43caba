//! A replica that joins a fleet at work, or comes back to it (C-040): the emptiest of all gets twice its share at most while
//! it warms up, and never more than its limit. Counts requests and connections, no time.

use tidegate_tests::certificates::Issuer;
use tidegate_tests::client::{Client, Stream};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::front::Front;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{delta, reply};
use tidegate_tests::recipe::Way;
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::Stub;
use tokio::task::JoinSet;

/// Requests of one replica at a time, by default.
const LIMIT: usize = 40;

/// Four stubs whose streams last until the gate opens; the last of them is dead.
async fn fleet(gate: &Gate) -> Vec<Stub> {
    let mut stubs = Vec::new();
    for _ in 0..4 {
        let gate = gate.clone();
        let work = move |request: &tidegate_tests::stub::Request| match request.json()["stream"] == true {
            true => Script::sse().event(&delta("a")).wait(&gate).done(),
            false => reply(request),
        };
        stubs.push(Stub::with(work).await);
    }
    stubs[3].kill().await;
    stubs
}

/// So many streams, one after the other.
async fn streams(client: Client, count: usize) -> Vec<Stream> {
    let mut streams = Vec::new();
    for index in 0..count {
        let way = Way::streams(client)[index % 2];
        let stream = way.open(&format!("stream {index} of {count}"), &[]).await;
        assert_eq!(stream.status, 200);
        streams.push(stream);
    }
    streams
}

/// Sixty requests one after the other: at none of them has the newcomer had more than twice its share.
async fn assert_share(client: Client, newcomer: &Stub, what: &str) {
    let before = newcomer.count();
    for index in 0..60 {
        let way = Way::all(client)[[0, 2, 4][index % 3]];
        let answer = way.ask(&format!("{what} {index}")).await;
        assert_eq!(answer.status, 200, "{way}: {:?}", answer.body);
        let got = newcomer.count() - before;
        assert!(4 * got <= 2 * (index + 1) + 4, "{what}: {got} of {}", index + 1);
    }
    assert!(newcomer.count() - before >= 15, "{what}: its share, as it is the emptiest");
}

async fn joins(config: Config, door: fn(&Gateway) -> Client) {
    let gate = Gate::closed();
    let stubs = fleet(&gate).await;
    let gateway = Gateway::launch(config.and(Deployment::chat(&stubs))).await;
    let client = door(&gateway);
    gateway.ready_replicas(3).await;
    let mut running = streams(client, 90).await;
    stubs[3].revive();
    gateway.ready_replicas(4).await;
    assert_share(client, &stubs[3], "it joins").await;

    // It dies with streams of its own and comes back, while the others have theirs.
    running.extend(streams(client, 20).await);
    assert!(stubs[3].running() > 0, "some of them are there");
    stubs[3].kill().await;
    gateway.ready_replicas(3).await;
    let gone = running.extract_if(.., |stream| stream.header("x-tidegate-replica") == "chat-4");
    for cut in gone.collect::<Vec<_>>() {
        cut.end().await;
    }
    gateway.in_flight(running.len()).await;
    stubs[3].revive();
    gateway.ready_replicas(4).await;
    assert_share(client, &stubs[3], "it comes back").await;

    // As many at once as there is room for: its limit holds, for requests and for connections.
    let (opened, mut burst) = (stubs[3].see(|log| log.connections), JoinSet::new());
    for index in running.len()..4 * LIMIT {
        burst.spawn(async move {
            let stream = Way::streams(client)[index % 2].open(&format!("burst {index}"), &[]).await;
            assert_eq!(stream.status, 200);
            stream
        });
    }
    gateway.in_flight(4 * LIMIT).await;
    eventually("what was sent to the newcomer is there", async || match stubs[3].running() {
        LIMIT => Ok(()),
        running => Err(format!("{running} of {LIMIT}")),
    })
    .await;
    let (most, connections) = stubs[3].see(|log| (log.most, log.connections - opened));
    assert_eq!((most, stubs[3].running()), (LIMIT, LIMIT), "full, and never more than that");
    // Besides, it is asked how it is.
    assert!(connections <= LIMIT + 4, "{connections} connections at once");
    gate.open();
    while burst.join_next().await.is_some() {}
    drop(running);
    gateway.assert_idle().await;
    gateway.leaves_nothing().await;
}

#[tokio::test]
async fn c_040_a_replica_that_joins_a_busy_fleet_or_comes_back_to_it_is_not_flooded() {
    let front = Front::of(&Issuer::new("ca"));
    tokio::join!(
        joins(Config::default(), Gateway::client),
        joins(Config::default().secured(&front), Gateway::h2)
    );
}
