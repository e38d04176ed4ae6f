//! The file of a Unix socket: who may open it, and which process it belongs to (AADP §15.2).
//! Absent on purpose: connections, and the umask, which is the whole process's.
//! INVARIANT (one listener): a path that a process listens on is never taken from it.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::unistd::Uid;
use thiserror::Error;
use tokio::net::{UnixListener, UnixSocket, UnixStream};

use crate::limits::{SOCKET_BACKLOG, SOCKET_PATH_BYTES_MAX};

/// Who may connect, as far as the file decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketMode {
    /// This process's user: 0600.
    Owner,
    /// The members of a group as well: 0660.
    Group(u32),
}

impl SocketMode {
    fn bits(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Group(_) => 0o660,
        }
    }
}

/// Why a socket cannot be opened.
#[derive(Debug, Error)]
pub enum SocketError {
    /// The system has no room for the path.
    #[error("the socket path `{path}` has {bytes} bytes; {SOCKET_PATH_BYTES_MAX} is the most")]
    TooLong {
        /// Where.
        path: String,
        /// Its length.
        bytes: usize,
    },
    /// Another user could listen there while this process does not.
    #[error("the socket `{path}` would be in a folder that others may write to, or that is another user's")]
    OpenFolder {
        /// Where.
        path: String,
    },
    /// Something else has this name.
    #[error("`{path}` exists and is not a socket")]
    NotSocket {
        /// Where.
        path: String,
    },
    /// The path is taken.
    #[error("another process listens on `{path}`")]
    Live {
        /// Where.
        path: String,
    },
    /// The system refused a step.
    #[error("the socket `{path}` cannot be {step}")]
    Failed {
        /// Where.
        path: String,
        /// Which.
        step: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// A socket that listens. Its file goes when this goes.
#[derive(Debug)]
pub struct SocketFile {
    // Dropped in this order: no new connection finds a listener that is about to close.
    _file: Owned,
    listener: UnixListener,
}

impl SocketFile {
    /// Listens on `path`. The socket that a dead process left there is replaced; anything else there is refused.
    pub async fn bind(path: &Path, mode: SocketMode) -> Result<Self, SocketError> {
        let failed = |step| move |source| SocketError::Failed { path: shown(path), step, source };
        check_path(path)?;
        let lock = lock(path)?;
        clear(path).await?;
        let socket = UnixSocket::new_stream().map_err(failed("made"))?;
        socket.bind(path).map_err(failed("bound"))?;
        let file = Owned::found(path, lock).map_err(failed("found again"))?;
        // Whatever the umask made of the file, nobody connects yet: before `listen` the kernel refuses everyone.
        if let SocketMode::Group(gid) = mode {
            chown(path, None, Some(gid)).map_err(failed("given to its group"))?;
        }
        fs::set_permissions(path, Permissions::from_mode(mode.bits())).map_err(failed("restricted"))?;
        let listener = socket.listen(SOCKET_BACKLOG).map_err(failed("listened on"))?;
        Ok(Self { _file: file, listener })
    }

    pub(crate) async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }
}

/// A file that this process made, and its right to the path.
#[derive(Debug)]
struct Owned {
    path: PathBuf,
    /// Device and inode: the name may meanwhile be another file's.
    id: (u64, u64),
    _lock: File,
}

impl Owned {
    fn found(path: &Path, lock: File) -> io::Result<Self> {
        let found = fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_owned(), id: (found.dev(), found.ino()), _lock: lock })
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.id);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "the socket file stays");
        }
    }
}

fn check_path(path: &Path) -> Result<(), SocketError> {
    let bytes = path.as_os_str().as_bytes().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        return Err(SocketError::TooLong { path: shown(path), bytes });
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let failed = |source| SocketError::Failed { path: shown(path), step: "made in its folder", source };
    let found = fs::metadata(folder).map_err(failed)?;
    // An impostor there could permit anything. The sticky bit does not help: it may be the first to come.
    let ours = [0, Uid::effective().as_raw()].contains(&found.uid());
    if ours && found.mode() & 0o022 == 0 { Ok(()) } else { Err(SocketError::OpenFolder { path: shown(path) }) }
}

/// Keeps other nodes from the path, from before it is looked at. The lock's file stays: whoever removed it could
/// remove another's.
fn lock(path: &Path) -> Result<File, SocketError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let failed = |source| SocketError::Failed { path: shown(path), step: "locked", source };
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(name).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(SocketError::Live { path: shown(path) }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Makes room: a socket that refuses connections has lost its process.
async fn clear(path: &Path) -> Result<(), SocketError> {
    let failed = |step| move |source| SocketError::Failed { path: shown(path), step, source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("looked at")(error)),
        Ok(found) if !found.file_type().is_socket() => return Err(SocketError::NotSocket { path: shown(path) }),
        Ok(_) => {}
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(SocketError::Live { path: shown(path) }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed("replaced"))
        }
        // A queue that is full, or a socket of another kind: nobody's to take.
        Err(error) => Err(failed("taken: it may be in use")(error)),
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
