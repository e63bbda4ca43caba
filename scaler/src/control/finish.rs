//! The end of a control loop: replicas are stopped or left, and the account is kept one last time.

use tidegate_shared::id::ReplicaId;
use tokio::time::{sleep, timeout};

use super::{CALLS_LIMIT, Control, Shutdown, list};
use crate::house::KEEP_EVERY;

impl Control {
    pub(super) async fn finish(mut self, how: Shutdown) -> Vec<ReplicaId> {
        let within = match how {
            Shutdown::Stop { within } if self.planner.is_some() => within,
            Shutdown::Stop { .. } | Shutdown::Keep => {
                let calls = async { while self.calls.join_next().await.is_some() {} };
                if timeout(CALLS_LIMIT, calls).await.is_err() {
                    self.log.left_busy(CALLS_LIMIT);
                }
                self.calls.detach_all();
                self.keep_account();
                return Vec::new();
            }
        };
        if timeout(within, self.stop_all()).await.is_err() {
            self.log.left(&self.book.ids(), within);
        }
        self.calls.detach_all();
        self.keep_account();
        self.book.ids()
    }

    /// What is stopped cost until now, and what is left goes on costing (M2).
    fn keep_account(&self) {
        if self.planner.is_some() {
            let seen = self.book.refine(self.fleet.observe());
            self.house.close(&self.name, &self.book.with_tries(&seen), seen.at);
        }
    }

    /// Stops everything in parallel, as often as it takes.
    async fn stop_all(&mut self) {
        if let Ok(instances) = list(&*self.provider).await {
            self.resume(&instances);
            let news = self.book.take_in(&instances, self.now());
            self.tell_all(news);
        }
        self.book.end_all("the gateway shuts down");
        while !self.book.is_empty() {
            self.call_stops(self.now());
            tokio::select! {
                Some(call) = self.calls.join_next() => self.settle(call),
                () = sleep(KEEP_EVERY) => self.house.keep(&self.name, self.now()),
            }
        }
    }
}
