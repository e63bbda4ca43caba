//! Random numbers that a replay repeats: a small generator with its seed in plain sight. Not for secrets.

/// SplitMix64: one word of state, passes the usual batteries, cheap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rng(u64);

impl Rng {
    /// The generator that `seed` begins.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, each as likely as the others to within 2^-32; 0 for a bound of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.draw()) * (bound as u128);
        usize::try_from(wide >> 64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_even_and_repeatable() {
        let mut counts = [0u32; 7];
        let mut rng = Rng::new(1);
        (0..70_000).for_each(|_| counts[rng.below(7)] += 1);
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
        assert_eq!(Rng::new(9).draw(), Rng::new(9).draw());
        assert_eq!(Rng::new(9).below(0), 0);
    }
}
