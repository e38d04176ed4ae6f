//! Disks of single nodes: an fsync that fails, at run time, through a preloaded library and a file that it looks for;
//! and a file system that is full.
//! Absent on purpose: faults below the file system, which a process sees as these.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// The disk faults of all nodes.
#[derive(Debug)]
pub struct Disks {
    library: Option<PathBuf>,
    folder: PathBuf,
}

impl Disks {
    pub fn new(folder: &Path) -> Self {
        Self { library: None, folder: folder.to_owned() }
    }

    /// Compiles the library; processes that start from now on load it.
    pub fn enable(&mut self) -> anyhow::Result<()> {
        let source = self.folder.join("sync_fault.c");
        std::fs::write(&source, include_str!("sync_fault.c"))?;
        let library = self.folder.join("libsyncfault.so");
        let output = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(&source)
            .arg("-ldl")
            .output()
            .context("no C compiler")?;
        if !output.status.success() {
            bail!("cc: {}", String::from_utf8_lossy(&output.stderr));
        }
        self.library = Some(library);
        Ok(())
    }

    pub fn library(&self) -> Option<&Path> {
        self.library.as_deref()
    }

    fn switch(&self, id: u64) -> PathBuf {
        self.folder.join(format!("sync-fault-{id}"))
    }

    pub fn environment(&self, id: u64) -> Vec<(&'static str, String)> {
        let file = self.library.as_ref().map(|_| self.switch(id).display().to_string());
        file.into_iter().map(|file| ("SYNC_FAULT_FILE", file)).collect()
    }

    /// From now on every fsync of a node fails with EIO, or works again.
    pub fn fail_syncs(&self, id: u64, failing: bool) -> anyhow::Result<()> {
        if failing {
            std::fs::write(self.switch(id), "EIO\n")?;
        } else if let Err(error) = std::fs::remove_file(self.switch(id))
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error.into());
        }
        Ok(())
    }

    /// A small file system of its own for a node that does not run yet. It ends with the mount namespace of this run.
    pub fn mount_small(data: &Path, megabytes: u64) -> anyhow::Result<()> {
        std::fs::create_dir_all(data)?;
        let size = format!("size={megabytes}m,mode=0700");
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(data).status()?;
        if !status.success() {
            bail!("a tmpfs cannot be mounted at {}", data.display());
        }
        Ok(())
    }

    /// Takes all free space of the file system that a folder is on.
    pub fn fill(data: &Path) -> anyhow::Result<()> {
        let block = vec![0u8; 64 << 10];
        let mut file = std::fs::File::create(data.join("filler"))?;
        loop {
            match std::io::Write::write_all(&mut file, &block) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Gives it back.
    pub fn free(data: &Path) -> anyhow::Result<()> {
        std::fs::remove_file(data.join("filler")).context("the filler")
    }
}
