//! Money in the JSON of the admin API (M2): dollars, as numbers with as many digits after the point as they have, up to
//! six. Exact both ways: no amount goes through a float. Sums nothing.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use tidegate_shared::offer::{Money, Price};

const DOLLAR: u128 = 1_000_000;
/// Digits after the point.
const DIGITS: usize = 6;

/// A sum as `#[serde(with)]` wants it.
pub(in crate::admin) trait Sum: Copy {
    /// In millionths of a dollar.
    fn micros(self) -> i128;
    /// The same back; `None` for what it cannot be.
    fn of_micros(micros: i128) -> Option<Self>;
}

impl Sum for Money {
    fn micros(self) -> i128 {
        self.0
    }

    fn of_micros(micros: i128) -> Option<Self> {
        Some(Self(micros))
    }
}

impl Sum for Price {
    fn micros(self) -> i128 {
        self.0.into()
    }

    fn of_micros(micros: i128) -> Option<Self> {
        u64::try_from(micros).ok().map(Self)
    }
}

/// `micros` as a number of dollars: `249775` is `0.249775`, `100000000` is `100`.
pub(crate) fn written(micros: i128) -> String {
    let (sign, all) = (if micros < 0 { "-" } else { "" }, micros.unsigned_abs());
    let text = format!("{sign}{}.{:0DIGITS$}", all / DOLLAR, all % DOLLAR);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The same as JSON, where one more type would be in the way.
pub(crate) fn number(micros: u64) -> Value {
    serde_json::from_str(&written(micros.into())).unwrap_or_default()
}

/// The other way; `None` for what is no such number.
fn read(text: &str) -> Option<i128> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !number(whole) || part.len() > DIGITS || !(part.is_empty() || number(part)) {
        return None;
    }
    let whole = whole.parse::<i128>().ok()?.checked_mul(i128::try_from(DOLLAR).ok()?)?;
    whole.checked_add(format!("{part:0<DIGITS$}").parse().ok()?)?.checked_mul(sign)
}

pub(in crate::admin) fn serialize<T: Sum, S: Serializer>(sum: &T, to: S) -> Result<S::Ok, S::Error> {
    let raw = RawValue::from_string(written(sum.micros())).map_err(serde::ser::Error::custom)?;
    raw.serialize(to)
}

pub(in crate::admin) fn deserialize<'de, T: Sum, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let raw = Box::<RawValue>::deserialize(from)?;
    let sum = read(raw.get()).and_then(T::of_micros);
    sum.ok_or_else(|| serde::de::Error::custom(format!("{} is no amount of dollars", raw.get())))
}

/// The same for a sum that may be absent.
pub(in crate::admin) mod maybe {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Sum;

    #[derive(Serialize, Deserialize)]
    #[serde(transparent, bound(serialize = "T: Sum", deserialize = "T: Sum"))]
    struct One<T>(#[serde(with = "super")] T);

    pub(in crate::admin) fn serialize<T: Sum, S: Serializer>(
        sum: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        sum.map(One).serialize(to)
    }

    pub(in crate::admin) fn deserialize<'de, T: Sum, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        Ok(Option::<One<T>>::deserialize(from)?.map(|One(sum)| sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Told {
        #[serde(with = "super")]
        spent: Money,
        #[serde(default, with = "super::maybe")]
        most: Option<Price>,
    }

    #[test]
    fn m2_json_has_dollars_exactly_both_ways() {
        for (micros, text) in [
            (0, "0"),
            (1, "0.000001"),
            (100_000_000, "100"),
            (249_775, "0.249775"),
            (-98_331_500, "-98.3315"),
            (i128::MAX, "170141183460469231731687303715884.105727"),
        ] {
            let told = Told { spent: Money(micros), most: Some(Price(2_500_000)) };
            let json = format!("{{\"spent\":{text},\"most\":2.5}}");
            assert_eq!(serde_json::to_string(&told).expect("json"), json);
            assert_eq!(serde_json::from_str::<Told>(&json).expect("the shape"), told);
        }
        let none = Told { spent: Money(1), most: None };
        assert_eq!(serde_json::to_string(&none).expect("json"), "{\"spent\":0.000001,\"most\":null}");
        assert_eq!(serde_json::from_str::<Told>("{\"spent\":0.000001}").expect("the shape"), none);
        for bad in ["\"1\"", "1e3", "0.0000001", "true"] {
            assert!(serde_json::from_str::<Told>(&format!("{{\"spent\":{bad}}}")).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<Told>("{\"spent\":1,\"most\":-1}").is_err());
    }
}
