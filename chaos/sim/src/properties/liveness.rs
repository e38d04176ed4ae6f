//! Architecture §7.8: once a majority is healed, decides succeed again within a bounded time, and every node follows.

use super::{End, Property};

#[derive(Debug, Default)]
pub struct Liveness;

impl Property for Liveness {
    fn name(&self) -> &'static str {
        "liveness"
    }

    fn end(&mut self, end: &End<'_>) -> Result<(), String> {
        let bound = end.bound_ms;
        match (end.recovered_ms, end.converged_ms) {
            (None, _) => Err(format!("no decide was answered within {bound} ms after everything was healed")),
            (_, None) => Err(format!("the nodes did not come to the same state within {bound} ms")),
            _ => Ok(()),
        }
    }
}
