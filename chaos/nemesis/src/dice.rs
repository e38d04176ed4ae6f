//! Chance: the schedule of faults comes from one seed, identifiers from the operating system.
//! Absent on purpose: a promise to repeat a run. Processes, disks and networks have a time of their own.

/// A small generator (SplitMix64); its whole state is a number that a report can state.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A seed from the operating system.
    pub fn seed() -> u64 {
        let mut bits = [0u8; 8];
        // Without randomness a fixed seed is as good as any.
        let _ = getrandom::fill(&mut bits);
        u64::from_be_bytes(bits) >> 16
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `below`; 0 when that is 0.
    pub fn below(&mut self, below: u64) -> u64 {
        self.next().checked_rem(below).unwrap_or_default()
    }

    /// One in `of`.
    pub fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// One of several; `None` of none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let at = self.below(of.len() as u64);
        of.get(usize::try_from(at).unwrap_or_default())
    }
}

/// A random UUID.
pub fn uuid() -> String {
    let mut bits = [0u8; 16];
    // A run without randomness would repeat its request ids and fail at once.
    let _ = getrandom::fill(&mut bits);
    let hex: String = bits.iter().map(|b| format!("{b:02x}")).collect();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!("{}-{}-4{}-8{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}
