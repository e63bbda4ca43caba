//! The table of conversations.

use proptest::prelude::*;

use super::*;

const A: ReplicaId = ReplicaId(1);
const B: ReplicaId = ReplicaId(2);

fn key(n: u64) -> ConversationKey {
    // Spread like a hash.
    ConversationKey(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
}

fn at(seconds: u64) -> Instant {
    Instant::from_micros(seconds * 1_000_000)
}

fn table(max: u32) -> Conversations {
    Conversations::new(max, Duration::from_secs(3600))
}

#[test]
fn r1_a_later_turn_is_found_by_its_longest_known_prefix() {
    let mut table = table(10);
    table.open(at(0), key(2), A, &[]);
    let (boundary, found) = table.find_longest(at(1), &[key(1), key(2), key(3), key(4)]).unwrap();
    assert_eq!(boundary, 1);
    table.advance(at(1), found, key(4));
    assert_eq!(table.find_longest(at(2), &[key(1), key(2), key(3), key(4), key(5)]).unwrap().1.home, A);
    assert_eq!(table.len(), 1);
}

#[test]
fn r1_a_fork_of_an_earlier_turn_is_a_conversation_of_its_own_at_the_same_home() {
    let mut table = table(10);
    table.open(at(0), key(1), A, &[]);
    let first = table.find(at(0), key(1)).unwrap();
    table.advance(at(0), first, key(2));
    let (_, fork) = table.find_longest(at(1), &[key(1), key(9)]).unwrap();
    assert_eq!(fork.home, A);
    table.advance(at(1), fork, key(9));
    assert_eq!(table.len(), 2);
    assert_eq!(table.at(A), 2);
    assert!(table.find(at(2), key(2)).is_some() && table.find(at(2), key(9)).is_some());
}

#[test]
fn r1_a_key_that_others_open_elsewhere_tells_nobodys_home() {
    let mut table = table(10);
    assert_eq!(table.open(at(0), key(1), A, &[]), None);
    assert_eq!(table.open(at(0), key(1), A, &[]), None, "the same home for both");
    assert!(!table.find(at(1), key(1)).unwrap().is_shared());
    assert_eq!(table.open(at(1), key(1), B, &[]), Some(A));
    assert!(table.find(at(2), key(1)).unwrap().is_shared());
    assert_eq!((table.len(), table.at(A)), (1, 1));
    // Another's earlier turn is opened: what it has since is its own.
    table.open(at(3), key(5), A, &[]);
    let own = table.find(at(3), key(5)).unwrap();
    assert!(!table.advance(at(3), own, key(6)));
    assert_eq!(table.open(at(4), key(5), B, &[]), Some(A));
    assert!(table.find(at(4), key(5)).unwrap().is_shared());
    assert!(!table.find(at(4), key(6)).unwrap().is_shared());
}

#[test]
fn r1_a_key_that_is_taken_up_too_often_is_shared() {
    let mut table = table(10);
    table.open(at(0), key(1), A, &[]);
    let first = table.find(at(0), key(1)).unwrap();
    table.advance(at(0), first, key(2));
    for fork in 0..4 {
        let found = table.find(at(1), key(1)).unwrap();
        assert_eq!((found.is_shared(), table.advance(at(1), found, key(10 + fork))), (false, fork == 3));
    }
    assert!(table.find(at(1), key(1)).unwrap().is_shared());
    assert!(!table.find(at(1), key(2)).unwrap().is_shared());
    assert_eq!(table.len(), 5);
}

#[test]
fn r5_a_home_that_failed_the_opening_is_replaced() {
    let mut table = table(10);
    table.open(at(0), key(1), A, &[]);
    assert_eq!(table.open(at(0), key(1), B, &[A]), None);
    let found = table.find(at(0), key(1)).unwrap();
    assert_eq!((found.home, found.is_shared(), table.at(A)), (B, false, 0));
}

#[test]
fn r1_a_conversation_is_found_under_its_last_three_turns() {
    let mut table = table(10);
    table.open(at(0), key(1), A, &[]);
    for n in 1..6 {
        let found = table.find(at(n), key(n)).unwrap();
        table.advance(at(n), found, key(n + 1));
    }
    let known: Vec<bool> = (1..=6).map(|n| table.find(at(6), key(n)).is_some()).collect();
    assert_eq!(known, [false, false, false, true, true, true]);
    assert_eq!((table.index.len(), table.len()), (3, 1));
}

#[test]
fn r7_the_least_recently_used_goes_first() {
    let mut table = table(3);
    (1..=3).for_each(|n| assert_eq!(table.open(at(n), key(n), A, &[]), None));
    let one = table.find(at(4), key(1)).unwrap();
    table.advance(at(4), one, key(1));
    table.open(at(5), key(4), B, &[]);
    assert_eq!(table.len(), 3);
    assert!(table.find(at(5), key(2)).is_none());
    assert!(table.find(at(5), key(1)).is_some());
    assert_eq!((table.at(A), table.at(B)), (2, 1));
}

#[test]
fn r7_idle_conversations_are_forgotten() {
    let mut table = table(100);
    (1..=50).for_each(|n| assert_eq!(table.open(at(0), key(n), A, &[]), None));
    assert!(table.find(at(3601), key(1)).is_none());
    (101..=150).for_each(|n| assert_eq!(table.open(at(4000), key(n), B, &[]), None));
    assert_eq!((table.at(A), table.len()), (0, 50));
}

#[test]
fn r7_a_conversation_costs_at_most_100_bytes() {
    let mut table = table(100_000);
    for n in 0..100_000 {
        table.open(at(0), key(4 * n), A, &[]);
        for turn in 4 * n..4 * n + 3 {
            let found = table.find(at(0), key(turn)).unwrap();
            table.advance(at(0), found, key(turn + 1));
        }
    }
    assert_eq!(table.index.len(), 300_000);
    let bytes = table.slots.capacity() * size_of::<Slot>()
        + table.free.capacity() * size_of::<u32>()
        + table.index.allocation_size();
    assert!(bytes / 100_000 <= 100, "{} bytes each", bytes / 100_000);
}

#[test]
fn r5_rehoming_moves_the_count() {
    let mut table = table(10);
    table.open(at(0), key(1), A, &[]);
    let found = table.find(at(0), key(1)).unwrap();
    let found = table.rehome(at(0), found, B);
    table.advance(at(0), found, key(2));
    assert_eq!((table.at(A), table.at(B)), (0, 1));
    assert_eq!(table.find(at(0), key(1)).unwrap().home, B);
}

proptest! {
    /// Whatever is opened, advanced, rehomed and forgotten: the table is bounded, its counts add up, and every
    /// conversation that it counts is found under its key.
    #[test]
    fn r7_the_table_is_consistent(ops in prop::collection::vec((0u8..4, 0u64..40, 1u32..4), 1..400)) {
        let mut table = table(16);
        for (step, (op, n, replica)) in ops.into_iter().enumerate() {
            let now = at(step as u64 * 60);
            match (op, table.find(now, key(n))) {
                (0, _) => { table.open(now, key(n), ReplicaId(replica), &[]); }
                (1, Some(found)) if !found.is_shared() => { table.advance(now, found, key(n + 1)); }
                (2, Some(found)) => { table.rehome(now, found, ReplicaId(replica)); }
                _ => {}
            }
            prop_assert!(table.len() <= 16);
            let homes: u32 = (1..4).map(|r| table.at(ReplicaId(r))).sum();
            prop_assert_eq!(homes, table.len());
            prop_assert_eq!(table.slots.len() - table.free.len(), table.len() as usize);
            let mut linked = 0;
            let mut slot = table.newest;
            while let Some(s) = table.slots.get(slot as usize) {
                linked += 1;
                slot = s.older;
            }
            prop_assert_eq!(linked, table.len());
        }
    }
}
