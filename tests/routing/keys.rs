//! Keys of every kind spread evenly (C-095): live, where every new conversation is placed; and by the hash of the policy
//! `prefix`, which several gateways share, over a hundred thousand keys.

use tidegate::openai::request::named;
use tidegate_gateway_core::route::{Field, Order, Policy, Prefix, Rank, Share, Turn};
use tidegate_shared::id::ReplicaId;
use tidegate_shared::request::{ConversationKey, Tokens};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::crowd::{Crowd, at_a_time};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::chat;
use tidegate_tests::stub::Stub;

use crate::CHAT;
use crate::fleet::{Way, counts};

const FLEETS: [u32; 5] = [2, 3, 5, 10, 32];

/// Keys as people make them: numbers in sequence, addresses, and what looks like a UUID.
const KINDS: [fn(usize) -> String; 3] = [
    |index| index.to_string(),
    |index| format!("user{index}@example.com"),
    |index| {
        let hash = named(&index.to_le_bytes()).0;
        format!("{:08x}-{:04x}-4{:03x}-a000-{index:012x}", hash >> 32, hash & 0xffff, (hash >> 16) & 0xfff)
    },
];

/// Panics where one has more than 1.25 times the mean.
#[track_caller]
fn assert_even(counts: &[usize]) {
    let (all, most) = (counts.iter().sum::<usize>(), counts.iter().max().copied().unwrap_or(0));
    assert!(most * counts.len() * 100 <= all * 125, "{counts:?}");
}

#[test]
fn c_095_a_hundred_thousand_keys_of_each_kind_are_hashed_evenly() {
    for replicas in FLEETS {
        let rank = |id| Rank::of(Tokens(0), 1, Turn::default(), ReplicaId(id));
        let ranked: Order = (1..=replicas).map(rank).collect();
        for kind in KINDS {
            let mut counts = vec![0; replicas as usize];
            for index in 0..100_000 {
                let mut field = Field::new(&ranked, &|_| true);
                field.key = Some(ConversationKey(named(kind(index).as_bytes()).0));
                field.mean = Share::of(Tokens(1), 1);
                counts[Prefix::default().choose(&field).expect("a replica").0 as usize - 1] += 1;
            }
            assert_even(&counts);
        }
    }
}

#[tokio::test]
async fn c_095_conversations_of_every_kind_of_name_are_placed_evenly() {
    for replicas in FLEETS.map(|replicas| replicas as usize) {
        let mut stubs = Vec::new();
        for _ in 0..replicas {
            stubs.push(Stub::start().await);
        }
        let gateway = Gateway::start(Config::of(Deployment::chat(&stubs))).await;
        let crowd = Crowd::of(gateway.address, 1).await;
        for kind in KINDS {
            let ways =
                at_a_time(100 * replicas, 8, |index| {
                    let (crowd, name) = (crowd.clone(), kind(index));
                    async move {
                        Way::of(&crowd.post(CHAT, &[("x-session-id", &name)], &chat("chat", "hi")).await)
                    }
                })
                .await;
            assert!(ways.iter().all(|way| way.route == "placed"));
            assert_even(&counts(&ways, replicas));
        }
    }
}
