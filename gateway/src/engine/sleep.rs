//! Whether the engine sleeps, as vLLM does in its development mode: `POST /sleep`, `POST /wake_up`, `GET /is_sleeping`.
//! Asleep, it answers its health check and lists its model as before, and fails every request. Decides nothing.

use std::sync::Mutex;
use std::sync::PoisonError;

use tidegate_shared::time::Duration;

/// What is asked of a bed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// To fall asleep.
    Sleep,
    /// To wake up.
    Wake,
    /// Whether it sleeps.
    State,
}

impl Asked {
    /// What `path` asks for; `None` for one that is about something else.
    pub(super) fn by(path: &str) -> Option<Self> {
        match path {
            "/sleep" => Some(Self::Sleep),
            "/wake_up" => Some(Self::Wake),
            "/is_sleeping" => Some(Self::State),
            _ => None,
        }
    }
}

/// The bed of one engine.
#[derive(Debug)]
pub(super) struct Bed {
    asleep: Mutex<bool>,
    wake_time: Duration,
    /// Wakes one at a time, and each takes its time.
    waking: tokio::sync::Mutex<()>,
}

impl Bed {
    /// An engine that is awake, and needs `wake_time` to wake up again; `None` for one that knows no sleep.
    pub(super) fn new(wake_time: Duration, sleepless: bool) -> Option<Self> {
        let (asleep, waking) = (Mutex::new(false), tokio::sync::Mutex::new(()));
        (!sleepless).then_some(Self { asleep, wake_time, waking })
    }

    pub(super) fn is_asleep(&self) -> bool {
        *self.asleep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Falls asleep at once.
    pub(super) fn sleep(&self) {
        self.set(true);
    }

    /// Ends when it is awake.
    pub(super) async fn wake(&self) {
        let _one = self.waking.lock().await;
        if self.is_asleep() {
            tokio::time::sleep(self.wake_time).await;
            self.set(false);
        }
    }

    fn set(&self, asleep: bool) {
        *self.asleep.lock().unwrap_or_else(PoisonError::into_inner) = asleep;
    }
}
