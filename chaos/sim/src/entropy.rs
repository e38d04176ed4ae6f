//! One seed for everything that is random: the schedule of the simulation, and the operating system's random source,
//! which is replaced for this process. Map seeds, the branch that `select!` tries first, election timeouts and the
//! identifiers of permits all begin there.
//! Absent on purpose: quality. These numbers protect nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// State of the replaced source; 0 leaves the real one in place.
static SYSTEM: AtomicU64 = AtomicU64::new(0);

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// From here on the operating system's random bytes come from `seed`. Call first in `main`, before any map is made.
pub fn replace_system_source(seed: u64) {
    SYSTEM.store(mix(seed ^ 0x5eed) | 1, Ordering::SeqCst);
}

/// The C library's function, as the standard library and `getrandom` call it.
///
/// # Safety
/// `buffer` must be valid for `length` bytes, as the C function demands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, flags: u32) -> isize {
    if SYSTEM.load(Ordering::SeqCst) == 0 {
        // SAFETY: the same arguments, passed on to the kernel.
        let got = unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) };
        return isize::try_from(got).unwrap_or(-1);
    }
    if length > 0 {
        // SAFETY: the caller promises `length` writable bytes.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
        for chunk in bytes.chunks_mut(8) {
            let word = mix(SYSTEM.fetch_add(GAMMA, Ordering::SeqCst).wrapping_add(GAMMA)).to_le_bytes();
            for (to, from) in chunk.iter_mut().zip(word) {
                *to = from;
            }
        }
    }
    isize::try_from(length).unwrap_or(isize::MAX)
}

/// A stream of numbers (SplitMix64). Each part of the simulation has its own, so that a change in one part does not
/// shift what another draws.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of one part of the run of `seed`.
    pub fn new(seed: u64, part: &str) -> Self {
        let part = part
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        Self(mix(seed) ^ part)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0)
    }

    /// A number below `end`; 0 when there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.number() % end }
    }

    /// A number in `from..=to`.
    pub fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// Whether something with a chance of `of_thousand` happens.
    pub fn chance(&mut self, of_thousand: u64) -> bool {
        self.below(1000) < of_thousand
    }

    /// Milliseconds in `from..=to`.
    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.within(from, to))
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let at = self.below(from.len() as u64);
        from.get(usize::try_from(at).unwrap_or_default())
    }
}
