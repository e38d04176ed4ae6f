//! Which generation of the state is the one: a file that is replaced by a rename.
//! Absent on purpose: the generations themselves.
//!
//! `<number> <CRC-32C of the number, hex>`; before there were checksums, the number alone.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::OpenError;
use crate::inspect::damaged;
use crate::state::sync_dir;

const POINTER: &str = "CURRENT";
const NEW_POINTER: &str = "CURRENT.new";

fn checksum(number: &str) -> String {
    format!("{:08x}", crc32c::crc32c(number.as_bytes()))
}

fn parse(text: &str) -> Option<u64> {
    let (number, sum) = text.trim_end().split_once(' ').map_or((text.trim_end(), None), |(a, b)| (a, Some(b)));
    if sum.is_some_and(|sum| sum != checksum(number)) {
        return None;
    }
    number.parse().ok()
}

/// The generations that have a folder.
fn generations(folder: &Path) -> io::Result<Vec<(u64, std::path::PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(number) = number
            && entry.file_type()?.is_dir()
        {
            found.push((number, entry.path()));
        }
    }
    Ok(found)
}

/// Reads the pointer, or writes the first one. `seen`: the generation that was in use.
pub(crate) fn current(folder: &Path, seen: u64) -> Result<u64, OpenError> {
    if let Some(number) = find(folder, seen)? {
        return Ok(number);
    }
    point_to(folder, 1).map_err(|source| OpenError::Folder { path: folder.to_owned(), source })?;
    Ok(1)
}

/// Reads the pointer; `None` if there never was one.
pub(crate) fn find(folder: &Path, seen: u64) -> Result<Option<u64>, OpenError> {
    let failed = |source| OpenError::Folder { path: folder.to_owned(), source };
    let path = folder.join(POINTER);
    let all = generations(folder).map_err(failed)?;
    let number = match fs::read_to_string(&path) {
        Ok(text) => parse(&text).ok_or_else(|| damaged(&path, "it does not name a generation"))?,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(damaged(&path, "it does not name a generation"));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && all.is_empty() && seen == 0 => {
            return Ok(None);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(damaged(&path, "it is missing")),
        Err(error) => return Err(failed(error)),
    };
    if number < seen {
        return Err(damaged(&path, format!("it names generation {number}, and {seen} was in use")));
    }
    let there = all.iter().any(|(one, _)| *one == number);
    if !there && (seen > 0 || number > 1 || !all.is_empty()) {
        return Err(damaged(&folder.join(number.to_string()), "it is missing"));
    }
    Ok(Some(number))
}

/// Removes every generation but the one, after that one was found good.
pub(crate) fn remove_others(folder: &Path, keep: u64) -> io::Result<()> {
    for (number, path) in generations(folder)? {
        if number != keep {
            tracing::info!(generation = number, "removing a state that is not the current one");
            fs::remove_dir_all(path)?;
        }
    }
    Ok(())
}

/// Makes a generation the one; durable on return.
pub(crate) fn point_to(folder: &Path, number: u64) -> io::Result<()> {
    let new = folder.join(NEW_POINTER);
    let mut file = File::create(&new)?;
    let text = number.to_string();
    file.write_all(format!("{text} {}", checksum(&text)).as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, folder.join(POINTER))?;
    sync_dir(folder)
}
