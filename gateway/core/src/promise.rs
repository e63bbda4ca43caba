//! What refused clients were told (Q2): `Retry-After` is a promise, and a promise takes a place in the line.
//!
//! Clients that are refused at the same moment are told different times, one behind the other, so that they do not
//! come back together; and one that comes back when told is known by its fingerprint and stands where it would have
//! stood when it first came. A promise that nobody redeems lapses.

use std::collections::{BTreeMap, VecDeque};

use tidegate_shared::time::{Duration, Instant};

/// How long after its time a promise is kept.
const GRACE: Duration = Duration::from_secs(5);
/// Promises kept; the oldest lapse first.
const MAX: usize = 16_384;

#[derive(Clone, Copy, Debug)]
struct Promise {
    arrived: Instant,
    due: Instant,
    serial: u64,
}

/// The open promises.
#[derive(Debug, Default)]
pub struct Promises {
    open: BTreeMap<u64, Vec<Promise>>,
    /// In order of making: fingerprint and serial.
    made: VecDeque<(u64, u64)>,
    count: u32,
    serial: u64,
}

impl Promises {
    /// Clients that were told to come back and have not come yet.
    pub fn outstanding(&self) -> u32 {
        self.count
    }

    /// The client with `fingerprint`, first seen at `arrived`, was told to come back at `due`.
    pub fn make(&mut self, fingerprint: u64, arrived: Instant, due: Instant) {
        self.open.entry(fingerprint).or_default().push(Promise { arrived, due, serial: self.serial });
        self.made.push_back((fingerprint, self.serial));
        self.serial += 1;
        self.count += 1;
        if self.made.len() > MAX {
            self.drop_oldest();
        }
    }

    /// A request came. When it keeps an appointment (not before its time; a tenth early is on time), the answer is when
    /// the client first came. A client that comes too early is a new one.
    pub fn redeem(&mut self, now: Instant, fingerprint: u64) -> Option<Instant> {
        self.lapse(now);
        let kept = self.open.get_mut(&fingerprint)?;
        let at = kept.iter().position(|promise| {
            let early = promise.due.since(promise.arrived) / 10;
            promise.due - early <= now
        })?;
        let promise = kept.remove(at);
        if kept.is_empty() {
            self.open.remove(&fingerprint);
        }
        self.count -= 1;
        Some(promise.arrived)
    }

    /// Forgets promises whose time is long over.
    fn lapse(&mut self, now: Instant) {
        while let Some(&(fingerprint, serial)) = self.made.front() {
            let open = self.open.get(&fingerprint).and_then(|kept| kept.iter().find(|p| p.serial == serial));
            match open {
                Some(promise) if promise.due + GRACE > now => break,
                _ => self.drop_oldest(),
            }
        }
    }

    fn drop_oldest(&mut self) {
        let Some((fingerprint, serial)) = self.made.pop_front() else { return };
        let Some(kept) = self.open.get_mut(&fingerprint) else { return };
        let before = kept.len();
        kept.retain(|promise| promise.serial != serial);
        self.count -= u32::from(kept.len() < before);
        if kept.is_empty() {
            self.open.remove(&fingerprint);
        }
    }
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
        promises.make(7, at(100), at(2100));
        promises.make(8, at(200), at(3100));
        assert_eq!(promises.redeem(at(500), 7), None, "too early");
        assert_eq!(promises.redeem(at(2100), 7), Some(at(100)));
        assert_eq!(promises.redeem(at(2100), 7), None, "once");
        assert_eq!(promises.outstanding(), 1);
    }

    #[test]
    fn q2_the_same_question_twice_is_two_promises() {
        let mut promises = Promises::default();
        promises.make(7, at(0), at(1000));
        promises.make(7, at(1), at(2000));
        assert_eq!(promises.redeem(at(1500), 7), Some(at(0)));
        assert_eq!(promises.redeem(at(1500), 7), None);
        assert_eq!(promises.redeem(at(2000), 7), Some(at(1)));
        assert_eq!(promises.outstanding(), 0);
    }

    #[test]
    fn q2_promises_lapse_and_are_bounded() {
        let mut promises = Promises::default();
        (0..MAX as u64 + 10).for_each(|i| promises.make(i, at(0), at(1000)));
        assert_eq!(promises.outstanding() as usize, MAX);
        assert_eq!(promises.redeem(at(60_000), 1), None);
        assert_eq!(promises.outstanding(), 0);
        assert!(promises.open.is_empty() && promises.made.is_empty());
    }
}
