//! What this crate takes from its machine: the time, random bits.
//! Absent on purpose: trust. The decision point keeps its own time; this one only says when not to start (AADP §13).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use placet_core::ids::RequestId;
use placet_core::stamp::Stamp;

/// The time of this machine.
pub(crate) fn now() -> Stamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Stamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// How long until `at`; `None` when it is reached.
pub(crate) fn until(at: Stamp) -> Option<Duration> {
    let ms = at.0.saturating_sub(now().0);
    u64::try_from(ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
}

/// The random source of the operating system gave nothing.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the operating system gives no random bits")]
pub(crate) struct NoRandomnessError;

/// A new idempotency key: a random UUID (AADP §10.1).
pub(crate) fn new_request_id() -> Result<RequestId, NoRandomnessError> {
    let mut bits = [0u8; 16];
    getrandom::fill(&mut bits).map_err(|_| NoRandomnessError)?;
    let number = u128::from_be_bytes(bits) & !(0xf << 76) & !(0b11 << 62) | (0x4 << 76) | (0b10 << 62);
    let (a, b, c) = (number >> 96, (number >> 80) & 0xffff, (number >> 64) & 0xffff);
    let (d, e) = ((number >> 48) & 0xffff, number & 0xffff_ffff_ffff);
    RequestId::parse(&format!("{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")).ok_or(NoRandomnessError)
}

/// The pause before attempt `number` (from 1): doubled from `first` up to `max`, then shortened by up to a half at
/// random, so that many enforcement points do not ask in step.
pub(crate) fn backoff(first: Duration, max: Duration, number: u32) -> Duration {
    let whole = first.saturating_mul(1 << number.saturating_sub(1).min(16)).min(max);
    let mut random = [0u8; 1];
    // Without random bits the pause is whole: later is always allowed.
    let part = getrandom::fill(&mut random).map_or(0, |()| u32::from(random[0]));
    whole.saturating_sub(whole.saturating_mul(part) / 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_ids_are_random_uuids() {
        let id = new_request_id().unwrap();
        assert_eq!(id.as_str().as_bytes()[14], b'4', "{id}");
        assert!(matches!(id.as_str().as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{id}");
        assert_ne!(id, new_request_id().unwrap());
    }

    #[test]
    fn backoff_grows_and_stops_growing() {
        for (number, most_ms) in [(1, 50), (2, 100), (5, 800), (6, 1000), (60, 1000)] {
            let pause = backoff(Duration::from_millis(50), Duration::from_secs(1), number);
            assert!(
                pause <= Duration::from_millis(most_ms) && pause >= Duration::from_millis(most_ms / 2),
                "{pause:?}"
            );
        }
    }
}
