//! Reading an export in memory, with either verifier's answer.

use placet_core::evaluate::{Rederivation, Rederived};
use placet_core::export::{Failure, Kind, Line, Trust, Verified, Verifier};

/// Verifies the whole of `export`.
pub fn verify(export: &[u8], trust: Trust) -> Result<Verified, Failure> {
    let mut verifier = Verifier::new(trust)?;
    for line in export.split_inclusive(|byte| *byte == b'\n') {
        verifier.line(line)?;
    }
    verifier.finish()
}

/// What `placet evidence rederive` does: both checks, entry by entry.
pub fn rederive(export: &[u8]) -> Result<Vec<Rederived>, Failure> {
    let (mut verifier, mut walk, mut found) = (Verifier::default(), Rederivation::default(), Vec::new());
    for (at, line) in (1..).zip(export.split_inclusive(|byte| *byte == b'\n')) {
        if let Line::Entry(entry, bytes) = verifier.line(line)? {
            found.push(walk.step(entry, bytes.to_vec()).map_err(|difference| Failure {
                kind: Kind::Difference,
                entry: Some(difference.index),
                line: at,
                detail: difference.to_string(),
            })?);
        }
    }
    verifier.finish()?;
    Ok(found)
}
