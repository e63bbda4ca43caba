//! What a deployment costs as `/status` has it (M2): how old that is, and what it can come to. Sums nothing.

use serde::{Deserialize, Serialize};
use tidegate_scaler::control::{Listed, Spending};
use tidegate_shared::offer::{Money, Price};
use tidegate_shared::span::span;

use crate::admin::dollars;

/// What a deployment costs, in dollars (M2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoneyStatus {
    /// Since the deployment was first served, restarts included.
    #[serde(with = "dollars")]
    pub spent: Money,
    /// For each hour, as the fleet is now; absent until the provider has told what runs.
    #[serde(with = "dollars::maybe")]
    pub rate: Option<Price>,
    /// How long ago the provider told that, in seconds; absent while it answers.
    pub listed_s: Option<f64>,
    /// For each hour at worst: `max` × the price cap and the base fee, or what it costs now, where that is more since the cap
    /// was lowered; absent where there is no cap.
    #[serde(with = "dollars::maybe")]
    pub worst_case: Option<Price>,
    /// What `worst_case` is; absent where there is none.
    pub worst_is: Option<Worst>,
    /// Credit that is left over all deployments; absent where it is not counted (M3).
    #[serde(with = "dollars::maybe")]
    pub credit: Option<Money>,
    /// All of it for people, so that each amount is written by one hand; absent where nothing has a price.
    pub text: Option<String>,
}

/// What a fleet costs at worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Worst {
    /// `max` × the price cap.
    Cap,
    /// `max` × the price cap and the base fee.
    CapAndFee,
    /// What it costs now, which is more: replicas run that are dearer than the cap allows, or more than `max`.
    Running,
}

impl MoneyStatus {
    /// Of what is spent, by what the provider has told, and at worst by the settings.
    pub(crate) fn new(spending: Spending, listed: Listed, capped: Option<Price>, base_fee: Price) -> Self {
        let Spending { spent, rate, credit } = spending;
        let listed_s = match listed {
            Listed::Ago(age) => Some(age.as_secs_f64()),
            Listed::Now | Listed::Never => None,
        };
        let worst_case = capped.map(|worst| worst.max(rate));
        let worst_is = capped.map(|capped| match base_fee {
            _ if rate > capped => Worst::Running,
            Price::FREE => Worst::Cap,
            _ => Worst::CapAndFee,
        });
        let priced = spent != Money::default() || rate != Price::FREE || capped.is_some() || credit.is_some();
        let text = priced.then(|| {
            let now = now(rate, listed);
            let most =
                capped.zip(worst_is).map(|(capped, what)| most(capped, what, rate)).unwrap_or_default();
            let credit = credit.map(|credit| format!("; credit {credit}")).unwrap_or_default();
            format!("{now}{most}, {spent} spent{credit}")
        });
        let rate = (listed != Listed::Never).then_some(rate);
        Self { spent, rate, listed_s, worst_case, worst_is, credit, text }
    }
}

/// What it costs, as of when that is known.
fn now(rate: Price, listed: Listed) -> String {
    match listed {
        Listed::Never => "cost not known yet: the provider has not answered".to_owned(),
        Listed::Now => format!("{rate} now"),
        Listed::Ago(age) => format!("{rate} as of {} ago: the provider does not answer", span(age)),
    }
}

/// What it can come to, to follow what it costs; or by how much that is over what the settings allow, and what to do.
fn most(capped: Price, what: Worst, rate: Price) -> String {
    match what {
        Worst::Cap => format!(", {capped} at most (max × price_cap)"),
        Worst::CapAndFee => format!(", {capped} at most (max × (price_cap + base_fee))"),
        Worst::Running => {
            let over = Price(rate.0.saturating_sub(capped.0));
            format!(
                ", which is {over} over the {capped} that max and price_cap allow (what runs is kept: drain what is dear, or \
                 raise them)"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_shared::time::Duration;

    use super::*;

    fn told(spending: Spending, listed: Listed, capped: Option<Price>, fee: u64) -> Option<String> {
        MoneyStatus::new(spending, listed, capped, Price(fee)).text
    }

    #[test]
    fn m2_money_is_told_as_old_as_it_is_and_what_is_not_known_is_no_zero() {
        let (spent, credit) = (Money(150_000), Some(Money(300_000)));
        let spending = Spending { spent, rate: Price(72_000_000), credit };
        let text = |listed| told(spending, listed, None, 0).expect("money is spent");
        assert_eq!(text(Listed::Now), "$72.00/h now, $0.15 spent; credit $0.30");
        let silent = "$72.00/h as of 40 s ago: the provider does not answer, $0.15 spent; credit $0.30";
        assert_eq!(text(Listed::Ago(Duration::from_secs(40))), silent);
        let never = "cost not known yet: the provider has not answered, $0.15 spent; credit $0.30";
        assert_eq!(text(Listed::Never), never);
        assert_eq!(told(Spending::default(), Listed::Never, None, 0), None);
    }

    #[test]
    fn m2_the_worst_case_is_labelled_by_what_it_is() {
        let text = |rate, fee| {
            let spending = Spending { rate: Price(rate), ..Spending::default() };
            told(spending, Listed::Now, Some(Price(2_250_000)), fee).expect("a cap")
        };
        assert_eq!(text(0, 0), "$0.00/h now, $2.25/h at most (max × price_cap), $0.00 spent");
        assert_eq!(text(0, 1), "$0.00/h now, $2.25/h at most (max × (price_cap + base_fee)), $0.00 spent");
        assert_eq!(
            text(6_001_500, 0),
            "$6.0015/h now, which is $3.7515/h over the $2.25/h that max and price_cap allow (what runs is kept: drain what \
             is dear, or raise them), $0.00 spent"
        );
    }
}
