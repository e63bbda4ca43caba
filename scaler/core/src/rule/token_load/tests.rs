//! The numbers of the token-load rule, and sizes that differ.

use tidegate_shared::replica::{Capacity, Phase};
use tidegate_shared::request::Tokens;
use tidegate_shared::time::Instant;

use super::*;

const EQUAL: Scale = Scale { tokens: 1000, units: 1 };

fn filled(tokens: u128) -> Filled {
    Filled::new(EQUAL, Mean { sum: tokens * 30, count: 30 })
}

#[test]
fn b2_90_80_70_percent_need_exactly_4() {
    assert_eq!(filled(900 + 800 + 700).needed(&[1000; 3], &[1000]), 4);
    assert_eq!(filled(2401).needed(&[1000; 3], &[1000]), 5, "a token more");
    let a_third_of_a_token_more = Mean { sum: 2400 * 3 + 1, count: 3 };
    assert_eq!(Filled::new(EQUAL, a_third_of_a_token_more).needed(&[1000; 3], &[1000]), 5);
    assert_eq!(filled(1800).needed(&[1000; 3], &[1000]), 3);
    assert_eq!(filled(0).needed(&[1000; 3], &[1000]), 0);
}

#[test]
fn b2_a_larger_gpu_counts_for_more() {
    assert_eq!(filled(2400).needed(&[1000; 3], &[2000]), 4, "one of twice the size is one");
    assert_eq!(filled(4800).needed(&[2000, 1000], &[1000]), 7);
    assert_eq!(filled(4800).needed(&[2000, 1000], &[5000]), 3);
    assert_eq!(filled(4800).needed(&[2000, 1000], &[4000, 1000]), 4, "4000 and 1000 more");
    assert_eq!(filled(4801).needed(&[2000, 1000], &[4000, 1000]), 5);
    assert_eq!(filled(1801).needed(&[2000, 1000], &[4000, 1000]), 3, "the first is enough");
    assert_eq!(filled(1200).needed(&[2000, 1000, 1000], &[1000]), 2, "the large one leaves first");
    assert_eq!(filled(1200).needed(&[1000, 1000, 2000], &[1000]), 1, "the small ones do");
}

#[test]
fn b2_sizes_in_units_and_in_tokens_compare_exactly() {
    let replica = |id, units, memory: Option<u64>| {
        let bare = ReplicaFacts::new(ReplicaId(id), Phase::Ready, Instant::ZERO, Capacity::new(units));
        ReplicaFacts { memory: memory.map(Tokens), ..bare }
    };
    let (small, large) = (replica(1, 4, Some(401)), replica(2, 8, Some(799)));
    let scale = Scale::of(&[small.clone(), large.clone()]).unwrap();
    assert_eq!(scale.size(&small) + scale.size(&large), scale.units(12));
    assert_eq!(scale.size(&replica(3, 4, None)), scale.units(4));
    assert_eq!(Scale::of(&[replica(1, 4, None)]), None);
}

#[test]
fn b5_survivors_of_2_at_25_percent_are_at_50_and_of_2_at_40_at_80() {
    assert!(filled(500).is_below(SURVIVORS, 1000));
    assert!(!filled(800).is_below(SURVIVORS, 1000));
    assert_eq!((filled(500).percent(1000), filled(800).percent(1000)), (50, 80));
    assert!(!filled(550).is_below(SURVIVORS, 1000), "55 % is not below 55 %");
    assert!(filled(549).is_below(SURVIVORS, 1000));
    assert_eq!(filled(1).percent(0), u32::MAX, "nobody survives");
}

#[test]
fn b3_a_burst_is_four_requests_and_a_quarter_of_the_places_at_least() {
    assert!(is_burst(8, 32) && !is_burst(7, 32));
    assert!(is_burst(4, 1) && !is_burst(3, 1));
    assert!(is_burst(u32::MAX, u32::MAX));
}

#[test]
fn b3_growth_is_over_the_whole_fleet_and_unknown_says_nothing() {
    let queues =
        |all: &[(u32, Option<u32>)]| Queues(all.iter().map(|(id, w)| (ReplicaId(*id), *w)).collect());
    let before = queues(&[(1, Some(10)), (2, Some(0)), (3, None)]);
    assert_eq!(queues(&[(1, Some(0)), (2, Some(10)), (3, Some(90))]).growth(&before), 0, "it moved");
    assert_eq!(queues(&[(1, Some(12)), (2, None), (4, Some(5))]).growth(&before), 7);
    assert_eq!(queues(&[(1, Some(2))]).growth(&before), 0);
    let spike = queues(&[(1, Some(50))]);
    assert_eq!(spike.least(&queues(&[(1, Some(1))])), queues(&[(1, Some(1))]));
    assert_eq!(spike.least(&queues(&[(1, None)])), queues(&[(1, None)]));
}
