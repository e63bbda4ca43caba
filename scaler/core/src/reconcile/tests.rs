//! Who comes and who goes, on the fleets of the reported cases.

use std::collections::BTreeSet;

use tidegate_shared::offer::Price;
use tidegate_shared::replica::{Capacity, Hold};
use tidegate_shared::time::Duration;

use super::*;

const NOW: Instant = Instant::from_micros(7_200_000_000);

fn replica(id: u32, phase: Phase, in_flight: u32) -> ReplicaFacts {
    let since = NOW - Duration::from_secs(60);
    ReplicaFacts { in_flight, ..ReplicaFacts::new(ReplicaId(id), phase, since, Capacity::ONE) }
}

fn actions(target: u32, demand: u32, replicas: &[ReplicaFacts]) -> Vec<Action> {
    let sizing = Sizing { max: 4, ..Sizing::default() };
    let orders = (0..8).map(offer).collect();
    let leaving = Leaving::LeastBusy;
    let keep_last = demand > 0;
    reconcile(
        &Goal {
            target,
            keep_last,
            orders,
            withdrawn: Vec::new(),
            parked: 0,
            falling: Falling::default(),
            leaving,
        },
        replicas,
        NOW,
        &sizing,
    )
}

fn offer(number: u32) -> Offer {
    Offer::new(&number.to_string(), Capacity::ONE, Price::FREE)
}

fn start(number: u32) -> Action {
    Action::Start(offer(number))
}

const fn id(id: u32) -> ReplicaId {
    ReplicaId(id)
}

#[test]
fn grows_by_what_is_missing() {
    assert_eq!(actions(4, 97, &[replica(1, Phase::Ready, 97)]), [start(0), start(1), start(2)]);
    assert_eq!(actions(1, 0, &[replica(1, Phase::Ready, 0)]), []);
    assert_eq!(actions(0, 0, &[]), []);
}

#[test]
fn c1_a_pause_forbids_starts_but_not_the_way_back_from_a_drain() {
    let fleet = [replica(1, Phase::Ready, 9), replica(2, Phase::Draining, 1)];
    let goal = Goal {
        withdrawn: Vec::new(),
        target: 3,
        keep_last: true,
        orders: vec![],
        parked: 0,
        falling: Falling::default(),
        leaving: Leaving::LeastBusy,
    };
    assert_eq!(reconcile(&goal, &fleet, NOW, &Sizing::default()), [Action::Undrain(id(2))]);
}

#[test]
fn c5_growth_takes_draining_replicas_back_first() {
    let warm = ReplicaFacts { conversations: 9, ..replica(3, Phase::Draining, 0) };
    let fleet = [replica(1, Phase::Ready, 9), replica(2, Phase::Draining, 4), warm];
    assert_eq!(actions(2, 40, &fleet), [Action::Undrain(id(3))]);
    assert_eq!(actions(3, 70, &fleet), [Action::Undrain(id(3)), Action::Undrain(id(2))]);
    let more = [Action::Undrain(id(3)), Action::Undrain(id(2)), start(0)];
    assert_eq!(actions(4, 100, &fleet), more);
}

#[test]
fn c5_a_draining_replica_stops_when_idle_or_when_the_limit_has_passed() {
    let late = ReplicaFacts { since: NOW - Duration::from_secs(1800), ..replica(3, Phase::Draining, 2) };
    let fleet = [replica(1, Phase::Draining, 0), replica(2, Phase::Draining, 2), late];
    assert_eq!(actions(0, 4, &fleet), [Action::Stop(id(1)), Action::Stop(id(3))]);
}

#[test]
fn c055_victims_in_order_whatever_the_order_of_the_list() {
    let four = [
        replica(1, Phase::Ready, 5),
        replica(2, Phase::Ready, 0),
        replica(3, Phase::Ready, 2),
        replica(4, Phase::Starting, 0),
    ];
    // Every order of the four.
    let mut orders = BTreeSet::new();
    for order in (0..24usize).map(|n| [n / 6, n / 2 % 3, n % 2]) {
        // Each step puts one of those that are left at its place.
        let mut fleet = four.clone();
        order.iter().enumerate().for_each(|(at, pick)| fleet.swap(at, at + pick));
        orders.insert(fleet.iter().map(|one| one.id).collect::<Vec<_>>());
        assert_eq!(actions(3, 7, &fleet), [Action::Stop(id(4))]);
        let both = [Action::Stop(id(4)), Action::Drain(id(2))];
        assert_eq!(actions(2, 7, &fleet), both);
        assert_eq!(actions(0, 0, &fleet), both, "one ready one in a step, however few are wanted");
        let next = |fleet: &mut Vec<_>, demand| {
            fleet.retain(|one: &ReplicaFacts| one.phase == Phase::Ready);
            let [Action::Drain(gone)] = actions(0, demand, fleet)[..] else { return None };
            fleet.retain(|one| one.id != gone);
            Some(gone)
        };
        let mut rest: Vec<_> = fleet.iter().filter(|one| one.id != id(2)).cloned().collect();
        assert_eq!(next(&mut rest, 7), Some(id(3)));
        assert_eq!(next(&mut rest, 7), None, "never the last ready one while there is demand");
        assert_eq!(next(&mut rest, 0), Some(id(1)));
    }
    assert_eq!(orders.len(), 24);
}

