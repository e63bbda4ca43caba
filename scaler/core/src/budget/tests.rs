//! Credit, the gateway's cap, and two deployments that share one GPU.

use tidegate_shared::replica::Capacity;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(second: u32) -> Instant {
    Instant::ZERO + SECOND * second
}

fn moment(second: u32) -> Moment {
    Moment { now: at(second), paid: at(second) }
}

fn name(name: &str) -> DeploymentName {
    DeploymentName::new(name)
}

fn replica(id: u32, phase: Phase, since: Instant) -> ReplicaFacts {
    let bare = ReplicaFacts::new(ReplicaId(id), phase, since, Capacity::ONE);
    ReplicaFacts { price: Price(3_600_000), ..bare }
}

fn budget(replicas: Option<u32>, credit: Option<i128>) -> Budget {
    let mut budget = Budget::new(Bounds { replicas, credit: credit.map(Money) });
    for deployment in ["a", "b", "c"] {
        budget.open(name(deployment), Spent::default(), Price::FREE, 0, at(0));
    }
    budget
}

/// It has none, wants one, and only the cap keeps it from that.
fn wants(budget: &mut Budget, deployment: &str, second: u32) -> Grant {
    let grant = budget.see(&name(deployment), &[], true, moment(second));
    budget.capped(&name(deployment), grant.room.is_some_and(|room| room.left == 0));
    grant
}

#[test]
fn m3_the_credit_draws_down_over_all_deployments_and_a_top_up_counts_at_once() {
    let mut budget = budget(None, Some(25_000));
    budget.see(&name("a"), &[replica(1, Phase::Ready, at(0))], false, moment(0));
    budget.see(&name("b"), &[replica(1, Phase::Ready, at(0))], false, moment(0));
    assert_eq!(budget.credit(at(10)), Some(Money(5_000)));
    let grant = wants(&mut budget, "c", 15);
    assert_eq!(grant.credit, Some(Money(-5_000)), "what runs is kept, and goes on costing");
    budget.top_up(Money(10_000));
    assert_eq!(budget.see(&name("c"), &[], true, moment(15)).credit, Some(Money(5_000)));
    let spent = |deployment| budget.ledger(&name(deployment)).unwrap().total(at(15));
    assert_eq!((spent("a"), spent("c")), (Money(15_000), Money(0)));
}

#[test]
fn a6_the_gateways_cap_counts_everything_that_exists_and_what_was_just_ordered() {
    let mut budget = budget(Some(3), None);
    let fleet = [replica(1, Phase::Draining, at(0)), replica(2, Phase::Gone, at(0))];
    assert_eq!(
        budget.see(&name("a"), &fleet, false, moment(1)).room,
        Some(Room { cap: 3, left: 1, tried: 0, comes: true })
    );
    budget.ordered(&name("a"), 1);
    assert_eq!(
        budget.see(&name("b"), &[], false, moment(1)).room,
        Some(Room { cap: 3, left: 0, tried: 0, comes: true })
    );
}

#[test]
fn c_108_room_is_given_after_the_residence_and_once_only() {
    let mut budget = budget(Some(1), None);
    let a = [replica(1, Phase::Ready, at(10))];
    budget.see(&name("a"), &a, true, moment(10));
    let mut most = |fleet: &[ReplicaFacts], second| {
        wants(&mut budget, "b", second);
        budget.see(&name("a"), fleet, true, moment(second)).most
    };
    assert_eq!(most(&a, 69), None, "it has not been there for 60 s");
    assert_eq!(most(&a, 70), Some(0));
    let leaving = [replica(1, Phase::Draining, at(70))];
    assert_eq!(most(&leaving, 80), Some(0), "it stays asked while it drains");
    assert_eq!(most(&[], 90), None, "it is gone");
}

#[test]
fn c_108_a_suspend_of_the_machine_is_no_residence_and_is_paid_for() {
    let mut budget = budget(Some(1), Some(200_000));
    let a = [replica(1, Phase::Ready, at(10))];
    budget.see(&name("a"), &a, false, moment(10));
    let slept = |second| Moment { now: at(second), paid: at(second + 100) };
    budget.see(&name("b"), &[], true, slept(60));
    budget.capped(&name("b"), true);
    let grant = budget.see(&name("a"), &a, true, slept(69));
    assert_eq!((grant.most, grant.credit), (None, Some(Money(200_000 - 159_000))), "59 s, and 159 s paid");
    assert_eq!(budget.see(&name("a"), &a, true, slept(70)).most, Some(0));
}

