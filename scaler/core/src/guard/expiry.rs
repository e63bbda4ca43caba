//! How long what a queue has shown holds. For [`FIRST`] since it was last so, and then one fewer may be tried. If the queue
//! comes back, it holds twice as long, up to [`LONGEST`]: so that a constant load is tried ever more seldom, and a load that
//! has changed is found out. Once the load has shown that it was wrong, and for as long, the first time holds again. It never knows what was shown, and counts watched time only (C3, C4).

use tidegate_shared::time::Duration;

/// How long a queue is remembered at first, since it was last seen.
pub const FIRST: Duration = Duration::from_secs(2 * 60 * 60);
/// And how long at most, after it has come back again and again.
pub const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// See the module. Every `now` is watched time.
#[derive(Clone, Copy, Debug)]
pub struct Expiry {
    /// How long what was shown holds.
    pause: Duration,
    /// When it was last so.
    at: Option<Duration>,
    /// Since when it is tried whether fewer would do than there were then.
    tried: Option<(Duration, u32)>,
    /// Since when it is known to be wrong.
    wrong: Option<Duration>,
}

impl Default for Expiry {
    fn default() -> Self {
        Self { pause: FIRST, at: None, tried: None, wrong: None }
    }
}

impl Expiry {
    /// A queue has shown something of so many `replicas`. A try has failed only where they are fewer than before it: a peak
    /// that comes before anything was removed says nothing of it.
    pub fn shown(&mut self, now: Duration, replicas: u32) {
        if self.tried.take().is_some_and(|(_, before)| replicas < before) {
            self.pause = self.pause.saturating_mul(2).min(LONGEST);
        }
        (self.at, self.wrong) = (Some(now), None);
    }

    /// The same queue is still there.
    pub fn lasts(&mut self, now: Duration) {
        self.at = Some(now);
    }

    /// What was shown is known to be wrong.
    pub fn end(&mut self, now: Duration) {
        if self.at.take().is_some() {
            self.wrong = Some(now);
        }
    }

    /// For how long nobody has queued so.
    pub fn age(&self, now: Duration) -> Duration {
        self.at.map_or(Duration::ZERO, |at| now.saturating_sub(at))
    }

    /// Whether what was shown ends now, and is tried from now on, with so many `replicas` still; once that went well for as
    /// long, the first pause holds again.
    pub fn ends(&mut self, now: Duration, replicas: u32) -> bool {
        let is_over = |since: Duration| now.saturating_sub(since) >= self.pause;
        if self.at.is_some_and(is_over) {
            (self.at, self.tried) = (None, Some((now, replicas)));
            return true;
        }
        if self.tried.is_some_and(|(since, _)| is_over(since)) || self.wrong.is_some_and(is_over) {
            (self.tried, self.wrong, self.pause) = (None, None, FIRST);
        }
        false
    }

    /// Whether it is tried whether fewer would do.
    pub fn is_trying(&self) -> bool {
        self.tried.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a4_b5_the_pause_doubles_with_each_queue_that_a_try_brings_up_to_a_day() {
        let (mut expiry, mut now, mut pauses) = (Expiry::default(), Duration::ZERO, Vec::new());
        for _ in 0..7 {
            expiry.shown(now, 2);
            let from = now;
            while !expiry.ends(now, 3) {
                now = now.saturating_add(Duration::from_secs(60));
            }
            pauses.push(now.saturating_sub(from).as_secs() / 3600);
        }
        assert_eq!(pauses, [2, 4, 8, 16, 24, 24, 24]);
    }

    /// Watched seconds from `now` until what was shown then ends.
    fn lasts(expiry: &mut Expiry, now: &mut Duration) -> u64 {
        let from = *now;
        expiry.shown(from, 2);
        while !expiry.ends(*now, 3) {
            *now = now.saturating_add(Duration::from_secs(60));
        }
        now.saturating_sub(from).as_secs()
    }

    #[test]
    fn a4_b5_what_was_wrong_is_believed_for_the_first_time_again_after_as_long() {
        for (quiet, hours) in [(7, 8), (8, 2)] {
            let (mut expiry, mut now) = (Expiry::default(), Duration::ZERO);
            (0..2).for_each(|_| {
                lasts(&mut expiry, &mut now);
            });
            expiry.shown(now, 2);
            expiry.end(now);
            for _ in 0..quiet * 60 {
                now = now.saturating_add(Duration::from_secs(60));
                expiry.end(now);
                assert!(!expiry.ends(now, 3) && !expiry.is_trying());
            }
            assert_eq!(lasts(&mut expiry, &mut now), hours * 3600, "{quiet} h");
        }
    }

    #[test]
    fn a4_b5_a_queue_before_anything_was_removed_is_no_failed_try() {
        for (replicas, hours) in [(3, 2), (2, 4)] {
            let (mut expiry, mut now) = (Expiry::default(), Duration::ZERO);
            lasts(&mut expiry, &mut now);
            expiry.shown(now, replicas);
            assert!(!expiry.is_trying());
            assert_eq!(lasts(&mut expiry, &mut now), hours * 3600, "on {replicas}");
        }
    }
}
