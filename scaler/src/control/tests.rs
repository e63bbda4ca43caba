//! Stories of the control loop over a scripted gateway and provider, in virtual time.

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::provider::fixed::Fixed;
use tidegate_scaler_core::config::Sizing;
use tidegate_shared::offer::Price;
use tidegate_shared::replica::Capacity;
use world::World;

mod cases;
mod parked;
mod release;
mod room;
mod world;

/// A running loop.
struct Loop {
    status: ControlStatus,
    helm: Helm,
    end: oneshot::Sender<Shutdown>,
    task: JoinHandle<Vec<ReplicaId>>,
}

impl Loop {
    fn start(world: &Arc<World>, sizing: Sizing) -> Self {
        let (fleet, provider) = (Arc::clone(world) as Arc<dyn Fleet>, Arc::clone(world) as Arc<dyn Provider>);
        let terms = Terms { sizing, base_fee: Price::FREE, start_limit: START_LIMIT };
        let name = DeploymentName::new("chat");
        Self::spawn(Control::new(name, fleet, provider, House::default(), terms))
    }

    fn spawn(control: Control) -> Self {
        let (status, helm) = (control.status(), control.helm());
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(control.run(async { ended.await.unwrap_or(Shutdown::Keep) }));
        Self { status, helm, end, task }
    }

    /// Lets virtual time pass.
    async fn pass(&self, seconds: u64) {
        sleep(Duration::from_secs(seconds)).await;
    }

    async fn end(self, how: Shutdown) -> Vec<ReplicaId> {
        self.end.send(how).unwrap();
        self.task.await.unwrap()
    }

    fn reasons(&self) -> Vec<&'static str> {
        self.status.view().history.iter().map(|decision| decision.reason.as_str()).collect()
    }
}

fn sizing(min: u32, max: u32) -> Sizing {
    Sizing { min, max, ..Sizing::default() }
}