#[test]
fn c_108_what_was_freed_is_for_who_waited_first() {
    let mut budget = budget(Some(1), None);
    budget.see(&name("a"), &[replica(1, Phase::Ready, at(10))], false, moment(10));
    wants(&mut budget, "b", 11);
    wants(&mut budget, "c", 12);
    let left = |grant: Grant| grant.room.unwrap().left;
    assert_eq!(left(budget.see(&name("a"), &[], true, moment(20))), 0, "b and c were there before");
    assert_eq!(left(budget.see(&name("c"), &[], true, moment(20))), 0);
    assert_eq!(left(budget.see(&name("b"), &[], true, moment(20))), 1);
}

#[test]
fn c_108_nobody_gives_for_a_client_that_left_nor_below_its_floor() {
    let mut budget = budget(Some(1), None);
    budget.open(name("a"), Spent::default(), Price::FREE, 1, at(0));
    let a = [replica(1, Phase::Ready, at(0))];
    budget.see(&name("a"), &a, false, moment(99));
    wants(&mut budget, "b", 100);
    assert_eq!(budget.see(&name("a"), &a, false, moment(100)).most, None, "its floor is 1");

    budget.open(name("a"), Spent::default(), Price::FREE, 0, at(0));
    assert_eq!(budget.see(&name("a"), &a, false, moment(100)).most, Some(0));
    budget.see(&name("b"), &[], false, moment(101));
    assert_eq!(budget.see(&name("a"), &a, false, moment(101)).most, None);
}

#[test]
fn c2_c_108_it_is_known_whether_room_can_come_without_an_operator() {
    let comes = |floor: u32, fleet: &[Phase], seen: u32| {
        let mut budget = budget(Some(2), None);
        budget.open(name("a"), Spent::default(), Price::FREE, floor, at(0));
        let fleet: Vec<_> = (1..).zip(fleet).map(|(id, phase)| replica(id, *phase, at(0))).collect();
        budget.see(&name("a"), &fleet, false, moment(seen));
        let room = budget.see(&name("b"), &[], true, moment(20)).room.unwrap();
        (room.left, room.comes)
    };
    let ready = Phase::Ready;
    assert_eq!(comes(2, &[ready, ready], 20), (0, false), "its floor keeps both");
    assert_eq!(comes(1, &[ready, ready], 20), (0, true), "it is asked for one");
    assert_eq!(comes(1, &[ready, Phase::Starting], 20), (0, true), "later, once that one is ready");
    assert_eq!(comes(2, &[ready, Phase::Draining], 20), (0, true), "one leaves");
    assert_eq!(comes(2, &[ready, Phase::Parked], 20), (0, true));
    assert_eq!(comes(0, &[ready, ready], 5), (0, false), "its provider is silent");
    assert_eq!(comes(2, &[ready], 20), (1, true));
}

/// Two deployments, one GPU, streams of 20 s on both all the time: no more swaps than residences fit in, none cuts a
/// stream, and both are served.
#[test]
fn c_108_two_that_share_one_gpu_take_turns_no_faster_than_the_residence() {
    let mut budget = budget(Some(1), None);
    let names = [name("a"), name("b")];
    let mut fleets: [Option<(Phase, u32)>; 2] = [Some((Phase::Ready, 0)), None];
    let mut served = [0u32; 2];
    let mut swaps = 0;
    for second in 1..=300 {
        for own in 0..2 {
            let facts: Vec<_> =
                fleets[own].iter().map(|(phase, since)| replica(1, *phase, at(*since))).collect();
            let ready = matches!(fleets[own], Some((Phase::Ready, _)));
            served[own] += u32::from(ready);
            let grant = budget.see(&names[own], &facts, !ready, moment(second));
            let full = grant.room.unwrap().left == 0;
            budget.capped(&names[own], facts.is_empty() && full);
            fleets[own] = match fleets[own] {
                Some((Phase::Ready, _)) if grant.most == Some(0) => Some((Phase::Draining, second)),
                Some((Phase::Draining, since)) if second - since >= 20 => None,
                Some((Phase::Starting, since)) if second - since >= 5 => Some((Phase::Ready, second)),
                None if grant.room.unwrap().left > 0 => {
                    budget.ordered(&names[own], 1);
                    swaps += 1;
                    Some((Phase::Starting, second))
                }
                same => same,
            };
        }
        assert!(fleets.iter().flatten().count() <= 1, "one GPU");
    }
    assert!((2..=300 / 60).contains(&swaps), "{swaps} swaps");
    assert!(served.iter().all(|served| *served >= 60), "{served:?}");
}

