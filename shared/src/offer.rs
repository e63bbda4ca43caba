//! What a replica may run on and what that costs: offers and money, in whole numbers, so that no sum is ever rounded.
//!
//! Never chooses among offers; that is the scaler's.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::replica::Capacity;

/// Millionths of a dollar in a dollar.
const DOLLAR: u64 = 1_000_000;
/// The same of a cent.
const CENT: u128 = 10_000;

/// A price for each hour of one replica, in millionths of a dollar (µ$/h). Exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Price(pub u64);

impl Price {
    /// Costs nothing, or nothing that is counted here: the machine is there anyway.
    pub const FREE: Self = Self(0);

    /// The price of `count` such replicas for an hour; saturates.
    pub const fn times(self, count: u32) -> Self {
        Self(self.0.saturating_mul(count as u64))
    }
}

/// As people write it: `$1.35/h`, with as many digits as it has and at least two.
impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:06}", self.0 % DOLLAR);
        let (cents, more) = digits.split_at_checked(2).unwrap_or((&digits, ""));
        write!(f, "${}.{cents}{}/h", self.0 / DOLLAR, more.trim_end_matches('0'))
    }
}

/// An amount of money in millionths of a dollar (µ$); below zero where more was spent than there was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(pub i128);

/// As people write it, to the cent: `$12.50`, `-$67.59`. Half a cent goes to the even one, so that what was spent and what is
/// left still make the whole; JSON has the exact value.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0.unsigned_abs() / CENT, self.0.unsigned_abs() % CENT);
        let up = rest > CENT / 2 || (rest == CENT / 2 && whole % 2 == 1);
        let cents = whole + u128::from(up);
        let sign = if self.0 < 0 && cents > 0 { "-" } else { "" };
        write!(f, "{sign}${}.{:02}", cents / 100, cents % 100)
    }
}

/// What a provider can start a replica on, as of now (M1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// What it is called, unique within its provider: the GPU's name, a machine type, a partition.
    pub name: String,
    /// Memory of its GPUs in bytes; `None` where nobody said.
    pub memory: Option<u64>,
    /// How large a replica on it is beside those on the provider's other offers.
    pub capacity: Capacity,
    /// What a replica on it costs.
    pub price: Price,
    /// How many more could be started; `None` where nobody knows, which is no promise of room and no lack of it.
    pub free: Option<u32>,
    /// The model's weights are already there, so that a start needs no download.
    pub cached: bool,
    /// What finds no room is taken all the same, and waits for it at the provider.
    pub queues: bool,
}

impl Offer {
    /// An offer of which only name, size and price are known.
    pub fn new(name: &str, capacity: Capacity, price: Price) -> Self {
        let name = name.to_owned();
        Self { name, memory: None, capacity, price, free: None, cached: false, queues: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m2_money_is_written_to_the_cent_and_a_price_with_all_its_digits() {
        for (micros, text) in [
            (0, "$0.00"),
            (1, "$0.00"),
            (-1, "$0.00"),
            (1_350_000, "$1.35"),
            (1_355_000, "$1.36"),
            (1_365_000, "$1.36"),
            (1_355_001, "$1.36"),
            (-67_591_592, "-$67.59"),
            (-500_000, "-$0.50"),
            (9_999_999, "$10.00"),
            (i128::MIN, "-$170141183460469231731687303715884.11"),
        ] {
            assert_eq!(Money(micros).to_string(), text);
        }
        assert_eq!(Price(2_500_000).times(4).to_string(), "$10.00/h");
        assert_eq!(Price(1_355_001).to_string(), "$1.355001/h");
        assert_eq!(Price(1).to_string(), "$0.000001/h");
        assert_eq!(Price(u64::MAX).times(2), Price(u64::MAX));
    }
}
