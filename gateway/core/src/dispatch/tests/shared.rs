//! Prompts that many ask as they are (R1, R3, R6): nobody is sent after somebody else, no replica drowns, and from the
//! first turn on that is a client's own, it goes home.

use super::*;

/// A dispatcher and the clients that it serves, so many at a time.
struct Crowd {
    dispatcher: Dispatcher,
    width: usize,
    at: u64,
}

impl Crowd {
    fn of(sizes: &[u32], width: usize) -> Self {
        Self { dispatcher: fleet(Limits { concurrency: 400, ..Limits::default() }, sizes), width, at: 0 }
    }

    /// All of these prompts; gives how each was sent and where to.
    fn ask(&mut self, chains: &[(Vec<u64>, bool)]) -> Vec<(Route, usize)> {
        let mut seen = Vec::new();
        for wave in chains.chunks(self.width) {
            self.at += 10;
            let at = ms(self.at);
            let leases: Vec<_> = wave
                .iter()
                .map(|(chain, follows_up)| {
                    let chain = chain.iter().map(|key| ConversationKey(*key)).collect();
                    let identity = Identity::Prefix { chain, follows_up: *follows_up };
                    let facts = RequestFacts { identity, ..(*ask(1)).clone() };
                    forward(self.dispatcher.arrive(at, &Arc::new(facts)))
                })
                .collect();
            seen.extend(leases.iter().map(|lease| (lease.route, lease.replica.0 as usize - 1)));
            leases.into_iter().for_each(|lease| self.dispatcher.end(at, lease, &Spent::default()));
        }
        seen
    }
}

fn counts(seen: &[(Route, usize)], sizes: &[u32]) -> Vec<usize> {
    let mut counts = vec![0; sizes.len()];
    seen.iter().for_each(|(_, at)| counts[*at] += 1);
    counts
}

/// Whether no count is further from its share by size than this percentage.
fn assert_within(percent: usize, counts: &[usize], sizes: &[u32]) {
    let (all, size): (usize, u32) = (counts.iter().sum(), sizes.iter().sum());
    for (count, own) in counts.iter().zip(sizes) {
        let share = all * *own as usize / size as usize;
        assert!(count.abs_diff(share) * 100 <= share * percent, "{counts:?} on {sizes:?}");
    }
}

fn assert_hottest(counts: &[usize], sizes: &[u32]) {
    let (all, size): (usize, u32) = (counts.iter().sum(), sizes.iter().sum());
    for (count, own) in counts.iter().zip(sizes) {
        assert!(count * 100 * size as usize <= all * 125 * *own as usize, "{counts:?} on {sizes:?}");
    }
}

/// Turns 1, 2, … of a conversation whose first `same` boundaries are everybody's.
fn turn(who: u64, turn: u64, same: u64) -> (Vec<u64>, bool) {
    let own = |n: u64| if n <= same { n } else { 1000 * (who + 1) + n };
    ((1..2 * turn).map(own).collect(), turn > 1)
}

#[test]
fn r1_r2_r3_who_begins_with_the_same_words_is_spread_and_goes_home_from_the_first_turn_on_that_is_its_own() {
    for (sizes, width) in [([1, 1, 1, 1], 1), ([1, 1, 1, 1], 50), ([1, 2, 4, 1], 1), ([1, 2, 4, 1], 50)] {
        let mut crowd = Crowd::of(&sizes, width);
        let mut last: Vec<usize> = Vec::new();
        for n in 1..=8 {
            let seen = crowd.ask(&(0..200).map(|who| turn(who, n, 1)).collect::<Vec<_>>());
            assert_within(5, &counts(&seen, &sizes), &sizes);
            let way = if n <= 2 { Route::Placed } else { Route::Home };
            assert!(seen.iter().all(|(route, _)| *route == way), "turn {n}: {seen:?}");
            let at: Vec<usize> = seen.iter().map(|(_, at)| *at).collect();
            assert!(n <= 2 || at == last, "turn {n}");
            last = at;
        }
        // One for the words that all share, one for each who went on.
        assert_eq!(crowd.dispatcher.conversations(), 201);
    }
}

#[test]
fn r1_of_two_who_say_hi_neither_is_sent_after_the_other_once_they_differ() {
    let mut crowd = Crowd::of(&[1, 1], 2);
    crowd.ask(&[turn(0, 1, 1), turn(1, 1, 1)]);
    let second = crowd.ask(&[turn(0, 2, 1), turn(1, 2, 1)]);
    assert_ne!(second[0].1, second[1].1);
    for n in 3..6 {
        let seen = crowd.ask(&[turn(0, n, 1), turn(1, n, 1)]);
        assert_eq!(seen, [(Route::Home, second[0].1), (Route::Home, second[1].1)]);
    }
}

