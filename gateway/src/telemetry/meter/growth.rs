//! The gauges of what keeps a fleet from growing, and of what it costs (E1, M2, M3). Only sets them; who decides is the planner.

use metrics::gauge;
use tidegate_shared::decision::ScaleReason;
use tidegate_shared::names::metric as name;
use tidegate_shared::offer::{Money, Price};

use super::DeploymentMeter;

/// Millionths of a dollar in one.
const DOLLAR: f64 = 1e6;

/// What a deployment that is sized may spend, and why it does not grow.
#[derive(Clone, Debug, Default)]
pub struct Growth {
    /// All that keeps it from growing, by the newest decision.
    pub blocks: Vec<ScaleReason>,
    /// What it costs for each hour, as the fleet is now; `None` until the provider has told what runs.
    pub rate: Option<Price>,
    /// What that can become at most; `None` without a price cap.
    pub most: Option<Price>,
    /// Credit that is left over all deployments; `None` where it is not counted.
    pub credit: Option<Money>,
}

impl DeploymentMeter {
    /// Brings these gauges up to date; called at each scrape of a fleet that is sized.
    pub fn growth(&self, growth: &Growth) {
        set(&self.name, growth);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge of dollars")]
fn set(deployment: &str, growth: &Growth) {
    let label = || ("deployment", deployment.to_owned());
    for reason in ScaleReason::BLOCKING {
        let blocks = growth.blocks.iter().any(|block| block.as_str() == reason);
        let labels = [label(), ("reason", reason.to_owned())];
        gauge!(name::GROWTH_BLOCKED, &labels).set(f64::from(u8::from(blocks)));
    }
    if let Some(rate) = growth.rate {
        gauge!(name::SPEND, &[label()]).set(rate.0 as f64 / DOLLAR);
    }
    if let Some(most) = growth.most {
        gauge!(name::SPEND_MOST, &[label()]).set(most.0 as f64 / DOLLAR);
    }
    if let Some(credit) = growth.credit {
        gauge!(name::CREDIT).set(credit.0 as f64 / DOLLAR);
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn m2_each_that_blocks_growth_is_one_and_the_others_are_zero_beside_the_money() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let render = recorder.handle();
        let growth = |blocks: &[ScaleReason]| Growth {
            blocks: blocks.to_vec(),
            rate: Some(Price(1_500_000)),
            most: Some(Price(4_000_000)),
            credit: Some(Money(-250_000)),
        };
        let all = [
            ScaleReason::AtMax,
            ScaleReason::ProviderError,
            ScaleReason::NoCredit,
            ScaleReason::NoFit,
            ScaleReason::NoCapacity,
        ];
        // One after the other comes and goes.
        for (from, to) in [(0, 1), (0, 2), (1, 2), (1, 5), (4, 5), (5, 5)] {
            metrics::with_local_recorder(&recorder, || set("chat", &growth(&all[from..to])));
            let page = render.render();
            for known in ScaleReason::BLOCKING {
                let value = u8::from(all[from..to].iter().any(|block| block.as_str() == known));
                let line =
                    format!("tidegate_growth_blocked{{deployment=\"chat\",reason=\"{known}\"}} {value}\n");
                assert!(page.contains(&line), "{line}{page}");
            }
            for line in [
                "tidegate_spend_dollars_per_hour{deployment=\"chat\"} 1.5\n",
                "tidegate_spend_most_dollars_per_hour{deployment=\"chat\"} 4\n",
                "tidegate_credit_dollars -0.25\n",
            ] {
                assert!(page.contains(line), "{line}{page}");
            }
        }
    }
}
