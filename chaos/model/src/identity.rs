//! Names for what the model holds: the same parts give the same name, on every run.
//! Absent on purpose: addresses and random state. Two states with one name are one state to the search, so a name has
//! 128 bits of BLAKE3.

use std::hash::{Hash, Hasher};

/// The name of a state, a batch, a history, or a part of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(u128);

impl Id {
    /// The name of these parts.
    pub fn of(parts: &impl Hash) -> Self {
        let mut written = Written::default();
        parts.hash(&mut written);
        written.id()
    }

    /// The name as bytes, where a core function wants random ones.
    pub fn bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

/// Collects what `Hash` writes.
#[derive(Debug, Default)]
struct Written(Vec<u8>);

impl Written {
    fn id(&self) -> Id {
        let mut first = [0; 16];
        first.copy_from_slice(blake3::hash(&self.0).as_bytes().first_chunk::<16>().unwrap_or(&[0; 16]));
        Id(u128::from_be_bytes(first))
    }
}

impl Hasher for Written {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.id().bytes();
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}
