//! Follow-up turns go home to a warm cache (R2), as engines count cached tokens, without a word of the client's about
//! which conversation it is (R1): a quarter are chats, a quarter raw completions whose prompt grows, a quarter call tools, a
//! quarter show pictures. What OpenAI's SDK makes of each of these is in `identity`.

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
fn question(who: usize, turn: usize) -> String {
    format!("{who} asks for the {turn}th time: {}", "when is high water at the bridge? ".repeat(6))
}

/// How a conversation is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Chat,
    Completions,
    Tools,
    Images,
}

const KINDS: [Kind; 4] = [Kind::Chat, Kind::Completions, Kind::Tools, Kind::Images];

/// A conversation so far, as its client keeps it.
struct Talk {
    who: usize,
    kind: Kind,
    messages: Vec<Value>,
    /// In place of messages, where there are none.
    prompt: String,
}

impl Talk {
    fn new(who: usize) -> Self {
        let messages = vec![json!({"role": "system", "content": "You know the tides."})];
        Self { who, kind: KINDS[who % KINDS.len()], messages, prompt: String::new() }
    }

    fn ask(&mut self, turn: usize) {
        let text = question(self.who, turn);
        let content = match self.kind {
            Kind::Completions => return self.prompt.push_str(&text),
            // Each picture is another one.
            Kind::Images => {
                let picture = format!("data:image/png;base64,{:A<200}", format!("{}z{turn}z", self.who));
                json!([{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": picture}}])
            }
            Kind::Chat | Kind::Tools => Value::from(text),
        };
        self.messages.push(json!({"role": "user", "content": content}));
    }

    fn body(&self) -> (&'static str, Value) {
        match self.kind {
            Kind::Completions => {
                ("/v1/completions", json!({"model": "chat", "max_tokens": 24, "prompt": self.prompt}))
            }
            _ => (CHAT, of_messages(&self.messages, 24)),
        }
    }

    /// Takes in the answer. Where there are tools, the model has called one, and its result is there for the next turn.
    fn heard(&mut self, answer: &Value) {
        let choice = &answer["choices"][0];
        if self.kind == Kind::Completions {
            return self.prompt.push_str(choice["text"].as_str().expect("a text"));
        }
        let mut message = choice["message"].clone();
        if self.kind == Kind::Tools {
            let id = format!("call_{}", self.messages.len());
            let function = json!({"name": "tide_table", "arguments": "{\"port\": \"Brest\"}"});
            message["tool_calls"] = json!([{"id": id, "type": "function", "function": function}]);
            self.messages.push(message);
            message = json!({"role": "tool", "tool_call_id": id, "content": "{\"high\": \"06:12\"}"});
        }
        self.messages.push(message);
    }
}

/// All turns of all conversations, a turn of each before the next of any; gives what came of each turn.
async fn converse(fleet: &Fleet) -> Vec<Vec<(Way, Cached)>> {
    let crowd = Crowd::of(fleet.gateway.address, 2).await;
    let mut talks: Vec<Talk> = (0..CONVERSATIONS).map(Talk::new).collect();
    let mut turns = Vec::new();
    for turn in 0..TURNS {
        talks.iter_mut().for_each(|talk| talk.ask(turn));
        let answers = at_a_time(CONVERSATIONS, 24, |who| {
            let (crowd, (route, body)) = (crowd.clone(), talks[who].body());
            async move { crowd.post(route, &[], &body).await }
        })
        .await;
        talks.iter_mut().zip(&answers).for_each(|(talk, answer)| talk.heard(&answer.json()));
        turns.push(answers.iter().map(|answer| (Way::of(answer), Cached::of(answer))).collect());
    }
    turns
}

fn cached(turns: &[Vec<(Way, Cached)>], kind: Kind) -> Cached {
    let of_kind = |turn: &Vec<(Way, Cached)>| -> Cached {
        let own = turn.iter().zip(KINDS.iter().cycle()).filter(|(_, other)| **other == kind);
        own.map(|((_, cached), _)| *cached).sum()
    };
    turns.iter().map(of_kind).sum()
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
    for (at, kind) in KINDS.iter().enumerate() {
        let own = |turn: &'_ Vec<(Way, Cached)>| {
            let pairs = turn.iter().zip(homes).skip(at).step_by(KINDS.len());
            pairs.filter(|((now, _), (home, _))| now.route == "home" && now.replica == home.replica).count()
        };
        let home: usize = turns[1..].iter().map(own).sum();
        let all = CONVERSATIONS / KINDS.len() * (TURNS - 1);
        assert!(home * 100 >= all * 99, "{kind:?}: {home} of {all} follow-ups went home");
    }
    four.gateway.assert_idle().await;

    // Each question is heard once: what one replica with all the memory finds is all that there is to find.
    let one = start(1, KV_TOKENS * 4).await;
    let alone = converse(&one).await;
    for kind in KINDS {
        let (spread, single) = (cached(&turns, kind).percent(), cached(&alone, kind).percent());
        eprintln!("{kind:?}, cached: {spread:.1} % on four replicas, {single:.1} % on a single one");
        assert!(single > 50.0, "{kind:?}: there is something to find: {single:.1} %");
        assert!(spread > single - 3.0, "{kind:?}: {spread:.1} % cached on four, {single:.1} % on one");
    }
}
