//! The Unix door from outside: one process per principal, each with a user id of its own, relays local TCP ports to
//! the nodes' sockets, so that the HTTP client can be every principal.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::{A1, A2, A3, AUDIT, OPERATE, P1, P2, POLICY, PRINCIPALS};

/// The group of the socket's file, and of everyone here.
pub const GROUP: u32 = 7100;

/// Principals as their tokens, from user 7101 on. The last is nobody's: no peer is configured for 7199.
const USERS: &[(&str, u32)] = &[
    (P1, 7101),
    (P2, 7102),
    (A1, 7103),
    (A2, 7104),
    (A3, 7105),
    (OPERATE, 7106),
    (POLICY, 7107),
    (AUDIT, 7108),
    ("", 7199),
];

/// Whether this process may become other users; without it there is no Unix door in these tests.
pub fn can_become_others() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// The socket of a node, in a folder that other users can reach.
pub fn socket(folder: &Path, id: u64) -> PathBuf {
    folder.join("run").join(format!("node-{id}.sock"))
}

/// `[unix]` of a node's configuration.
pub fn config(folder: &Path, id: u64) -> String {
    let path = socket(folder, id);
    let mut text = format!("[unix]\npath = \"{}\"\nmode = \"0660\"\ngid = {GROUP}\n", path.display());
    for (principal, role, token) in PRINCIPALS {
        let uid = USERS.iter().find(|(of, _)| of == token).unwrap().1;
        text.push_str(&format!("[[unix.peers]]\nuid = {uid}\nprincipal = \"{principal}\"\nroles = [\"{role}\"]\n"));
    }
    text
}

#[derive(Debug)]
pub struct Relay {
    process: Child,
    /// By user, then by node.
    ports: Vec<Vec<u16>>,
}

impl Relay {
    pub fn start(sockets: &[PathBuf]) -> Self {
        let users: Vec<Value> = USERS.iter().map(|(_, uid)| json!({"uid": uid, "gid": GROUP})).collect();
        let sockets: Vec<_> = sockets.iter().map(|path| path.to_str().unwrap()).collect();
        let mut process = Command::new("python3")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/clients/as_user.py"))
            .arg(json!({"users": users, "sockets": sockets}).to_string())
            // Closed when this process ends, however it ends; the relay ends with it.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { process, ports: serde_json::from_str(&line).unwrap() }
    }

    pub fn nodes(&self) -> usize {
        self.ports[0].len()
    }

    /// Where a principal reaches a node.
    pub fn base(&self, id: u64, token: &str) -> String {
        let user = USERS.iter().position(|(of, _)| *of == token).unwrap();
        format!("http://127.0.0.1:{}", self.ports[user][id as usize - 1])
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