#[test]
fn c055_failed_first_and_its_place_is_taken_once_it_is_gone() {
    let mut fleet = vec![
        replica(1, Phase::Ready, 1),
        replica(2, Phase::Failed, 3),
        replica(3, Phase::Ready, 0),
        replica(4, Phase::Ready, 0),
    ];
    assert_eq!(actions(4, 97, &fleet), [Action::Stop(id(2))]);
    fleet[1].phase = Phase::Gone;
    assert_eq!(actions(4, 97, &fleet), [], "a6: its stop is not finished");
    fleet.remove(1);
    assert_eq!(actions(4, 97, &fleet), [start(0)]);
}

#[test]
fn c055_among_equals_fewest_conversations_then_the_youngest() {
    let homes = |id, conversations| ReplicaFacts { conversations, ..replica(id, Phase::Ready, 1) };
    assert_eq!(actions(2, 3, &[homes(1, 7), homes(2, 3), homes(3, 5)]), [Action::Drain(id(2))]);
    assert_eq!(actions(2, 3, &[homes(1, 3), homes(2, 3), homes(3, 5)]), [Action::Drain(id(2))]);
}

#[test]
fn c018_what_waiters_wait_for_stays_and_the_one_nearest_to_ready_is_kept() {
    let fleet =
        [replica(1, Phase::Starting, 0), replica(2, Phase::Starting, 0), replica(3, Phase::Provisioning, 0)];
    assert_eq!(actions(2, 40, &fleet), [Action::Stop(id(3))]);
    assert_eq!(actions(1, 1, &fleet), [Action::Stop(id(3)), Action::Stop(id(2))]);
    assert_eq!(actions(1, 1, &fleet[..1]), []);
}

#[test]
fn b5_failed_first_then_fewest_warm_conversations_then_the_dearest() {
    let one = |id, conversations, in_flight, price| {
        let price = Price(price);
        ReplicaFacts { conversations, price, ..replica(id, Phase::Ready, in_flight) }
    };
    let fleet = [one(1, 9, 0, 900), one(2, 3, 5, 100), one(3, 3, 6, 200), replica(4, Phase::Failed, 0)];
    let leave = |leaving| {
        let goal = Goal {
            withdrawn: Vec::new(),
            target: 2,
            keep_last: true,
            orders: vec![],
            parked: 0,
            falling: Falling::default(),
            leaving,
        };
        reconcile(&goal, &fleet, NOW, &Sizing::default())
    };
    assert_eq!(leave(Leaving::LeastWarm), [Action::Stop(id(4)), Action::Drain(id(3))]);
    assert_eq!(leave(Leaving::LeastBusy), [Action::Stop(id(4)), Action::Drain(id(1))]);
}

#[test]
fn a1_a_replica_that_is_measured_leaves_last() {
    let held = ReplicaFacts { hold: Some(Hold::Aside), ..replica(1, Phase::Ready, 0) };
    let busy = ReplicaFacts { conversations: 9, ..replica(2, Phase::Ready, 5) };
    assert_eq!(actions(1, 5, &[held, busy]), [Action::Drain(id(2))]);
}

/// With room for `parked` and at most `max`.
fn parking(target: u32, parked: u32, max: u32, replicas: &[ReplicaFacts]) -> Vec<Action> {
    growing(target, parked, max, replicas, Falling::default())
}

/// The same, while some of the parked are `falling` asleep.
fn growing(target: u32, parked: u32, max: u32, replicas: &[ReplicaFacts], falling: Falling) -> Vec<Action> {
    let sizing = Sizing { max, ..Sizing::default() };
    let orders = (0..8).map(offer).collect();
    let goal = Goal {
        withdrawn: Vec::new(),
        target,
        keep_last: false,
        orders,
        parked,
        falling,
        leaving: Leaving::LeastBusy,
    };
    reconcile(&goal, replicas, NOW, &sizing)
}