#[tokio::test(start_paused = true)]
async fn from_zero_to_one_to_two_and_back_to_zero() {
    let world = World::new();
    let run = Loop::start(&world, sizing(0, 2));
    run.pass(3).await;
    assert_eq!(world.log(), Vec::<String>::new());

    world.arrive(1);
    world.reaches("ready 1").await;
    assert_eq!(world.log(), ["ordered 1", "start 1", "up 1", "ready 1"]);
    world.arrive(39);
    world.reaches("ready 2").await;
    assert_eq!(world.log(), ["ordered 2", "start 2", "up 2", "ready 2"]);
    run.pass(100).await;
    assert_eq!(world.log(), Vec::<String>::new(), "constant load moves nothing");

    world.finish(1);
    world.finish(2);
    world.reaches("gone 1").await;
    assert_eq!(world.log(), ["drain 2", "drain 1", "stop 2", "stop 1", "gone 2", "gone 1"]);
    let reasons = [
        "steady",
        "from_zero",
        "on_their_way",
        "steady",
        "demand",
        "on_their_way",
        "steady",
        "cooling",
        "idle",
    ];
    assert_eq!(run.reasons()[..9], reasons);
    assert_eq!((run.status.view().starts_ready, run.status.view().starts_failed), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn q3_the_first_request_is_not_kept_waiting_for_a_tick() {
    let world = World::new();
    let run = Loop::start(&world, sizing(0, 1));
    sleep(Duration::from_millis(3500)).await;
    let arrived = world.elapsed();
    world.arrive(1);
    world.reaches("start 1").await;
    assert_eq!(world.timed_log().last().unwrap().0, arrived);
    drop(run);
}

#[tokio::test(start_paused = true)]
async fn c1_refused_starts_are_tried_again_after_growing_pauses() {
    let world = World::new();
    world.script().refuse_start = true;
    let run = Loop::start(&world, sizing(0, 4));
    world.arrive(1);
    world.reaches("start 5").await;
    let log = world.timed_log();
    let starts: Vec<_> = log.iter().filter(|(_, entry)| entry.starts_with("start ")).collect();
    let tries: Vec<_> =
        starts.iter().filter(|(_, entry)| !entry.contains("failed")).map(|(at, _)| *at).collect();
    let pauses: Vec<_> = tries.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert_eq!(pauses, [1, 2, 4, 8]);
    // Q2: whoever is refused because of a failure knows at once when the next try is.
    let early =
        world.told().into_iter().zip(&tries[1..]).map(|(told, tried)| (Instant::ZERO + *tried).since(told));
    let early: Vec<_> = early.map(|early| early.as_millis()).collect();
    assert!(early.len() == 4 && early.iter().all(|early| *early <= 10), "to the tick: {early:?}");
    assert!(run.reasons().ends_with(&["backing_off", "from_zero", "backing_off"]), "{:?}", run.reasons());

    world.script().refuse_start = false;
    world.reaches("ready 6").await;
    run.pass(1).await;
    let view = run.status.view();
    assert_eq!((view.starts_failed, view.starts_ready, view.last_failure), (5, 1, None));
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_panics_costs_one_start() {
    let world = World::new();
    world.script().panic_at_start = true;
    let run = Loop::start(&world, sizing(0, 4));
    world.arrive(1);
    world.reaches("start failed 1: the provider panicked over it").await;
    world.script().panic_at_start = false;
    world.reaches("ready 2").await;
    assert_eq!(run.status.view().starts_failed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_never_ends_is_a_silent_provider() {
    let world = World::new();
    world.left_over(1);
    let run = Loop::start(&world, sizing(0, 2));
    world.reaches("ready 1").await;
    world.log();
    world.script().hang = true;
    run.pass(600).await;
    assert_eq!(world.log(), Vec::<String>::new());
    let error = run.status.view().provider_error.unwrap();
    assert_eq!(error, "provider scripted does not answer: no list of replicas within 10s");
    assert_eq!(run.end(Shutdown::Keep).await, [], "and it does not hold up the end");
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_ends_while_it_starts_is_quoted_and_cleared_away() {
    let world = World::new();
    world.script().exit = Some("CUDA out of memory".to_owned());
    let run = Loop::start(&world, sizing(0, 4));
    world.arrive(1);
    world.reaches("stop 1").await;
    let why = "the engine ended (exit code 1); its last lines:\nCUDA out of memory";
    let failed = format!("start failed 1: {why}");
    assert_eq!(world.log(), ["ordered 1", "start 1", &failed, "stop 1"]);
    assert_eq!(run.status.view().last_failure, Some(format!("chat-1 did not start: {why}")));
}

#[tokio::test(start_paused = true)]
async fn c1_a_dead_replica_is_replaced_and_max_holds_meanwhile() {
    let world = World::new();
    let run = Loop::start(&world, sizing(1, 1));
    world.reaches("ready 1").await;
    world.log();
    run.pass(2).await;
    world.kill(1);
    world.reaches("ready 2").await;
    assert_eq!(world.log(), ["gone 1", "stop 1", "ordered 2", "start 2", "up 2", "ready 2"]);
    assert!(run.reasons().contains(&"replacing"), "{:?}", run.reasons());
    assert!(!run.reasons().contains(&"backing_off"), "at once, though it was ready for 2 s only");
    let (_, told) = run.status.view().lost.expect("it is told");
    assert_eq!(told, "chat-1 is lost: the engine ended (signal 9) and printed nothing");
    assert_eq!(run.status.view().starts_failed, 0, "its start was none that failed");
}

#[tokio::test(start_paused = true)]
async fn c5_a_stop_waits_for_the_drain() {
    let world = World::new();
    world.left_over(1);
    world.left_over(2);
    let run = Loop::start(&world, sizing(0, 2));
    world.reaches("ready 2").await;
    world.arrive(10);
    world.reaches("drain 2").await;
    world.log();
    run.pass(600).await;
    assert_eq!(world.log(), Vec::<String>::new(), "its requests still run");
    world.finish(2);
    world.reaches("gone 2").await;
    assert_eq!(world.log(), ["stop 2", "gone 2"]);
}

#[tokio::test(start_paused = true)]
async fn c5_an_idle_replica_is_stopped_at_once_when_it_is_drained() {
    let world = World::new();
    world.left_over(1);
    world.left_over(2);
    let _run = Loop::start(&world, sizing(1, 2));
    world.reaches("drain 2").await;
    let drained = tokio::time::Instant::now();
    world.reaches("stop 2").await;
    let before_the_next_tick = tokio::time::Instant::now() - drained < Duration::from_millis(500);
    assert!(before_the_next_tick, "nothing runs there");
}

#[tokio::test(start_paused = true)]
async fn c5_a_drain_has_a_limit() {
    let world = World::new();
    world.left_over(1);
    world.left_over(2);
    let _run = Loop::start(&world, Sizing { drain_limit: Duration::from_secs(60), ..sizing(0, 2) });
    world.reaches("ready 2").await;
    world.arrive(10);
    world.reaches("gone 2").await;
    assert_eq!(world.log()[4..], ["drain 2", "stop 2", "gone 2"]);
}

#[tokio::test(start_paused = true)]
async fn c5_a_drain_is_undone_when_load_returns() {
    let world = World::new();
    world.left_over(1);
    world.left_over(2);
    let _run = Loop::start(&world, sizing(0, 2));
    world.reaches("ready 2").await;
    world.arrive(10);
    world.reaches("drain 2").await;
    world.log();
    world.arrive(40);
    world.reaches("undrain 2").await;
    assert_eq!(world.log(), ["undrain 2"]);
}

#[tokio::test(start_paused = true)]
async fn c2_c4_a_silent_provider_holds_the_fleet() {
    let world = World::new();
    world.left_over(1);
    let run = Loop::start(&world, sizing(0, 2));
    world.reaches("ready 1").await;
    world.log();
    world.script().silent = true;
    run.pass(600).await;
    assert_eq!(world.log(), Vec::<String>::new());
    let view = run.status.view();
    assert_eq!(view.provider_error.as_deref(), Some("provider scripted does not answer: it sulks"));
    let listed = view.listed(Instant::ZERO + world.elapsed());
    assert!(matches!(listed, Listed::Ago(age) if age >= Duration::from_secs(600)), "{listed:?}");
    assert_eq!(view.newest.unwrap().reason.as_str(), "provider_error");
    assert!(world.startless(), "nobody is held for what cannot be started");

    world.script().silent = false;
    world.reaches("gone 1").await;
    assert!(!world.startless());
    assert_eq!(world.log(), ["drain 1", "stop 1", "gone 1"]);
    assert_eq!(run.status.view().provider_error, None);
    assert_eq!(run.status.view().listed(Instant::NEVER), Listed::Now);

    let world = World::new();
    world.script().silent = true;
    let run = Loop::start(&world, sizing(0, 2));
    run.pass(60).await;
    assert_eq!(run.status.view().listed(Instant::NEVER), Listed::Never, "it has not told what runs");
}

#[tokio::test(start_paused = true)]
async fn c2_a_first_answer_that_takes_its_time_is_told_before_it_counts_as_an_error() {
    let world = World::new();
    world.script().hang = true;
    let run = Loop::start(&world, sizing(0, 2));
    let unanswered = |run: &Loop| run.status.view().unanswered(Instant::ZERO + world.elapsed());
    run.pass(3).await;
    assert_eq!(run.status.view().provider_error, None);
    assert!(unanswered(&run).is_some_and(|age| age >= Duration::from_secs(1)), "{:?}", unanswered(&run));
    run.pass(10).await;
    assert!(run.status.view().provider_error.is_some(), "its limit is over");
    assert_eq!(unanswered(&run), None);
}

#[tokio::test(start_paused = true)]
async fn a_slow_stop_holds_up_nobody() {
    let world = World::new();
    world.left_over(1);
    world.script().stop = Duration::from_secs(300);
    let run = Loop::start(&world, sizing(0, 2));
    world.reaches("stop 1").await;
    world.log();
    world.arrive(1);
    world.reaches("ready 2").await;
    assert_eq!(world.log(), ["ordered 2", "start 2", "up 2", "ready 2"]);
    world.reaches("gone 1").await;
    drop(run);
}

#[tokio::test(start_paused = true)]
async fn a_failed_stop_is_tried_again() {
    let world = World::new();
    world.left_over(1);
    world.script().failing_stops = 2;
    let run = Loop::start(&world, sizing(0, 2));
    world.reaches("gone 1").await;
    assert_eq!(world.log()[2..], ["drain 1", "stop 1", "stop 1", "stop 1", "gone 1"]);
    let view = run.status.view();
    assert_eq!((view.clinging.len(), view.last_failure), (0, None), "it is gone");
}

#[tokio::test(start_paused = true)]
async fn c3_running_replicas_are_adopted_and_kept_for_a_window() {
    let world = World::new();
    (1..=3).for_each(|id| world.left_over(id));
    let run = Loop::start(&world, sizing(0, 4));
    run.pass(30).await;
    assert_eq!(world.log(), ["up 1", "up 2", "up 3", "ready 1", "ready 2", "ready 3"]);
    world.reaches("gone 3").await;
    assert_eq!(run.status.view().starts_ready, 0, "adopted, not started");
}

#[tokio::test(start_paused = true)]
async fn c018_a_slow_start_is_waited_for_and_started_once() {
    let world = World::new();
    world.script().load = Duration::from_secs(120);
    let _run = Loop::start(&world, sizing(0, 4));
    world.arrive(1);
    world.reaches("ready 1").await;
    assert_eq!(world.log(), ["ordered 1", "start 1", "up 1", "ready 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_start_beyond_its_limit_is_stopped_and_counts_as_failed() {
    let world = World::new();
    world.script().load = Duration::from_secs(1_000_000);
    let run = Loop::start(&world, sizing(0, 1));
    world.arrive(1);
    world.reaches("start 2").await;
    let failed = "start failed 1: not ready within the start limit of 1800s";
    assert_eq!(world.log(), ["ordered 1", "start 1", "up 1", failed, "stop 1", "ordered 2", "start 2"]);
    assert_eq!(run.status.view().starts_failed, 1);
}

#[tokio::test(start_paused = true)]
async fn at_the_end_the_fleet_is_kept_or_stopped_as_asked() {
    let world = World::new();
    (1..=3).for_each(|id| world.left_over(id));
    let run = Loop::start(&world, sizing(3, 4));
    world.reaches("ready 3").await;
    world.log();
    assert_eq!(run.end(Shutdown::Keep).await, []);
    assert_eq!(world.log(), Vec::<String>::new());

    let run = Loop::start(&world, sizing(3, 4));
    world.reaches("ready 3").await;
    world.log();
    let before = world.elapsed();
    assert_eq!(run.end(Shutdown::Stop { within: Duration::from_secs(10) }).await, []);
    assert_eq!(world.log(), ["stop 1", "stop 2", "stop 3", "gone 1", "gone 2", "gone 3"]);
    assert_eq!((world.elapsed() - before).as_secs(), 1, "all at once");
}

#[tokio::test(start_paused = true)]
async fn the_end_is_bounded_and_names_what_is_left() {
    let world = World::new();
    world.left_over(1);
    world.script().stop = Duration::from_secs(3600);
    let run = Loop::start(&world, sizing(1, 1));
    world.reaches("ready 1").await;
    let left = run.end(Shutdown::Stop { within: Duration::from_secs(10) }).await;
    assert_eq!(left, [ReplicaId(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_fleet_is_announced_and_never_ordered() {
    let world = World::new();
    let urls = (1..=2).map(|id| (format!("http://replica-{id}/"), Capacity::new(id)));
    let provider = Arc::new(Fixed::new(urls));
    let fleet = Arc::clone(&world) as Arc<dyn Fleet>;
    let run = Loop::spawn(Control::fixed(DeploymentName::new("chat"), fleet, provider));
    world.reaches("ready 2").await;
    world.arrive(1000);
    run.pass(3600).await;
    assert_eq!(world.log(), ["up 1", "up 2", "ready 1", "ready 2"]);
    let view = run.status.view();
    assert_eq!(view, ControlView { listed: view.listed, ..ControlView::default() });
    assert_eq!(run.end(Shutdown::Stop { within: Duration::ZERO }).await, []);
    assert_eq!(world.log(), Vec::<String>::new());
}
