//! The disk alone: appends of 512 bytes, an fdatasync after each.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of one append.
const APPEND: [u8; 512] = [0x5a; 512];

/// The median time of an append that is on the disk, in microseconds.
pub(crate) fn sync_p50_us(folder: &Path, time: Duration) -> anyhow::Result<f64> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join("fdatasync.bin");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(&path)?;
    let mut times = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < time {
        let before = Instant::now();
        file.write_all(&APPEND)?;
        file.sync_data()?;
        times.push(before.elapsed());
    }
    std::fs::remove_file(&path)?;
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    Ok(median.as_secs_f64() * 1e6)
}
