//! One table of conformance cases, several doors (AADP §23), and the table of differences to onedoor (AADP §24).
//!
//! ```text
//!  cases.toml ───────┐                        ┌─► docs/CONFORMANCE.md
//!                    ├─ what does not fit? ───┤
//!  tests, by name ───┤                        └─► docs/DIFFERENCES.md
//!                    │
//!  differences.toml ─┘        target/tests.log ─► the totals of `./dev test`
//! ```
//!
//! Absent on purpose: the cases' inputs and expectations. Those are the tests; here is only which of them exist, where,
//! and whether they passed. And no part of Placet is linked, so that the tables build in seconds.

pub mod cases;
pub mod differences;
pub mod log;
pub mod sources;

use std::path::{Path, PathBuf};

/// The checkout that this crate was built in.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map_or_else(PathBuf::new, Path::to_path_buf)
}
