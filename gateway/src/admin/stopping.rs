//! What a gateway that is stopping tells, in status, on the page and in the log: what still runs, and until when it may.
//! Stops nothing itself.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_shared::span::whole;
use tidegate_shared::time::Instant;

use super::Watched;
use crate::pool::Pool;
use crate::server::{Gateway, Stage};

/// How often the log says again what still runs.
const AGAIN: Duration = Duration::from_secs(30);

/// A gateway that is stopping.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoppingStatus {
    /// Requests that run or wait, over all deployments.
    pub left: u32,
    /// Seconds until what still runs then is cut.
    pub cut_in_s: f64,
    /// The same as a sentence.
    pub text: String,
}

impl StoppingStatus {
    fn new(left: u32, cut_in: Duration, cutting: bool) -> Self {
        let time = whole(cut_in);
        let text = match left {
            0 => "no request is left; replicas are stopped".to_owned(),
            _ if cutting => "requests are cut; replicas are stopped".to_owned(),
            1 => {
                format!("no new connection is taken; 1 request is left, and is cut in {time} if it runs then")
            }
            _ => format!(
                "no new connection is taken; {left} requests are left, and what runs in {time} is cut"
            ),
        };
        Self { left, cut_in_s: cut_in.as_secs_f64(), text }
    }
}

/// Since when the gateway stops; set once.
#[derive(Clone, Debug, Default)]
pub(super) struct Since(Arc<OnceLock<Instant>>);

impl Since {
    /// How far the end is; `None` while the gateway serves.
    pub(super) fn status(&self, gateway: &Gateway, watched: &[Watched]) -> Option<StoppingStatus> {
        self.told(gateway, watched.iter().map(|one| &*one.pool))
    }

    fn told<'a>(&self, gateway: &Gateway, pools: impl Iterator<Item = &'a Pool>) -> Option<StoppingStatus> {
        let stage = *gateway.stage.borrow();
        if stage == Stage::Serving {
            return None;
        }
        let now = gateway.clock.now();
        let until = *self.0.get_or_init(|| now) + gateway.limits.shutdown;
        let seen = pools.map(Pool::observe);
        let left = seen.map(|seen| seen.in_flight.saturating_add(seen.queued)).fold(0, u32::saturating_add);
        Some(StoppingStatus::new(left, until.since(now), stage == Stage::Cutting))
    }

    /// Tells the log, from the first signal on and again while something runs.
    pub(super) async fn tell(self, gateway: Arc<Gateway>, pools: Vec<Arc<Pool>>) {
        let mut stage = gateway.stage.clone();
        if stage.wait_for(|stage| *stage != Stage::Serving).await.is_err() {
            return;
        }
        let mut again = tokio::time::interval(AGAIN);
        loop {
            again.tick().await;
            let Some(status) = self.told(&gateway, pools.iter().map(|pool| &**pool)) else { return };
            if status.left == 0 || *gateway.stage.borrow() == Stage::Cutting {
                return;
            }
            tracing::info!("stopping: {}", status.text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_with_the_time_that_it_has() {
        let text = |left, cutting| StoppingStatus::new(left, Duration::from_secs(90), cutting).text;
        assert_eq!(text(0, false), "no request is left; replicas are stopped");
        assert_eq!(
            text(1, false),
            "no new connection is taken; 1 request is left, and is cut in 1 m 30 s if it runs then"
        );
        assert_eq!(
            text(7, false),
            "no new connection is taken; 7 requests are left, and what runs in 1 m 30 s is cut"
        );
        assert_eq!(text(7, true), "requests are cut; replicas are stopped");
    }
}
