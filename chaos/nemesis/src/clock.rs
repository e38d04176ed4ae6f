//! Clocks of single nodes, shifted at run time through libfaketime and a file that it reads again and again.
//! Absent on purpose: the monotonic clock, which no administrator can set.

use std::path::{Path, PathBuf};

const LIBRARIES: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
];

/// Whether clocks can be shifted here.
pub fn available() -> bool {
    library().is_some()
}

fn library() -> Option<PathBuf> {
    LIBRARIES.iter().map(PathBuf::from).find(|path| path.exists())
}

/// The clock files of all nodes.
#[derive(Debug)]
pub struct Clocks {
    library: Option<PathBuf>,
    folder: PathBuf,
}

impl Clocks {
    pub fn new(folder: &Path) -> Self {
        Self { library: None, folder: folder.to_owned() }
    }

    /// Processes that start from now on read their node's clock file, where the library is there.
    pub fn enable(&mut self) -> bool {
        self.library = library();
        self.library.is_some()
    }

    pub fn library(&self) -> Option<&Path> {
        self.library.as_deref()
    }

    fn file(&self, id: u64) -> PathBuf {
        self.folder.join(format!("clock-{id}"))
    }

    pub fn environment(&self, id: u64) -> Vec<(&'static str, String)> {
        if self.library.is_none() {
            return Vec::new();
        }
        if !self.file(id).exists() {
            // Whoever cannot write here cannot run at all, and hears it from the next write.
            let _ = self.set(id, 0);
        }
        vec![
            ("FAKETIME_TIMESTAMP_FILE", self.file(id).display().to_string()),
            ("FAKETIME_CACHE_DURATION", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }

    /// Sets how far a node's clock is ahead, or behind.
    pub fn set(&self, id: u64, offset_seconds: i64) -> anyhow::Result<()> {
        let new = self.folder.join(format!("clock-{id}.new"));
        std::fs::write(&new, format!("{offset_seconds:+}\n"))?;
        std::fs::rename(new, self.file(id))?;
        Ok(())
    }
}
