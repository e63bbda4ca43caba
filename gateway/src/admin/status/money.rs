//! What a deployment costs as `/status` has it (M2): how old that is, and what it can come to. Sums nothing.

use serde::{Deserialize, Serialize};
use tidegate_scaler::control::{Listed, Spending};
use tidegate_shared::offer::{Money, Price};

use crate::admin::dollars;

/// What a deployment costs, in dollars (M2).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoneyStatus {
    /// Since the deployment was first served, restarts included.
    #[serde(with = "dollars")]
    pub spent: Money,
    /// For each hour, as the fleet is now; absent until the provider has told what runs.
    #[serde(default, with = "dollars::maybe")]
    pub rate: Option<Price>,
    /// How long ago the provider told that, in seconds; absent while it answers.
    #[serde(default)]
    pub listed_s: Option<f64>,
    /// For each hour at worst: `max` × the price cap and the base fee, or what it costs now, where that is more since the cap
    /// was lowered; absent where there is no cap.
    #[serde(default, with = "dollars::maybe")]
    pub worst_case: Option<Price>,
    /// What `worst_case` is; absent where there is none.
    #[serde(default)]
    pub worst_is: Option<Worst>,
    /// Credit that is left over all deployments; absent where it is not counted (M3).
    #[serde(default, with = "dollars::maybe")]
    pub credit: Option<Money>,
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
        let rate = (listed != Listed::Never).then_some(rate);
        Self { spent, rate, listed_s, worst_case, worst_is, credit }
    }
}
