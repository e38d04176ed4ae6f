//! Evidence (architecture §6): what a log recorded is verified as an export, and every entry follows again from those
//! before it.
//! Absent on purpose: the state. An auditor has the entries and nothing else.

use placet_core::evaluate::Rederivation;
use placet_core::evidence;
use placet_core::export::{HEADER, Verifier, entry_line};
use placet_core::ids::Hash;

use super::Property;

/// The property; [`Auditor`] checks it.
#[derive(Clone, Copy, Debug)]
pub struct Evidence;

impl Property for Evidence {
    fn name(&self) -> &'static str {
        "evidence"
    }

    fn stated(&self) -> &'static str {
        "architecture §6"
    }
}

/// Reads the entries of a log in order. A copy reads on for another log with the same beginning.
#[derive(Clone, Debug, Default)]
pub struct Auditor {
    walk: Rederivation,
    verifier: Verifier,
    begun: bool,
}

impl Auditor {
    /// Reads the next entries: their bytes, and the hashes that the log has for them.
    pub fn read(&mut self, entries: &[(Vec<u8>, Hash)]) -> Result<(), String> {
        if !self.begun {
            self.verifier.line(HEADER).map_err(|failure| failure.to_string())?;
            self.begun = true;
        }
        for (bytes, hash) in entries {
            self.verifier.line(&entry_line(bytes, hash)).map_err(|failure| failure.to_string())?;
            let entry = evidence::decode(bytes).map_err(|error| error.to_string())?;
            self.walk.step(entry, bytes.clone()).map_err(|difference| difference.to_string())?;
        }
        Ok(())
    }

    /// Ends the export.
    pub fn close(&self) -> Result<(), String> {
        let mut verifier = self.verifier.clone();
        let line = verifier.closing_line();
        verifier.line(&line).map_err(|failure| failure.to_string())?;
        verifier.finish().map(drop).map_err(|failure| failure.to_string())
    }
}
