//! What a step brought, slice by slice (A1): the tokens of a request count evenly over the time that it took, with its prompt and
//! its wait. Counted when they come, a prompt at work would look like a pause, and what follows like a burst; and a step of few
//! requests would be off by what its ends cut from them. Reads no clock.

use tidegate_shared::time::{Duration, Instant};

/// Parts that a token is counted in.
pub const PARTS: u64 = 1000;

/// One request, as far as it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it was sent.
    pub sent: Instant,
    /// When its answer began.
    pub first: Option<Instant>,
    /// Tokens of the answer that have come.
    pub tokens: u64,
    /// Tokens that the answer is expected to have.
    pub whole: u64,
}

/// The work of one step.
#[derive(Clone, Debug)]
pub struct Work {
    /// Where the slices end; the first begins at the first of these.
    bounds: Vec<Instant>,
    /// Parts of tokens in each slice, of requests that have ended.
    ended: Vec<u64>,
    /// Tokens of all that have ended, and the time that they took.
    sums: (u64, Duration),
    /// The same with those that have not.
    all: Vec<u64>,
}

impl Work {
    /// Counts from now on.
    pub fn begin(now: Instant) -> Self {
        Self { bounds: vec![now], ended: Vec::new(), sums: (0, Duration::ZERO), all: Vec::new() }
    }

    /// A slice ends now. Since the last one `ended`, each at its time; `open` are at work.
    pub fn slice(&mut self, now: Instant, ended: &[(Request, Instant)], open: &[Request]) {
        self.bounds.push(now);
        self.ended.push(0);
        for (request, end) in ended {
            let took = end.since(request.sent);
            self.sums = (self.sums.0 + request.tokens, self.sums.1 + took);
            spread(&self.bounds, request.sent, *end, request.tokens * PARTS, &mut self.ended);
        }
        self.all.clone_from(&self.ended);
        for request in open {
            let come = self.come(request, now);
            spread(&self.bounds, request.sent, now, come, &mut self.all);
        }
    }

    /// Parts of tokens in each slice.
    pub fn slices(&self) -> &[u64] {
        &self.all
    }

    /// Tokens in all of them.
    pub fn tokens(&self) -> u64 {
        self.all.iter().sum::<u64>() / PARTS
    }

    /// Parts of its tokens that a request has earned by now, if the rest comes as fast as what came of its answer; before that
    /// begins, as those that have ended did on the average.
    fn come(&self, request: &Request, now: Instant) -> u64 {
        let whole = u128::from(request.whole.max(request.tokens)) * u128::from(PARTS);
        let micros = |time: Duration| time.as_micros();
        let since = micros(now.since(request.sent));
        let (earned, of) = match request.first.filter(|_| request.tokens > 0) {
            Some(first) => {
                let rest =
                    micros(now.since(first)) * whole / (u128::from(request.tokens) * u128::from(PARTS));
                (whole * since, micros(first.since(request.sent)) + rest)
            }
            None => (u128::from(self.sums.0) * u128::from(PARTS) * since, micros(self.sums.1)),
        };
        u64::try_from((earned / of.max(1)).min(whole)).unwrap_or(u64::MAX)
    }
}

/// Adds `parts`, which came evenly from `sent` to `end`, to the slices that end at `bounds`.
fn spread(bounds: &[Instant], sent: Instant, end: Instant, parts: u64, slices: &mut [u64]) {
    let took = end.since(sent).as_micros().max(1);
    let until = |at: Instant| {
        let come = u128::from(parts) * at.since(sent).as_micros().min(took) / took;
        u64::try_from(come).unwrap_or(u64::MAX)
    };
    let from = bounds.partition_point(|bound| *bound <= sent).saturating_sub(1);
    for (slice, bounds) in slices.iter_mut().zip(bounds.windows(2)).skip(from) {
        let [begin, close] = *bounds else { break };
        if begin > end {
            break;
        }
        *slice += until(close) - until(begin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn request(sent: u64, first: Option<u64>, tokens: u64) -> Request {
        Request { sent: at(sent), first: first.map(at), tokens, whole: 100 }
    }

    #[test]
    fn a1_a_request_counts_evenly_over_its_time_and_only_what_is_within() {
        let mut work = Work::begin(at(1000));
        // 600 ms for the prompt, 400 for the answer, half of it before the step began.
        work.slice(at(1250), &[], &[request(500, Some(1100), 40)]);
        work.slice(at(1500), &[(request(500, Some(1100), 100), at(1500))], &[]);
        assert_eq!(work.slices(), [25_000, 25_000]);
        work.slice(at(1750), &[], &[]);
        assert_eq!((work.slices(), work.tokens()), (&[25_000, 25_000, 0][..], 50));
    }

    #[test]
    fn a1_what_is_at_work_counts_as_if_it_went_on_so() {
        let mut work = Work::begin(at(0));
        // 200 ms of prompt, then a token in 8 ms: 100 in a second.
        work.slice(at(500), &[], &[request(0, Some(200), 37)]);
        assert_eq!(work.slices(), [49_465], "37 in 300 ms make 100 in 1011 ms");
        // Its end tells better.
        work.slice(at(1000), &[(request(0, Some(200), 100), at(1000))], &[]);
        assert_eq!(work.slices(), [50_000, 50_000]);
        // The next has no token yet: as the one before.
        work.slice(at(1100), &[], &[request(1000, None, 0)]);
        assert_eq!(work.slices(), [50_000, 50_000, 10_000]);
        // However long it takes, it has no more than all.
        work.slice(at(9000), &[], &[request(1000, None, 0)]);
        let come: u64 = work.slices()[2..].iter().sum();
        assert!((99_990..=100_000).contains(&come), "{work:?}");
    }

    #[test]
    fn a1_requests_one_after_the_other_bring_the_same_in_each_slice() {
        let mut work = Work::begin(at(300));
        let ends = (1..=20).map(|index| index * 330);
        let done: Vec<_> = ends.map(|end| (request(end - 330, Some(end - 130), 33), at(end))).collect();
        let mut from = 0;
        for slice in 1..=20 {
            let now = at(300 + slice * 250);
            let count = done[from..].iter().filter(|(_, end)| *end <= now).count();
            let open = done[from + count..].first().map(|(next, _)| *next);
            let open = open.filter(|next| next.sent < now).map(|next| {
                let since = next.first.map_or(0, |first| now.since(first).as_millis().min(130));
                let tokens = u64::try_from(since * 33 / 130).unwrap();
                Request { first: next.first.filter(|_| tokens > 0), tokens, whole: 33, ..next }
            });
            work.slice(now, &done[from..from + count], open.as_slice());
            from += count;
        }
        for slice in work.slices().iter().rev().skip(2) {
            assert!((24_500..=25_500).contains(slice), "{:?}", work.slices());
        }
    }

    #[test]
    fn a1_times_that_make_no_sense_do_no_harm() {
        let mut work = Work::begin(at(1000));
        let odd = request(2000, Some(1500), u64::MAX / 5000);
        work.slice(
            at(1250),
            &[(odd, at(900)), (request(1250, None, 0), at(1250))],
            &[odd, request(1250, None, 0)],
        );
        assert_eq!(work.slices().len(), 1);
    }
}
