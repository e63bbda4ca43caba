//! Replicas that an operator takes out, and those that their provider ends (C5).

use tidegate_scaler_core::budget::Bounds;
use tidegate_shared::offer::Money;

use super::*;

fn none() -> Vec<String> {
    Vec::new()
}

async fn serving(world: &Arc<World>, sizing: Sizing, count: u32) -> Loop {
    (1..=count).for_each(|id| world.left_over(id));
    let run = Loop::start(world, sizing);
    world.reaches(&format!("ready {count}")).await;
    world.log();
    run
}

#[tokio::test(start_paused = true)]
async fn c5_who_is_taken_out_finishes_and_is_replaced_at_once() {
    let world = World::new();
    let run = serving(&world, sizing(2, 3), 2).await;
    world.arrive(4);
    run.helm.drain(ReplicaId(2), world.observe().at);
    world.reaches("ready 3").await;
    assert_eq!(world.log(), ["drain 2", "ordered 3", "start 3", "up 3", "ready 3"]);
    run.helm.drain(ReplicaId(2), world.observe().at);
    world.arrive(80);
    run.pass(600).await;
    assert_eq!(world.log(), none(), "load does not bring it back, nothing stops what runs, and max holds");
    world.finish(2);
    world.reaches("ready 4").await;
    assert_eq!(world.log()[..4], ["stop 2", "gone 2", "ordered 4", "start 4"]);
    assert!(run.helm.drained().is_empty(), "it is forgotten with its replica");
    let reasons = run.reasons();
    assert!(
        !reasons.contains(&"replacing") && !reasons.contains(&"backing_off"),
        "nothing died: {reasons:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn c5_a_drain_is_undone_until_the_stop_begins() {
    let world = World::new();
    let run = serving(&world, sizing(2, 2), 2).await;
    world.arrive(4);
    run.helm.drain(ReplicaId(2), world.observe().at);
    world.reaches("drain 2").await;
    assert!(run.helm.undrain(ReplicaId(2)));
    world.reaches("undrain 2").await;
    run.pass(60).await;
    assert_eq!(world.log(), ["drain 2", "undrain 2"]);
    world.finish(2);
    world.script().stop = Duration::from_secs(60);
    run.helm.drain(ReplicaId(2), world.observe().at);
    world.reaches("stop 2").await;
    assert!(!run.helm.undrain(ReplicaId(2)), "it ends already");
    world.reaches("gone 2").await;
    assert!(run.helm.undrain(ReplicaId(2)), "nobody is out any more");
}

#[tokio::test(start_paused = true)]
async fn c5_the_last_one_may_go_and_the_ceiling_holds_meanwhile() {
    let world = World::new();
    let run = serving(&world, sizing(1, 1), 1).await;
    run.helm.drain(ReplicaId(1), world.observe().at);
    world.reaches("ready 2").await;
    let log = ["drain 1", "stop 1", "gone 1", "ordered 2", "start 2", "up 2", "ready 2"];
    assert_eq!(world.log(), log);
}

#[tokio::test(start_paused = true)]
async fn c5_a_drain_of_an_earlier_run_goes_on() {
    let world = World::new();
    world.left_over(1);
    world.left_over(2);
    let (fleet, provider) = (Arc::clone(&world) as Arc<dyn Fleet>, Arc::clone(&world) as Arc<dyn Provider>);
    let terms = Terms { sizing: sizing(1, 2), base_fee: Price::FREE, start_limit: START_LIMIT };
    let control = Control::new(DeploymentName::new("chat"), fleet, provider, House::default(), terms);
    control.helm().drained_before(ReplicaId(1), Instant::ZERO, Duration::from_secs(60));
    control.helm().drained_before(ReplicaId(7), Instant::ZERO, Duration::from_secs(60));
    let run = Loop::spawn(control);
    world.reaches("gone 1").await;
    assert_eq!(world.log()[..4], ["up 1", "up 2", "drain 1", "stop 1"], "before any request");
    assert!(run.helm.drained().is_empty(), "of one that is gone for long, nothing is left");
}

#[tokio::test(start_paused = true)]
async fn c5_an_operators_drain_has_the_same_limit() {
    let world = World::new();
    let limited = Sizing { drain_limit: Duration::from_secs(60), ..sizing(2, 2) };
    let run = serving(&world, limited, 2).await;
    world.arrive(4);
    let began = world.elapsed();
    run.helm.drain(ReplicaId(2), world.observe().at);
    world.reaches("stop 2").await;
    assert_eq!((world.elapsed() - began).as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn c2_c5_nothing_is_stopped_while_the_provider_is_silent() {
    let world = World::new();
    let run = serving(&world, sizing(2, 2), 2).await;
    world.script().silent = true;
    run.pass(5).await;
    run.helm.drain(ReplicaId(2), world.observe().at);
    run.pass(300).await;
    assert_eq!(world.log(), none());
    world.script().silent = false;
    world.reaches("gone 2").await;
    assert_eq!(world.log()[..2], ["drain 2", "stop 2"]);
}

#[tokio::test(start_paused = true)]
async fn c5_of_a_fixed_fleet_one_stays_out_and_nothing_is_stopped() {
    let world = World::new();
    let urls = (1..=2).map(|id| (format!("http://replica-{id}/"), Capacity::new(id)));
    let fleet = Arc::clone(&world) as Arc<dyn Fleet>;
    let run = Loop::spawn(Control::fixed(DeploymentName::new("chat"), fleet, Arc::new(Fixed::new(urls))));
    world.reaches("ready 2").await;
    world.log();
    run.helm.drain(ReplicaId(2), world.observe().at);
    run.pass(3600).await;
    assert_eq!(world.log(), ["drain 2"]);
    assert!(run.helm.drained().contains_key(&ReplicaId(2)));
    assert!(run.helm.undrain(ReplicaId(2)));
    world.reaches("undrain 2").await;
}

#[tokio::test(start_paused = true)]
async fn c5_four_streams_while_the_target_drops_to_one_and_each_stop_comes_after_its_last_byte() {
    let world = World::new();
    let one_each = Sizing { target_concurrency: 1, ..sizing(0, 4) };
    let run = serving(&world, one_each.clone(), 4).await;
    world.arrive(4);
    run.pass(60).await;
    assert_eq!(world.log(), none(), "a stream on each, and each is needed");
    run.helm.resize(Sizing { target_concurrency: 4, ..one_each }, Price::FREE);
    world.reaches("drain 2").await;
    run.pass(600).await;
    assert_eq!(world.log(), ["drain 4", "drain 3", "drain 2"], "and no stop while a stream runs");
    for id in [3, 4, 2] {
        world.finish(id);
        world.reaches(&format!("gone {id}")).await;
        assert_eq!(world.log(), [format!("stop {id}"), format!("gone {id}")], "only that one has ended");
    }
}

/// Its provider says so before it is gone, or not, as the polls fall: it is replaced either way, and an operator's is not.
#[tokio::test(start_paused = true)]
async fn m3_what_its_provider_ends_is_replaced_though_the_credit_is_used_up() {
    for ends in [true, false] {
        let world = World::new();
        world.left_over(1);
        let house = House::new(Bounds { replicas: None, credit: Some(Money::default()) });
        let (fleet, provider) =
            (Arc::clone(&world) as Arc<dyn Fleet>, Arc::clone(&world) as Arc<dyn Provider>);
        // What is warm costs a fee.
        let terms = Terms { sizing: sizing(1, 2), base_fee: Price(1), start_limit: START_LIMIT };
        let run = Loop::spawn(Control::new(DeploymentName::new("chat"), fleet, provider, house, terms));
        world.reaches("ready 1").await;
        world.arrive(1);
        world.log();
        if ends {
            world.is_ending(1);
        } else {
            run.helm.drain(ReplicaId(1), world.observe().at);
        }
        run.pass(10).await;
        let expected = ["drain 1", "ordered 2", "start 2", "up 2", "ready 2"];
        assert_eq!(world.log()[..], expected[..if ends { 5 } else { 1 }]);
    }
}
