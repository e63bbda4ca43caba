//! What a gateway must not forget over `kill -9`: the size that was set, the credit that was added, and what was spent.
//!
//! Remembers what the gateway said is saved, and compares. Kills nothing.

use std::time::Instant;

use hyper::Method;
use serde_json::{Value, json};

use crate::client::Client;
use crate::deadline::eventually;
use crate::gateway::Gateway;

/// What a replica of these tests costs in an hour: a dollar a second.
pub const PRICE: u32 = 3600;
/// What may be missing of a replica that ended while nobody looked: its account is kept when the fleet changes and each
/// second. A busy machine may take two more over it.
const UNSEEN: f64 = 3.0;
/// What may be missing of it of what the check after a restart saw: a later evaluation than the first, which keeps.
const LATER: f64 = 1.0;

/// See the module.
#[derive(Debug)]
pub struct Books {
    began: Instant,
    /// The most replicas that there ever are.
    most: u32,
    min: u32,
    added: i64,
    spent: f64,
    /// What was spent when the last restart was checked: that account was kept at once.
    kept: f64,
}

impl Books {
    /// Nothing was changed yet, in a fleet of at most `most` replicas.
    pub fn new(most: u32) -> Self {
        Self { began: Instant::now(), most, min: 0, added: 0, spent: 0.0, kept: 0.0 }
    }

    /// Sets `min` and adds a dollar; both are said to be saved.
    pub async fn change(&mut self, gateway: &Gateway, min: u32) {
        for (method, path, body) in [
            (Method::PUT, "/deployments/chat/sizing", json!({"min": min})),
            (Method::POST, "/credit", json!({"amount": 1})),
        ] {
            let answer = Client::h1(gateway.admin).send(method, path, &[], body.to_string()).await;
            assert_eq!((answer.status, &answer.json()["unsaved"]), (200, &Value::Null), "{:?}", answer.body);
        }
        (self.min, self.added) = (min, self.added + 1);
    }

    /// Notes what was spent, right before a kill.
    pub async fn look(&mut self, gateway: &Gateway) {
        self.spent = spent(&gateway.status().await);
    }

    /// After the restart: the size and the credit as they were said to be saved, and of the money neither less than what
    /// can have gone unseen, nor more than the whole fleet can have cost, nor anything unaccounted for.
    pub async fn check(&mut self, gateway: &Gateway) {
        let all = f64::from(self.most);
        let least = (self.spent - all * UNSEEN).max(self.kept - all * LATER);
        // Credit is told from the moment that the account goes on. It has caught up then: nothing is left to wait for.
        let status = first_status(gateway, "the account goes on", |money| !money["credit"].is_null()).await;
        let (found, seen) = (spent(&status), self.spent);
        assert!(found >= least, "{found} spent after the restart, {seen} before, {least} at least");
        self.kept = found;
        let most = self.began.elapsed().as_secs_f64() * f64::from(self.most);
        assert!(found <= most, "{found} spent of {most} at most");
        let chat = &status["deployments"][0];
        let min = &chat["sizing"]["min"];
        assert_eq!((&min["value"], &min["from"]), (&self.min.into(), &"set".into()), "{chat}");
        assert_eq!(status["records"]["trouble"], Value::Null, "{status}");
        let credit = Client::h1(gateway.admin).get("/credit").await.json();
        assert_eq!(credit["added"], self.added, "{credit}");
    }
}

/// What the first deployment has spent, in dollars.
pub fn spent(status: &Value) -> f64 {
    status["deployments"][0]["money"]["spent"].as_f64().expect("what was spent")
}

/// The first status in which the money of the first deployment is as `wanted`. What must hold from then on is to be
/// checked of this one: whatever is forgotten would be spent anew by the next.
pub async fn first_status(gateway: &Gateway, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually(what, async || {
        let status = gateway.status().await;
        let money = &status["deployments"][0]["money"];
        if wanted(money) { Ok(status) } else { Err(money.to_string()) }
    })
    .await
}

/// How many kills a suite makes; `TIDEGATE_KILLS` asks for more.
pub fn kills() -> u32 {
    std::env::var("TIDEGATE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}
