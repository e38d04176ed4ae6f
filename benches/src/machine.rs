//! What this machine is, in a line.

use std::path::Path;

/// Processors, memory, and the file system of the data.
pub(crate) fn describe(data: &Path) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown processor");
    let memory = read("/proc/meminfo");
    let kilobytes = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
    let kilobytes: u64 = kilobytes.trim().trim_end_matches(" kB").parse().unwrap_or_default();
    format!(
        "{cores} cores ({}), {} GB of memory, kernel {}, data on {}",
        model.trim_start_matches(['\t', ' ', ':']),
        kilobytes / 1_000_000,
        read("/proc/sys/kernel/osrelease").trim(),
        file_system(data),
    )
}

/// The type of the file system that holds a folder: of the mounts, the longest that it is in.
fn file_system(folder: &Path) -> String {
    let folder = std::path::absolute(folder).unwrap_or_default();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (_, at, kind) = (words.next()?, words.next()?, words.next()?);
            folder.starts_with(at).then(|| (at.len(), kind.to_owned()))
        })
        .max()
        .map_or_else(|| "an unknown file system".to_owned(), |(_, kind)| kind)
}