#[test]
fn r6_the_same_body_from_a_crowd_overloads_nobody_whatever_is_in_it() {
    for sizes in [[1; 8], [1, 1, 2, 2, 3, 3, 4, 8]] {
        for width in [1, 20, 100] {
            // Few shots: an answer of a model is in it, though nobody has asked anything yet.
            let body = || ((1..10).collect::<Vec<u64>>(), true);
            let mut crowd = Crowd::of(&sizes, width);
            let seen = crowd.ask(&(0..500).map(|_| body()).collect::<Vec<_>>());
            assert_hottest(&counts(&seen, &sizes), &sizes);
            // And whatever each goes on with.
            let next = |who: u64| ((1..10).chain([1000 + who, 2000 + who]).collect::<Vec<u64>>(), true);
            let seen = crowd.ask(&(0..500).map(next).collect::<Vec<_>>());
            assert_hottest(&counts(&seen, &sizes), &sizes);
            let homes: Vec<usize> = seen.iter().map(|(_, at)| *at).collect();
            let later = |who: u64| {
                ((1..10).chain([1000 + who, 2000 + who, 10_000 + who, 20_000 + who]).collect(), true)
            };
            let seen = crowd.ask(&(0..500).map(later).collect::<Vec<_>>());
            assert!(seen.iter().zip(homes).all(|(seen, home)| *seen == (Route::Home, home)));
        }
    }
}

#[test]
fn r6_a_crowd_that_goes_on_from_one_conversation_overloads_nobody() {
    let mut crowd = Crowd::of(&[1; 8], 20);
    crowd.ask(&[turn(0, 1, 9), turn(0, 3, 9)]);
    let seen = crowd.ask(&(0..500).map(|who| turn(who, 4, 5)).collect::<Vec<_>>());
    assert_hottest(&counts(&seen, &[1; 8]), &[1; 8]);
    let homes: Vec<usize> = seen.iter().map(|(_, at)| *at).collect();
    let seen = crowd.ask(&(0..500).map(|who| turn(who, 5, 5)).collect::<Vec<_>>());
    assert!(seen.iter().zip(homes).all(|(seen, home)| *seen == (Route::Home, home)));
}

#[test]
fn r1_r2_one_who_asks_again_or_edits_what_was_said_up_to_two_turns_ago_stays_at_home() {
    let mut crowd = Crowd::of(&[1; 8], 1);
    let home = crowd.ask(&[turn(0, 1, 0)])[0].1;
    for n in 2..=6 {
        assert_eq!(crowd.ask(&[turn(0, n, 0), turn(0, n, 0)]), [(Route::Home, home); 2], "asked again");
    }
    for back in 1..=2 {
        let (mut edited, _) = turn(0, 6 - back + 1, 0);
        *edited.last_mut().unwrap() = 77 + back;
        assert_eq!(crowd.ask(&[(edited.clone(), true)]), [(Route::Home, home)], "{back} back");
        edited.extend([88, 99]);
        assert_eq!(crowd.ask(&[(edited, true)]), [(Route::Home, home)], "and goes on");
    }
    assert_eq!(crowd.ask(&[turn(0, 7, 0)]), [(Route::Home, home)], "as does the first");
}

#[test]
fn r5_a_first_turn_that_its_replica_fails_is_its_own_elsewhere() {
    let mut dispatcher = fleet(Limits::default(), &[1, 1]);
    let facts = |keys: &[u64]| {
        let chain = keys.iter().map(|key| ConversationKey(*key)).collect();
        let identity = Identity::Prefix { chain, follows_up: keys.len() > 1 };
        Arc::new(RequestFacts { identity, ..(*ask(1)).clone() })
    };
    let first = forward(dispatcher.arrive(ms(0), &facts(&[1])));
    let failed = first.replica;
    dispatcher.end(ms(1), first, &Spent::default());
    let second = forward(dispatcher.retry(ms(1), &facts(&[1]), &[failed], ms(0)));
    let home = second.replica;
    assert_ne!(home, failed);
    dispatcher.end(ms(2), second, &Spent::default());
    let next = forward(dispatcher.arrive(ms(3), &facts(&[1, 2, 3])));
    assert_eq!((next.route, next.replica), (Route::Home, home));
}

#[test]
fn r3_who_says_hi_and_who_goes_on_from_it_may_come_mixed() {
    for (sizes, width, seed) in [([1, 1, 1, 1], 1, 1), ([1, 1, 1, 1], 40, 2), ([1, 2, 4, 1], 20, 3)] {
        let mut crowd = Crowd::of(&sizes, width);
        let mut rng = tidegate_shared::rng::Rng::new(seed);
        let mut turns = [0u64; 200];
        let mut homes = vec![0; 4];
        while turns.iter().any(|turn| *turn < 8) {
            let mut wave: Vec<usize> = Vec::new();
            while wave.len() < width && wave.len() < turns.iter().filter(|turn| **turn < 8).count() {
                let who = rng.below(200);
                if turns[who] < 8 && !wave.contains(&who) {
                    wave.push(who);
                }
            }
            wave.iter().for_each(|who| turns[*who] += 1);
            let seen =
                crowd.ask(&wave.iter().map(|who| turn(*who as u64, turns[*who], 1)).collect::<Vec<_>>());
            for (who, (_, at)) in wave.iter().zip(seen) {
                homes[at] += usize::from(turns[*who] == 2);
            }
        }
        assert_within(12, &homes, &sizes);
    }
}
