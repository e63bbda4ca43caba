//! What refused clients were told (Q2): `Retry-After` is a promise, and a promise takes a place in the line.
//!
//! Clients that are refused at the same moment are told different times, one behind the other, so that they do not
//! come back together; and one that comes back when told is known by its fingerprint and stands where it would have
//! stood when it first came. A promise that nobody redeems lapses; how often that happens tells how many of the open
//! ones to reckon with, for some clients never come back.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_shared::request::Priority;
use tidegate_shared::time::{Duration, Instant};

/// How long after its time a promise is kept.
const GRACE: Duration = Duration::from_secs(5);
/// Promises kept; those due first lapse first.
const MAX: usize = 16_384;
/// Promises that the share of kept ones is learnt from, roughly; and how many are taken for kept at the start.
const LEARNT: u32 = 256;
const TRUSTED: u32 = 8;

/// Fingerprint, time, serial: in order of time among those who ask the same.
type Key = (u64, Instant, u64);

/// A promise that was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// When the client first came.
    pub arrived: Instant,
    /// How long it stayed away, from its first arrival to the time that it was told last.
    pub away: Duration,
}

impl Kept {
    /// For a client that was promised nothing.
    pub fn new(arrived: Instant) -> Self {
        Self { arrived, away: Duration::ZERO }
    }
}

/// The open promises.
#[derive(Debug, Default)]
pub struct Promises {
    /// When each client first came, and how urgent it is.
    open: BTreeMap<Key, (Instant, Priority)>,
    by_due: BTreeSet<(Instant, Key)>,
    /// How many of each priority.
    by_priority: [usize; Priority::ALL.len()],
    serial: u64,
    trust: Trust,
}

/// Promises that were kept and that lapsed, of late.
#[derive(Clone, Copy, Debug, Default)]
struct Trust {
    kept: u32,
    lapsed: u32,
}

impl Trust {
    fn learn(&mut self, kept: bool) {
        *(if kept { &mut self.kept } else { &mut self.lapsed }) += 1;
        if self.kept + self.lapsed >= LEARNT {
            self.kept /= 2;
            self.lapsed /= 2;
        }
    }

    /// How many of `open` promises can be expected to be kept.
    fn expects(self, open: usize) -> u32 {
        let open = u64::try_from(open).unwrap_or(u64::MAX);
        let kept = u64::from(self.kept + TRUSTED);
        let expected = open * kept / (kept + u64::from(self.lapsed));
        u32::try_from(expected).unwrap_or(u32::MAX)
    }
}

/// What the coming of a request makes of the promises.
#[derive(Clone, Copy, Debug)]
pub struct Coming {
    /// The promise that it keeps.
    pub kept: Option<Kept>,
    /// Clients as urgent that can be expected to come back, from then on.
    pub expected: u32,
    /// Promises whose time is long over.
    over: usize,
    /// The promise that it keeps or forfeits.
    ends: Option<Key>,
    trust: Trust,
}

impl Promises {
    /// Clients that were told to come back and can be expected to.
    pub fn expected(&self) -> u32 {
        self.trust.expects(self.by_due.len())
    }

    /// Those of them that are at least as urgent as `priority`.
    pub fn expected_before(&self, priority: Priority) -> u32 {
        self.trust.expects(self.open_before(priority))
    }

    fn open_before(&self, priority: Priority) -> usize {
        self.by_priority.iter().take(priority as usize + 1).sum()
    }

