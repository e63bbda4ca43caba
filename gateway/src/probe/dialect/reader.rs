//! Takes the figures of one dialect out of its page: sums the series of an engine's parts, and turns away what cannot
//! be true. A figure that is missing is unknown; one that is NaN, infinite, negative or absurd is unknown and counted
//! (G2, C-051). One bad figure spoils no other.

use std::collections::BTreeMap;

use serde_json::Value;
use tidegate_shared::replica::EngineReport;
use tidegate_shared::request::Tokens;

use super::exposition::{self, Sample};
use super::{Names, Reading};

/// What a figure may be at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// Whole, at most a million.
    Requests,
    /// Whole, at most 2^40.
    Tokens,
    /// A share, 0 to 1, with a millionth for what floating point makes of it.
    Share,
    /// Whole, at most 2^53, where `f64` stops being exact.
    Counter,
}

impl Bound {
    /// `value`, unless it cannot be true.
    fn admit(self, value: f64) -> Option<f64> {
        let most = match self {
            Self::Requests => 1e6,
            Self::Tokens => (1_u64 << 40) as f64,
            Self::Counter => (1_u64 << 53) as f64,
            Self::Share => {
                return (-1e-6..=1.0 + 1e-6).contains(&value).then(|| value.clamp(0.0, 1.0));
            }
        };
        ((0.0..=most).contains(&value) && value.fract() == 0.0).then_some(value)
    }
}

/// One figure of each part of an engine: data-parallel ranks, engines behind one server.
pub(super) type Parts<'a> = BTreeMap<&'a str, f64>;

/// Reads one page.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    samples: Vec<Sample<'a>>,
    names: &'a Names,
    errors: u32,
}

impl<'a> Reader<'a> {
    /// Over a page that has samples of the family of `names`; one that has none, or no page, is an error.
    pub(super) fn new(page: Option<&'a [u8]>, names: &'a Names) -> Self {
        let mut reader = Self::lenient(page, names);
        reader.errors = u32::from(reader.samples.is_empty());
        reader
    }

    /// The same where the page may be missing.
    pub(super) fn lenient(page: Option<&'a [u8]>, names: &'a Names) -> Self {
        let mut samples = exposition::samples(page.unwrap_or_default(), names.family);
        // With priorities, SGLang writes each series once more by priority; the one without is the sum.
        samples.retain(|sample| sample.label("priority").is_none_or(str::is_empty));
        Self { samples, names, errors: 0 }
    }

