//! How long one concurrency is measured (A1): until its throughput is known well enough, and no longer than a limit.
//!
//! Throughput is counted in slices of time (`work`). Neighbouring slices resemble each other (requests begin and end together), so
//! they are put into few groups, and the spread of the groups' means tells how far the mean of all can be off. Reads no
//! clock: whoever measures says what each slice brought.

use tidegate_shared::time::Duration;

/// Length of a slice.
pub const SLICE: Duration = Duration::from_millis(250);
/// Slices that are measured at least, 2 s of them.
const LEAST: usize = 8;
/// Slices after which noise is waited for no longer, 5 s of them. What is noisy for so long is a machine that others use
/// too: it has another speed a moment later, and many short visits say more of it than a long one.
const PATIENT: usize = 20;
/// Slices that are measured at most, 30 s of them: for requests that take as long.
const MOST: usize = 120;
/// Groups that the slices are put into.
const GROUPS: usize = 8;
/// The standard error that is good enough, in thousandths of the throughput. Two points are then compared to within 3 %
/// or so, which is less than what [`super::search::GAIN`] decides about.
pub const GOOD: u128 = 20;
/// Requests that must have ended, whatever the concurrency.
const LEAST_COMPLETED: u32 = 4;
/// Answers that must have begun before their 95th percentile is compared with a goal.
const LEAST_BEGUN: usize = 20;

/// One step under way.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Requests at a time.
    pub concurrency: u32,
    /// Whether latencies are compared with a goal.
    pub goal: bool,
}

impl Step {
    /// Whether that is enough: throughput is known well, or is not going to be; every place has seen the end of a request, so that prompts and
    /// answers are in the mix that they have in the long run, and a percentile has values behind it; or the limit is
    /// reached.
    /// `slices`: what each brought so far, in whatever unit.
    pub fn is_enough(&self, slices: &[u64], completed: u32, begun: usize) -> bool {
        let whole = completed >= self.concurrency.max(LEAST_COMPLETED);
        let known = !self.goal || begun >= LEAST_BEGUN;
        let count = slices.len();
        let exact = count >= PATIENT || error(slices).is_some_and(|error| error <= GOOD);
        count >= MOST || (count >= LEAST && exact && whole && known)
    }
}

/// How far the throughput is off, in thousandths of it (one standard error); `None` while nothing came or too little
/// was seen.
pub fn error(slices: &[u64]) -> Option<u128> {
    let each = slices.len() / GROUPS;
    // What does not fill the groups is left out at the front, where things may not have settled.
    let kept = slices.get(slices.len() - each * GROUPS..)?;
    if each == 0 {
        return None;
    }
    let sums = kept.chunks(each).map(|group| group.iter().map(|tokens| u128::from(*tokens)).sum());
    let sums: Vec<u128> = sums.collect();
    let (count, all) = (GROUPS as u128, sums.iter().sum::<u128>());
    if all == 0 {
        return None;
    }
    let spread: u128 = sums.iter().map(|sum| (sum * count).abs_diff(all).pow(2)).sum();
    Some((spread * 1_000_000 / (count * (count - 1) * all * all)).isqrt())
}

#[cfg(test)]
mod tests {
    use tidegate_shared::rng::Rng;

    use super::*;

    /// Slices until it is enough, when each has what `tokens` says and one request ends in each.
    fn length(concurrency: u32, goal: bool, mut tokens: impl FnMut(usize) -> u64) -> usize {
        let (step, mut slices) = (Step { concurrency, goal }, Vec::new());
        let ends = |at: usize| u32::try_from(at + 1).expect("few");
        (0..)
            .find(|at| {
                slices.push(tokens(*at));
                step.is_enough(&slices, ends(*at), *at + 1)
            })
            .expect("it ends")
            + 1
    }

    #[test]
    fn a1_a_steady_step_is_short_and_a_noisy_one_is_longer() {
        assert_eq!(length(1, false, |_| 100), LEAST);
        let mut rng = Rng::new(7);
        let noisy = length(1, false, |_| 50 + rng.below(101) as u64);
        assert!((LEAST + 1..=PATIENT).contains(&noisy), "{noisy}");
        let waves = |at| if (at / 5) % 2 == 0 { 0 } else { 1000 };
        assert_eq!(length(1, false, waves), PATIENT, "no longer for noise");
    }

    #[test]
    fn a1_a_step_sees_a_request_end_in_each_place_and_enough_first_tokens_for_a_goal() {
        assert_eq!(length(64, false, |_| 100), 64);
        assert_eq!(length(1, true, |_| 100), LEAST_BEGUN);
    }

    #[test]
    fn a1_no_step_goes_on_for_ever() {
        assert_eq!(length(1000, false, |_| 100), MOST);
        assert_eq!(length(1000, true, |_| 0), MOST);
    }

    #[test]
    fn a1_the_error_is_the_standard_error_of_the_mean() {
        let slices: Vec<u64> = (0..GROUPS).map(|at| if at % 2 == 0 { 90 } else { 110 }).collect();
        // A deviation of 10.69 over the root of 8, of 100.
        assert_eq!((error(&slices), error(&[])), (Some(37), None));
    }
}
