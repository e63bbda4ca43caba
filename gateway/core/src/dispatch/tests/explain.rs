//! What is explained is what is done, and explaining does nothing (E3).

use tidegate_shared::explained::{ChosenBy, DetourPrice, RouteDecision, RouteVerdict, Standing};

use super::*;

/// Requests of every kind: named, first and later turns of chats, and without a conversation; some say whether they
/// have come before.
pub(super) fn any_kind(n: u64) -> Arc<RequestFacts> {
    let key = |n: u64| ConversationKey(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let chat = |n: u64, turns: u64| {
        let of_chat = (1..=turns).map(|turn| key(1000 + n * 16 + turn));
        Identity::Prefix { chain: [key(7)].into_iter().chain(of_chat).collect(), follows_up: turns > 1 }
    };
    let (n, kind) = (n / 5, n % 5);
    let identity = match kind {
        0 | 1 => return ask(n),
        2 => chat(n, 1),
        3 => chat(n, 3),
        _ => Identity::None,
    };
    let retry = [None, Some(true), Some(false)][usize::try_from(n % 3).unwrap()];
    Arc::new(RequestFacts { identity, retry, fingerprint: 100 + n, ..(*ask(n)).clone() })
}

/// Asks what is to become of a request, then sends it: the answers must be the same.
pub(super) fn arrive_as_explained(
    dispatcher: &mut Dispatcher,
    now: Instant,
    facts: &Arc<RequestFacts>,
) -> Verdict {
    let told = dispatcher.explain(now, facts);
    let done = dispatcher.arrive(now, facts);
    let seen = match &done {
        Verdict::Forward(lease) => match told.verdict {
            RouteVerdict::Forward { chosen_by, .. } => {
                RouteVerdict::Forward { replica: lease.replica, route: lease.route, chosen_by }
            }
            other => panic!("forwarded by {lease:?}, and told {other:?}"),
        },
        Verdict::Wait(ticket) => match told.verdict {
            RouteVerdict::Wait { expected, at_most, .. } => {
                let waiter = dispatcher.queue.waiter(*ticket).expect("it waits");
                let patience = dispatcher.patience(waiter.since + waiter.extra);
                let (until, then) = patience.min((waiter.start_by, Refusal::MissedDeadline));
                assert_eq!(until.since(now), at_most);
                RouteVerdict::Wait { before: dispatcher.queue.before(*ticket), expected, at_most, then }
            }
            other => panic!("waits, and told {other:?}"),
        },
        Verdict::Reject(no) => RouteVerdict::Refuse { reason: no.reason, retry_after: no.retry_after },
    };
    assert_eq!(told.verdict, seen);
    consistent(dispatcher, &told);
    done
}

/// The figures fit the verdict.
fn consistent(dispatcher: &Dispatcher, told: &RouteDecision) {
    let takes = |standing| {
        matches!(standing, Standing::Free | Standing::OverLimit | Standing::WarmingUp | Standing::Busy)
    };
    let free = |id: ReplicaId| {
        let found = told.candidates.iter().find(|candidate| candidate.id == id).expect("it is listed");
        // One request may be tried beside those that a replica had when it was taken out.
        let trial = dispatcher.trust(id) != Trust::Whole;
        // Who is left to its own is in no order.
        let own_only = dispatcher.replicas.get(id).is_some_and(|replica| replica.own_only);
        assert_eq!(found.order.is_some(), !own_only, "{found:?}");
        assert!(trial || found.in_flight < found.limit, "{found:?}");
        found.standing
    };
    match told.verdict {
        RouteVerdict::Forward { replica, route: Route::Home, chosen_by } => {
            assert_eq!(chosen_by, ChosenBy::Home);
            assert_eq!(told.known.map(|known| known.home), Some(replica));
            free(replica);
        }
        RouteVerdict::Forward { replica, chosen_by: ChosenBy::Prefix, .. } => {
            assert!(told.holders.contains(&replica), "{told:?}");
            assert_eq!(free(replica), Standing::Free);
        }
        RouteVerdict::Forward { replica, .. } => {
            assert!(takes(free(replica)), "{told:?}");
        }
        // Whose client is gone already gets nothing, whoever is free.
        RouteVerdict::Refuse { reason: Refusal::MissedDeadline, .. } => {}
        RouteVerdict::Wait { .. } | RouteVerdict::Refuse { .. } => {
            assert!(!told.candidates.iter().any(|candidate| takes(candidate.standing)), "{told:?}");
        }
    }
}

#[test]
fn e3_a_thousand_explanations_leave_everything_as_it_was() {
    for name in PolicyName::ALL {
        let mut dispatcher =
            fleet(Limits { concurrency: 2, queue_requests: 3, ..Limits::default() }, &[1, 2, 1])
                .with_policy(name, 7);
        let mut leases = Vec::new();
        for step in 0..60 {
            let now = ms(step * 50);
            let facts: Vec<_> = (0..20).map(|n| any_kind((step + n) % 90)).collect();
            let before = format!("{dispatcher:?}");
            (0..1000).for_each(|n| drop(dispatcher.explain(now, &facts[n % 20])));
            assert_eq!(format!("{dispatcher:?}"), before, "{name:?}");
            if let Verdict::Forward(lease) = arrive_as_explained(&mut dispatcher, now, &facts[0]) {
                leases.push(lease);
            }
            if step % 3 == 2 && !leases.is_empty() {
                dispatcher.end(now, leases.swap_remove(0), &Spent::default());
            }
            leases.extend(dispatcher.take_woken().into_iter().filter_map(|(_, end)| end.ok()));
            dispatcher.on_deadline(now);
        }
        leases.into_iter().for_each(|lease| dispatcher.end(ms(9000), lease, &Spent::default()));
    }
}

#[test]
fn e3_a_home_is_told_with_the_boundary_that_matched() {
    let mut dispatcher = fleet(Limits::default(), &[1, 1]);
    let chain = |keys: &[u64]| Identity::Prefix {
        chain: keys.iter().map(|key| ConversationKey(*key)).collect(),
        follows_up: keys.len() > 2,
    };
    let turn = |keys: &[u64]| Arc::new(RequestFacts { identity: chain(keys), ..(*ask(1)).clone() });
    let first = forward(dispatcher.arrive(ms(0), &turn(&[1, 2])));
    let at = first.replica;
    let told = dispatcher.explain(ms(1), &turn(&[1, 2, 3, 4]));
    let known = told.known.unwrap();
    assert_eq!((known.home, known.boundary), (at, Some(2)));
    assert_eq!(
        told.verdict,
        RouteVerdict::Forward { replica: at, route: Route::Home, chosen_by: ChosenBy::Home }
    );
    assert_eq!((told.detour, told.policy), (None, "least-load"));
    let told = dispatcher.explain(ms(1), &turn(&[1, 9]));
    assert_eq!(
        (told.known, told.holders),
        (None, vec![at]),
        "a first turn opens; its beginning is held there"
    );
    dispatcher.end(ms(2), first, &Spent::default());
}

#[test]
fn e3_the_price_of_a_detour_is_told_where_it_is_weighed() {
    let mut dispatcher = fleet(Limits { concurrency: 10, ..Limits::default() }, &[1, 1]);
    let held: Vec<_> = (0..9).map(|_| forward(dispatcher.arrive(ms(0), &ask(1)))).collect();
    let told = dispatcher.explain(ms(1), &ask(1));
    assert_eq!(told.detour, Some(DetourPrice { prefill: None, wait: None }), "nothing was measured yet");
    let home = told.known.unwrap().home;
    let standing = |id| told.candidates.iter().find(|candidate| candidate.id == id).unwrap().standing;
    assert_eq!(standing(home), Standing::OverLimit);
    assert!(
        matches!(told.verdict, RouteVerdict::Forward { route: Route::Detour, replica, .. } if replica != home)
    );
    let slow = Spent { prompt: Some(100), first_byte: Some(Duration::from_secs(1)), ..Spent::default() };
    held.into_iter().for_each(|lease| dispatcher.end(ms(90), lease, &slow));
    let held: Vec<_> = (0..9).map(|_| forward(dispatcher.arrive(ms(100), &ask(1)))).collect();
    let told = dispatcher.explain(ms(101), &ask(1));
    let price = told.detour.unwrap();
    assert!(price.prefill.unwrap() > price.wait.unwrap(), "{price:?}");
    assert!(matches!(told.verdict, RouteVerdict::Forward { route: Route::Home, .. }), "{told:?}");
    held.into_iter().for_each(|lease| dispatcher.end(ms(200), lease, &Spent::default()));
}

#[test]
fn e3_who_waits_is_told_his_place_and_how_long_and_who_is_refused_when_to_come() {
    let limits = Limits { concurrency: 1, queue_requests: 2, ..Limits::default() };
    let mut dispatcher = fleet(limits, &[1]);
    let held = forward(dispatcher.arrive(ms(0), &ask(1)));
    ticket(dispatcher.arrive(ms(1), &ask(2)));
    let told = dispatcher.explain(ms(2), &ask(3));
    let at_most = Duration::from_secs(2);
    let then = Refusal::WaitedTooLong;
    assert_eq!(told.verdict, RouteVerdict::Wait { before: 1, expected: None, at_most, then });
    assert_eq!(told.candidates[0].standing, Standing::Full);
    ticket(dispatcher.arrive(ms(3), &ask(3)));
    let told = dispatcher.explain(ms(4), &ask(4));
    let RouteVerdict::Refuse { reason, retry_after } = told.verdict else { panic!("{told:?}") };
    let no = rejected(dispatcher.arrive(ms(4), &ask(4)));
    assert_eq!((reason, retry_after), (no.reason, no.retry_after));
    let back = dispatcher.explain(ms(4) + no.retry_after, &ask(4));
    assert!(back.promised && !told.promised, "who comes back when told is known");
    dispatcher.end(ms(5), held, &Spent::default());
    dispatcher.take_woken().into_iter().filter_map(|(_, end)| end.ok()).for_each(|lease| {
        dispatcher.end(ms(6), lease, &Spent::default());
    });
}

#[test]
fn e3_a_replica_that_takes_nothing_is_told_with_its_reason() {
    let mut dispatcher = fleet(Limits::default(), &[1, 1, 1, 2]);
    dispatcher.change(ms(1), ReplicaId(1), Change::Suspect);
    dispatcher.change(ms(1), ReplicaId(2), Change::Refused);
    dispatcher.change(ms(1), ReplicaId(3), Change::Draining);
    let told = dispatcher.explain(ms(2), &ask(1));
    let standings: Vec<_> = told.candidates.iter().map(|candidate| candidate.standing).collect();
    assert_eq!(standings, [Standing::Suspect, Standing::Refused, Standing::NotReady, Standing::Free]);
    let shares: Vec<_> = told.candidates.iter().map(|candidate| candidate.share_percent).collect();
    assert_eq!(shares, [0, 0, 0, 100]);
    assert_eq!(told.candidates[3].order, Some(1));
}