    /// The samples of that name.
    pub(super) fn series(&self, name: &str) -> impl Iterator<Item = &Sample<'a>> {
        self.samples.iter().filter(move |sample| sample.name == name)
    }

    /// Which part of the engine a sample is about.
    pub(super) fn part(&self, sample: &Sample<'a>) -> &'a str {
        sample.label(self.names.part).unwrap_or_default()
    }

    /// A figure by part, under the first of these names that the page has. Several series of one part (the ranks of a
    /// tensor-parallel group, say) tell the same thing; the largest counts.
    pub(super) fn parts(&mut self, names: &[&str], bound: Bound) -> Option<Parts<'a>> {
        let name = names.iter().find(|name| self.series(name).next().is_some())?;
        let mut parts = Parts::new();
        let mut add = |sample: &Sample<'a>| -> Option<()> {
            let value = bound.admit(sample.value)?;
            let part = parts.entry(self.part(sample)).or_insert(value);
            *part = part.max(value);
            Some(())
        };
        let good = self.series(name).try_for_each(|sample| add(sample).ok_or(()));
        self.errors += u32::from(good.is_err());
        good.ok().map(|()| parts)
    }

    /// Like [`Reader::parts`], summed.
    fn sum(&mut self, names: &[&str], bound: Bound) -> Option<u64> {
        self.parts(names, bound).and_then(|parts| whole(parts.values().sum()))
    }

    /// A counter, summed over all its series.
    pub(super) fn counter(&mut self, names: &[&str]) -> Option<u64> {
        let name = names.iter().find(|name| self.series(name).next().is_some())?;
        let values: Option<Vec<f64>> =
            self.series(name).map(|sample| Bound::Counter.admit(sample.value)).collect();
        self.errors += u32::from(values.is_none());
        whole(values?.iter().sum())
    }

    /// What the page says under the names of the table. `capacity` is that of each part where the page tells it in
    /// another way.
    pub(super) fn report(&mut self, capacity: Option<Parts<'a>>) -> EngineReport {
        let names = self.names;
        let requests = |count: Option<u64>| count.and_then(|count| u32::try_from(count).ok());
        let mut report = EngineReport {
            running: requests(self.sum(names.running, Bound::Requests)),
            waiting: requests(self.sum(names.waiting, Bound::Requests)),
            slots: requests(self.sum(names.slots, Bound::Requests)),
            prefix_hits: self.counter(names.hits),
            prefix_queries: self.counter(names.queries),
            ..EngineReport::default()
        };
        let capacity = capacity.or_else(|| self.parts(names.capacity, Bound::Tokens));
        let used = self.sum(names.used, Bound::Tokens);
        let share = if used.is_none() { self.parts(names.share, Bound::Share) } else { None };
        let (held, of) = in_tokens(share.as_ref(), capacity.as_ref());
        report.kv_used = used.or(held).map(Tokens);
        report.kv_capacity = of.map(Tokens);
        report
    }

    /// A number that is written as text.
    pub(super) fn number(&mut self, text: &str, bound: Bound) -> Option<f64> {
        self.admit(text.parse().unwrap_or(f64::NAN), bound)
    }

    /// `value`; unknown and counted if it cannot be true.
    pub(super) fn admit(&mut self, value: f64, bound: Bound) -> Option<f64> {
        let admitted = bound.admit(value);
        self.errors += u32::from(admitted.is_none());
        admitted
    }

    /// A number of a JSON page; absent and null are unknown.
    pub(super) fn json(&mut self, value: Option<&Value>, bound: Bound) -> Option<u64> {
        let value = value.filter(|value| !value.is_null())?;
        let found = value.as_f64().and_then(|number| bound.admit(number)).and_then(whole);
        self.errors += u32::from(found.is_none());
        found
    }

    /// The result, once more is used than there is taken as an error, and so is room for nothing.
    pub(super) fn finish(mut self, mut report: EngineReport) -> Reading {
        if report.kv_capacity == Some(Tokens(0)) {
            report.kv_capacity = None;
            self.errors += 1;
        }
        if let (Some(used), Some(capacity)) = (report.kv_used, report.kv_capacity)
            && used > capacity
        {
            report.kv_used = None;
            self.errors += 1;
        }
        Reading { report, errors: self.errors }
    }
}

/// Tokens held and tokens there are, from the share of each part and what it can hold. Where one part's capacity is
/// unknown, so is the sum.
fn in_tokens(share: Option<&Parts<'_>>, capacity: Option<&Parts<'_>>) -> (Option<u64>, Option<u64>) {
    let Some(capacity) = capacity else { return (None, None) };
    let Some(share) = share else { return (None, whole(capacity.values().sum())) };
    // A capacity without a part is that of each.
    let of = |part: &str| capacity.get(part).or_else(|| capacity.get("")).copied();
    let total: Option<f64> = share.keys().map(|part| of(part)).sum();
    let held: Option<f64> = share.iter().map(|(part, share)| Some(share * of(part)?)).sum();
    (held.and_then(whole), total.and_then(whole))
}

/// The nearest whole number.
#[expect(clippy::cast_possible_truncation, reason = "checked to be within 2^54")]
pub(super) fn whole(value: f64) -> Option<u64> {
    let most = (1_u64 << 54) as f64;
    (0.0..=most).contains(&value).then(|| value.round() as u64)
}