    /// The same at `now`, those not counted whose time is long over.
    pub fn expected_at(&self, now: Instant) -> u32 {
        let over = self.over(now);
        let open = self.by_due.len();
        let left = u128::from(self.expected()) * (open - over) as u128 / (open.max(1)) as u128;
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// The client with `fingerprint`, first seen at `arrived`, was told to come back at `due`.
    pub fn make(&mut self, fingerprint: u64, priority: Priority, arrived: Instant, due: Instant) {
        if self.by_due.len() >= MAX {
            self.drop_first();
        }
        let key = (fingerprint, due, self.serial);
        self.open.insert(key, (arrived, priority));
        self.by_due.insert((due, key));
        self.serial += 1;
        if let Some(count) = self.by_priority.get_mut(priority as usize) {
            *count += 1;
        }
    }

    /// If a request came now: would it keep an appointment, and what would that change? A client that comes too early is
    /// a new one; but a tenth early is on time, where nobody else who asks the same was told to come. `retry` is what the client says, if it says anything:
    /// one that is new takes nobody's place, and one that is early has forfeited its own.
    pub fn foresee(&self, now: Instant, fingerprint: u64, priority: Priority, retry: Option<bool>) -> Coming {
        let over = self.over(now);
        let mut trust = self.trust;
        (0..over).for_each(|_| trust.learn(false));
        let (ends, kept) = match self.appointment(now, fingerprint, retry) {
            Some((key, kept)) => (Some(key), kept),
            None => (None, None),
        };
        if kept.is_some() {
            trust.learn(true);
        }
        let gone = self.by_due.iter().take(over).map(|(_, key)| key).chain(&ends);
        let urgent = |key: &&Key| self.open.get(*key).is_some_and(|(_, known)| *known <= priority);
        let open = self.open_before(priority).saturating_sub(gone.filter(urgent).count());
        Coming { kept, expected: trust.expects(open), over, ends, trust }
    }

    /// The request came: what was foreseen happens.
    pub fn redeem(&mut self, now: Instant, fingerprint: u64, retry: Option<bool>) -> Option<Kept> {
        let coming = self.foresee(now, fingerprint, Priority::Low, retry);
        (0..coming.over).for_each(|_| self.drop_first());
        coming.ends.into_iter().for_each(|key| self.close(key));
        self.trust = coming.trust;
        coming.kept
    }

    /// The promise that a request keeps or forfeits by coming now.
    fn appointment(
        &self,
        now: Instant,
        fingerprint: u64,
        retry: Option<bool>,
    ) -> Option<(Key, Option<Kept>)> {
        if retry == Some(false) {
            return None;
        }
        let all = (fingerprint, Instant::ZERO, 0)..=(fingerprint, Instant::NEVER, u64::MAX);
        let mut same = self.open.range(all).skip_while(|((_, due, _), _)| is_over(*due, now));
        let (key, arrived) = same.next().map(|(key, (arrived, _))| (*key, *arrived))?;
        let (_, due, _) = key;
        let away = due.since(arrived);
        let alone = same.next().is_none();
        let early = if alone { away / 10 } else { Duration::ZERO };
        let on_time = now >= due - early;
        let kept = on_time.then_some(Kept { arrived, away });
        (on_time || (alone && retry == Some(true))).then_some((key, kept))
    }

    /// Promises whose time is long over.
    fn over(&self, now: Instant) -> usize {
        self.by_due.iter().take_while(|(due, ..)| is_over(*due, now)).count()
    }

    fn drop_first(&mut self) {
        if let Some(&(_, key)) = self.by_due.first() {
            self.close(key);
        }
    }

    fn close(&mut self, key: Key) {
        let (_, due, _) = key;
        self.by_due.remove(&(due, key));
        let closed = self.open.remove(&key);
        if let Some(count) = closed.and_then(|(_, priority)| self.by_priority.get_mut(priority as usize)) {
            *count -= 1;
        }
    }
}

fn is_over(due: Instant, now: Instant) -> bool {
    due + GRACE <= now
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1000)
    }

    #[test]
    fn q2_who_comes_when_told_keeps_the_place() {
        let mut promises = Promises::default();
        promises.make(7, Priority::Normal, at(100), at(2100));
        promises.make(8, Priority::Normal, at(200), at(3100));
        assert_eq!(promises.redeem(at(500), 7, None), None, "too early");
        let kept = Kept { arrived: at(100), away: Duration::from_secs(2) };
        assert_eq!(promises.redeem(at(2100), 7, None), Some(kept));
        assert_eq!(promises.redeem(at(2100), 7, None), None, "once");
        assert_eq!(promises.expected(), 1);
        assert!(promises.redeem(at(2850), 8, None).is_some(), "a tenth early is on time");
    }

    #[test]
    fn q2_the_same_question_twice_is_two_promises() {
        let mut promises = Promises::default();
        promises.make(7, Priority::Normal, at(0), at(1000));
        promises.make(7, Priority::Normal, at(1), at(2000));
        assert_eq!(promises.redeem(at(950), 7, None), None, "of several, whoever is early is somebody else");
        let mut redeem = |now| promises.redeem(at(now), 7, None).map(|kept| kept.arrived);
        assert_eq!(redeem(1500), Some(at(0)));
        assert_eq!(redeem(1500), None);
        assert_eq!(redeem(2000), Some(at(1)));
        assert_eq!(promises.expected(), 0);
    }

    #[test]
    fn q1_whoever_is_less_urgent_takes_nobodys_time() {
        let mut promises = Promises::default();
        promises.make(1, Priority::High, at(0), at(1000));
        (2..4).for_each(|n| promises.make(n, Priority::Normal, at(0), at(1000)));
        (4..8).for_each(|n| promises.make(n, Priority::Low, at(0), at(1000)));
        let before = |promises: &Promises| Priority::ALL.map(|priority| promises.expected_before(priority));
        assert_eq!(before(&promises), [1, 3, 7]);
        assert!(promises.redeem(at(1000), 5, None).is_some());
        assert_eq!(before(&promises), [1, 3, 6]);
        promises.redeem(at(60_000), u64::MAX, None);
        assert_eq!(before(&promises), [0; 3]);
    }

    #[test]
    fn q2_promises_lapse_and_are_bounded() {
        let mut promises = Promises::default();
        (0..MAX as u64 + 10).for_each(|i| promises.make(i, Priority::Normal, at(0), at(1000)));
        assert_eq!(promises.expected() as usize, MAX);
        assert_eq!(promises.redeem(at(60_000), 1, None), None);
        assert_eq!(promises.expected(), 0);
        assert!(promises.open.is_empty() && promises.by_due.is_empty());
    }

    #[test]
    fn q2_clients_that_never_come_back_are_not_reckoned_with() {
        let mut promises = Promises::default();
        for i in 0..100 {
            promises.make(i, Priority::Normal, at(i * 100), at(i * 100 + 1000));
            promises.redeem(at(i * 100), u64::MAX, None);
        }
        (100..200).for_each(|i| promises.make(i, Priority::Normal, at(10_000), at(11_000)));
        promises.redeem(at(10_000), u64::MAX, None);
        assert!(promises.expected() < 40, "{} of 160 or so, as none came so far", promises.expected());
        (100..200).for_each(|i| assert!(promises.redeem(at(11_000), i, None).is_some()));
        (200..300).for_each(|i| promises.make(i, Priority::Normal, at(20_000), at(21_000)));
        assert!(promises.expected() > 50, "{} of 100, as most came of late", promises.expected());
    }

    #[test]
    fn q2_a_client_that_says_that_it_is_new_or_not_is_believed() {
        let mut promises = Promises::default();
        promises.make(7, Priority::Normal, at(0), at(1000));
        assert_eq!(promises.redeem(at(1000), 7, Some(false)), None, "somebody else who asks the same");
        assert!(promises.redeem(at(1000), 7, Some(true)).is_some());
        promises.make(7, Priority::Normal, at(0), at(70_000));
        assert_eq!(promises.redeem(at(500), 7, Some(true)), None, "too early");
        assert_eq!(promises.expected(), 0, "and not to be expected again");
    }
}