#[test]
fn c6_c_108_what_is_parked_makes_room_for_what_is_needed_elsewhere_one_at_a_time() {
    let mut budget = budget(Some(3), None);
    let asleep = [replica(1, Phase::Parked, at(0)), replica(2, Phase::Parked, at(0))];
    let serving = [replica(1, Phase::Ready, at(0))];
    assert_eq!(budget.see(&name("b"), &serving, false, moment(1)).parked, None);
    assert_eq!(budget.see(&name("a"), &asleep, false, moment(1)).parked, None, "nobody needs the room");
    budget.capped(&name("b"), true);
    assert_eq!(wants(&mut budget, "c", 2).parked, Some(0), "and nobody parks one now");
    assert_eq!(budget.see(&name("b"), &serving, false, moment(2)).most, None, "what serves stays meanwhile");
    assert_eq!(budget.see(&name("a"), &asleep, false, moment(2)).parked, Some(1));
    let going = [replica(1, Phase::Gone, at(2)), replica(2, Phase::Parked, at(0))];
    assert_eq!(budget.see(&name("a"), &going, false, moment(3)).parked, Some(1), "one is on its way out");
    budget.capped(&name("b"), false);
    let left = [replica(2, Phase::Parked, at(0))];
    assert_eq!(budget.see(&name("a"), &left, false, moment(4)).parked, None, "there is room");
    assert_eq!(
        budget.see(&name("a"), &left, false, moment(4)).room,
        Some(Room { cap: 3, left: 0, tried: 0, comes: true }),
        "kept for c"
    );
}

#[test]
fn c2_c_108_nobody_makes_room_for_one_whose_provider_is_silent() {
    let mut budget = budget(Some(2), None);
    let (serving, asleep) = ([replica(1, Phase::Ready, at(0))], [replica(1, Phase::Parked, at(0))]);
    budget.see(&name("a"), &serving, false, moment(100));
    budget.see(&name("b"), &asleep, false, moment(100));
    wants(&mut budget, "c", 100);
    // It waits, and its provider does not answer any more.
    assert_eq!(budget.see(&name("b"), &asleep, false, moment(114)).parked, Some(0));
    assert_eq!(budget.see(&name("b"), &[], false, moment(114)).most, None);
    budget.see(&name("a"), &serving, false, moment(114));
    let left =
        |budget: &mut Budget, second| budget.see(&name("b"), &[], true, moment(second)).room.unwrap().left;
    assert_eq!(left(&mut budget, 114), 0, "c came before b");
    assert_eq!(left(&mut budget, 115), 1, "what c cannot use is not kept for it");
    budget.see(&name("b"), &[replica(1, Phase::Starting, at(115))], true, moment(115));
    let full = budget.see(&name("a"), &serving, false, moment(115));
    assert_eq!((full.most, full.parked), (None, None), "nor is anybody asked for it");
    wants(&mut budget, "c", 116);
    assert_eq!(
        budget.see(&name("a"), &serving, false, moment(116)).most,
        Some(0),
        "it is back, and waits still"
    );
}

#[test]
fn c2_c6_c_108_one_whose_provider_is_silent_keeps_nobody_from_being_asked() {
    for phase in [Phase::Parked, Phase::Draining, Phase::Ready] {
        let mut budget = budget(Some(2), None);
        budget.see(&name("a"), &[replica(1, phase, at(0))], false, moment(60));
        budget.capped(&name("a"), true);
        let serving = [replica(1, Phase::Ready, at(5))];
        budget.see(&name("b"), &serving, false, moment(64));
        wants(&mut budget, "c", 65);
        let most = |budget: &mut Budget, second| budget.see(&name("b"), &serving, false, moment(second)).most;
        assert_eq!(most(&mut budget, 74), None, "a makes room first: {phase:?}");
        assert_eq!(most(&mut budget, 75), Some(0), "nobody knows how a is: {phase:?}");
        budget.see(&name("c"), &[], false, moment(76));
        budget.capped(&name("c"), false);
        let grant = budget.see(&name("b"), &serving, false, moment(76));
        assert_eq!((grant.most, grant.parked), (None, None), "and what it needed is of the past");
    }
}

#[test]
fn c_108_nobody_makes_room_for_one_that_could_not_use_it() {
    let mut budget = budget(Some(2), None);
    let b = [replica(1, Phase::Ready, at(0)), replica(2, Phase::Ready, at(0))];
    budget.see(&name("b"), &b, false, moment(100));
    for second in 100..110 {
        // It is behind a price cap, or its provider has no room.
        budget.see(&name("a"), &[], true, moment(second));
        budget.capped(&name("a"), false);
        let grant = budget.see(&name("b"), &b, false, moment(second));
        assert_eq!((grant.most, grant.parked), (None, None));
    }
    let one = &b[..1];
    assert_eq!(budget.see(&name("b"), one, false, moment(110)).room.unwrap().left, 1, "none is kept for it");
    budget.see(&name("b"), &b, false, moment(111));
    wants(&mut budget, "a", 112);
    assert_eq!(budget.see(&name("b"), &b, false, moment(113)).most, Some(1), "now it could");
}
