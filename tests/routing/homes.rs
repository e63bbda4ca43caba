//! Follow-up turns go home to a warm cache (R2), as engines count cached tokens, without a word of the client's about
//! which conversation it is (R1).

use serde_json::{Value, json};
use tidegate_tests::crowd::{Crowd, at_a_time};
use tidegate_tests::stand_in::INSTANT;

use crate::CHAT;
use crate::fleet::{Cached, Fleet, Way, of_messages};

const CONVERSATIONS: usize = 200;
const TURNS: usize = 8;
/// What one engine of four can keep: together all conversations fit, with some room to spare.
const KV_TOKENS: u32 = 131_072;

/// What the user of a conversation says: some 60 tokens.
fn question(who: usize, turn: usize) -> Value {
    let text =
        format!("{who} asks for the {turn}th time: {}", "when is high water at the bridge? ".repeat(6));
    json!({"role": "user", "content": text})
}

/// All turns of all conversations, a turn of each before the next of any; gives what came of each turn.
async fn converse(fleet: &Fleet) -> Vec<Vec<(Way, Cached)>> {
    let crowd = Crowd::of(fleet.gateway.address, 2).await;
    let system = json!({"role": "system", "content": "You know the tides."});
    let mut histories = vec![vec![system]; CONVERSATIONS];
    let mut turns = Vec::new();
    for turn in 0..TURNS {
        histories.iter_mut().enumerate().for_each(|(who, history)| history.push(question(who, turn)));
        let answers = at_a_time(CONVERSATIONS, 24, |who| {
            let (crowd, body) = (crowd.clone(), of_messages(&histories[who], 24));
            async move { crowd.post(CHAT, &[], &body).await }
        })
        .await;
        for (history, answer) in histories.iter_mut().zip(&answers) {
            history.push(answer.json()["choices"][0]["message"].clone());
        }
        turns.push(answers.iter().map(|answer| (Way::of(answer), Cached::of(answer))).collect());
    }
    turns
}

fn cached(turns: &[Vec<(Way, Cached)>]) -> Cached {
    turns.iter().flatten().map(|(_, cached)| *cached).sum()
}

#[tokio::test]
async fn r1_r2_follow_ups_go_home_and_find_what_a_single_replica_would_have_cached() {
    let with_kv = |tokens: u32| {
        [INSTANT, &["--kv-tokens"]]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .chain([tokens.to_string()])
            .collect::<Vec<_>>()
    };
    let start = async |replicas: usize, tokens: u32| {
        let arguments = with_kv(tokens);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Fleet::start(&vec![1; replicas], &arguments, |deployment| deployment).await
    };
    let four = start(4, KV_TOKENS).await;
    let turns = converse(&four).await;
    let homes = &turns[0];
    assert!(homes.iter().all(|(way, _)| way.route == "placed"));
    let follow_ups = turns[1..].iter().flat_map(|turn| turn.iter().zip(homes));
    let home = follow_ups.filter(|((now, _), (home, _))| now.route == "home" && now.replica == home.replica);
    let (home, all) = (home.count(), CONVERSATIONS * (TURNS - 1));
    assert!(home * 100 >= all * 99, "{home} of {all} follow-ups went home");
    four.gateway.assert_idle().await;

    // Each question is heard once: what one replica with all the memory finds is all that there is to find.
    let one = start(1, KV_TOKENS * 4).await;
    let (spread, single) = (cached(&turns).percent(), cached(&converse(&one).await).percent());
    eprintln!("cached: {spread:.1} % on four replicas, {single:.1} % on a single one");
    assert!(single > 50.0, "there is something to find: {single:.1} %");
    assert!(spread > single - 3.0, "{spread:.1} % cached on four, {single:.1} % on one");
}
