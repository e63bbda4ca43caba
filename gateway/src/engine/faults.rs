//! Faults on command: what the engine is told to do wrong, for tests and demos.
//!
//! `POST /faults` with a JSON object replaces the faults in force, `{}` ends them, `GET /faults` shows them. A
//! request takes the faults in force when it arrives and keeps them. Decides which request misbehaves; never
//! touches the model: an answer that stalls or is cut costs the engine what it would have cost.

use serde::{Deserialize, Serialize};
use tidegate_shared::time::Duration;
use tokio::sync::watch;

/// What `tidegate engine --help` says about faults.
pub(super) const HELP: &str = r#"Faults on command: POST /faults with a JSON object; {} ends them, GET /faults shows them.
  "health": "ok" | "fail" | "slow"   /health answers 500, or only after 10 s
  "refuse": STATUS                   requests get this error status (400 to 599)
  "stall_after_tokens": N            the answer stops after N tokens, the connection stays
  "die_after_tokens": N              the connection is cut after N tokens; 0: before the head
  "error_after_tokens": N            the stream carries an error event after N tokens and ends
  "cut_mid_event": true              with die_after_tokens: cuts inside an event
  "count": N                         only the next N requests (default: all)
  "exit": true                       the process ends at once, exit status 1
Answers that are not streamed stall, or are cut, before their head."#;

/// How long `/health` takes under the fault `slow`, unless it is lifted.
pub(super) const SLOW_HEALTH: Duration = Duration::from_secs(10);

/// The state of `/health`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Health {
    /// 200 once loaded.
    #[default]
    Ok,
    /// 500.
    Fail,
    /// The answer takes 10 s, or until the fault is lifted.
    Slow,
}

/// The faults in force, in the shape of `POST /faults`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Faults {
    /// How `/health` answers; not counted by `count`.
    pub(super) health: Health,
    /// Answer with this status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refuse: Option<u16>,
    /// Fall silent after so many tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stall_after_tokens: Option<u32>,
    /// Cut the connection after so many tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) die_after_tokens: Option<u32>,
    /// End with an error event after so many tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error_after_tokens: Option<u32>,
    /// Cut inside an event.
    pub(super) cut_mid_event: bool,
    /// Requests that still take the faults; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) count: Option<u32>,
    /// The process ends now.
    pub(super) exit: bool,
}

/// What to do instead of going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misdeed {
    /// Fall silent.
    Stall,
    /// Cut the connection, inside an event if true.
    Die(bool),
    /// Say that something went wrong.
    Fail,
}

impl Faults {
    /// The first thing that goes wrong: after how many tokens, and what.
    pub(super) fn misdeed(&self) -> Option<(u32, Misdeed)> {
        let planned = [
            (self.stall_after_tokens, Misdeed::Stall),
            (self.die_after_tokens, Misdeed::Die(self.cut_mid_event)),
            (self.error_after_tokens, Misdeed::Fail),
        ];
        planned.into_iter().filter_map(|(after, what)| Some((after?, what))).min_by_key(|(after, _)| *after)
    }
}

/// The faults of one engine.
#[derive(Debug, Default)]
pub(super) struct Switchboard(watch::Sender<Faults>);

impl Switchboard {
    /// The faults in force.
    pub(super) fn show(&self) -> Faults {
        self.0.borrow().clone()
    }

    /// Replaces them.
    ///
    /// # Errors
    /// A sentence on what is wrong with `body`.
    pub(super) fn set(&self, body: &[u8]) -> Result<Faults, String> {
        let faults: Faults =
            serde_json::from_slice(body).map_err(|error| format!("not a set of faults: {error}"))?;
        if let Some(status) = faults.refuse.filter(|status| !(400..600).contains(status)) {
            return Err(format!("refuse is {status}; allowed are 400 to 599"));
        }
        self.0.send_replace(faults.clone());
        Ok(faults)
    }

    /// The faults that the request arriving now is to have.
    pub(super) fn take(&self) -> Faults {
        let mut taken = Faults::default();
        // Never "modified": whoever watches waits for new faults, not for a count that runs down.
        self.0.send_if_modified(|faults| {
            match &mut faults.count {
                Some(0) => return false,
                Some(left) => *left -= 1,
                None => {}
            }
            taken = faults.clone();
            false
        });
        taken
    }

    /// Ends when `/health` is not slow, or no longer.
    pub(super) async fn prompt_health(&self) {
        // Fails only when the sender is gone, and the sender is `self`.
        let _ = self.0.subscribe().wait_for(|faults| faults.health != Health::Slow).await;
    }
}