#[test]
fn c6_who_is_drained_is_parked_as_far_as_there_is_room_the_cheapest_first() {
    let dear = ReplicaFacts { price: Price(2), ..replica(1, Phase::Draining, 0) };
    let cheap = |id| ReplicaFacts { price: Price(1), ..replica(id, Phase::Draining, 0) };
    let fleet = [dear, cheap(2), replica(3, Phase::Draining, 1), cheap(4)];
    let parked = [Action::Park(id(2)), Action::Park(id(4)), Action::Stop(id(1))];
    assert_eq!(parking(0, 2, 4, &fleet), parked, "and who works is not put to sleep");
    assert_eq!(parking(0, 0, 4, &fleet), [Action::Stop(id(2)), Action::Stop(id(4)), Action::Stop(id(1))]);
    let with_one =
        [replica(1, Phase::Parked, 0), replica(2, Phase::Draining, 0), replica(3, Phase::Ready, 0)];
    assert_eq!(parking(1, 1, 4, &with_one), [Action::Stop(id(2))]);
    let late = ReplicaFacts { since: NOW - Duration::from_secs(1800), ..replica(1, Phase::Draining, 2) };
    assert_eq!(parking(0, 2, 4, &[late]), [Action::Stop(id(1))], "what is cut off is not kept");
    assert_eq!(parking(0, 2, 4, &[replica(1, Phase::Failed, 0)]), [Action::Stop(id(1))]);
}

#[test]
fn c6_growth_takes_what_is_soonest_ready() {
    let slept = |id, seconds| {
        let since = NOW - Duration::from_secs(seconds);
        ReplicaFacts { since, ..replica(id, Phase::Parked, 0) }
    };
    let fleet = [slept(1, 90), slept(2, 30), replica(3, Phase::Draining, 1), replica(4, Phase::Ready, 9)];
    assert_eq!(parking(2, 2, 6, &fleet), [Action::Undrain(id(3))]);
    assert_eq!(parking(3, 2, 6, &fleet), [Action::Undrain(id(3)), Action::Wake(id(2))]);
    let all = [Action::Undrain(id(3)), Action::Wake(id(2)), Action::Wake(id(1)), start(0), start(1)];
    assert_eq!(parking(6, 2, 6, &fleet), all);
}

#[test]
fn c6_who_sleeps_soundly_is_woken_before_who_soon_will_and_a_start_replaces_who_takes_long() {
    let slept = |id, seconds| {
        let since = NOW - Duration::from_secs(seconds);
        ReplicaFacts { since, ..replica(id, Phase::Parked, 0) }
    };
    let fleet = [slept(1, 90), slept(2, 30), slept(3, 60)];
    let soon = || Falling { soon: vec![id(2)], late: vec![] };
    let late = || Falling { soon: vec![], late: vec![id(2)] };
    assert_eq!(growing(1, 3, 6, &fleet, soon()), [Action::Wake(id(3))]);
    let all = [Action::Wake(id(3)), Action::Wake(id(1)), Action::Wake(id(2))];
    assert_eq!(growing(3, 3, 6, &fleet, soon()), all, "worth waiting for");
    assert_eq!(growing(3, 3, 6, &fleet, late()), [Action::Wake(id(3)), Action::Wake(id(1)), start(0)]);
    assert_eq!(growing(3, 3, 3, &fleet, late()), all[..2], "it holds its place");
    assert_eq!(growing(0, 2, 3, &fleet, late()), [Action::Stop(id(1))], "and counts as parked");
}

#[test]
fn c6_parked_replicas_have_their_place_under_the_ceiling_and_go_first_beyond_it() {
    let fleet = [replica(1, Phase::Ready, 9), replica(2, Phase::Parked, 0), replica(3, Phase::Gone, 0)];
    assert_eq!(parking(3, 2, 3, &fleet), [Action::Wake(id(2))], "no start: three are there");
    let mut fleet = vec![replica(1, Phase::Ready, 9), replica(2, Phase::Parked, 0)];
    fleet.push(ReplicaFacts { since: NOW, ..replica(3, Phase::Parked, 0) });
    assert_eq!(parking(1, 2, 2, &fleet), [Action::Stop(id(2))], "who was parked first");
    assert_eq!(parking(1, 1, 4, &fleet), [Action::Stop(id(2))]);
    assert_eq!(parking(1, 2, 1, &fleet), [Action::Stop(id(3)), Action::Stop(id(2))]);
    let drained = [replica(1, Phase::Ready, 9), replica(2, Phase::Draining, 0)];
    assert_eq!(parking(1, 2, 1, &drained), [Action::Stop(id(2))]);
}

#[test]
fn c6_who_is_being_woken_is_let_come() {
    let fleet =
        [replica(1, Phase::Ready, 9), replica(2, Phase::Waking, 0), replica(3, Phase::Provisioning, 0)];
    assert_eq!(parking(2, 2, 4, &fleet), [Action::Stop(id(3))]);
    assert_eq!(
        parking(1, 2, 4, &fleet),
        [Action::Stop(id(3))],
        "it leaves once it is ready, and nobody for it"
    );
    assert_eq!(parking(3, 2, 4, &fleet), []);
}
