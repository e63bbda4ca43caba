//! What a control loop is given to keep to. Only the numbers; it neither reads nor checks them.

use tidegate_scaler_core::config::Sizing;
use tidegate_shared::offer::Price;
use tidegate_shared::time::Duration;

/// What one deployment is held to.
#[derive(Clone, Debug)]
pub struct Terms {
    /// How its fleet is sized.
    pub sizing: Sizing,
    /// What each ready replica costs beside its price (M3).
    pub base_fee: Price,
    /// A replica that is not ready so long after its order counts as a failed start.
    pub start_limit: Duration,
}
