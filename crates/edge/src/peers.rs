//! Who is at the other end of a Unix socket: the kernel's word, and the table that gives it a principal (AADP §15.2).
//! Absent on purpose: tokens. On the socket a process is who the kernel says it is, and a request that brings a token
//! as well is refused, so that a call never has two identities.

use std::collections::BTreeMap;
use std::fmt;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use nix::unistd::{Group, User};
use serde::Deserialize;
use thiserror::Error;

use crate::auth::{Caller, Presented};

/// What the kernel shows instead of a user or group that has no number here, such as one of another user namespace.
/// An entry for it would let in every stranger at once.
const OVERFLOW_ID: u32 = 65_534;

/// "No id" in system calls.
const NO_ID: u32 = u32::MAX;

/// One row of the table: exactly one of `uid`, `user`, `gid` and `group`, and whom it stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerEntry {
    /// Number of a user.
    pub uid: Option<u32>,
    /// Name of a user, looked up once at start.
    pub user: Option<String>,
    /// Number of a group: the one the process runs with; supplementary groups do not count.
    pub gid: Option<u32>,
    /// Name of a group, looked up once at start.
    pub group: Option<String>,
    /// Who such a process is.
    pub principal: String,
    /// What it may do.
    pub roles: Vec<String>,
}

/// Known users and groups of this host.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    users: BTreeMap<u32, Caller>,
    groups: BTreeMap<u32, Caller>,
}

/// Why a table cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PeersError {
    /// Nobody could call.
    #[error("the socket has no peer: nobody could call")]
    Empty,
    /// An entry is wrong.
    #[error("peer {number} (`{principal}`) {detail}")]
    Entry {
        /// From 1.
        number: usize,
        /// Whom it stands for.
        principal: String,
        /// What is wrong and which form is accepted.
        detail: String,
    },
}

impl Peers {
    /// Reads the table; two entries for one user or one group are a mistake, because only one of them could count.
    pub fn new(entries: &[PeerEntry]) -> Result<Self, PeersError> {
        if entries.is_empty() {
            return Err(PeersError::Empty);
        }
        let mut peers = Self::default();
        let mut seen = BTreeMap::new();
        for (at, entry) in entries.iter().enumerate() {
            let number = at + 1;
            let wrong = |detail| PeersError::Entry { number, principal: entry.principal.clone(), detail };
            let id = entry.id().map_err(wrong)?;
            let caller = Caller::new(&entry.principal, &entry.roles).map_err(wrong)?;
            if let Some(first) = seen.insert(id, number) {
                return Err(wrong(format!("is for {id}, as peer {first} is")));
            }
            match id {
                Id::User(uid) => peers.users.insert(uid, caller),
                Id::Group(gid) => peers.groups.insert(gid, caller),
            };
        }
        Ok(peers)
    }

    /// Who a process is: the entry of its user, or else of its group.
    pub fn find(&self, uid: u32, gid: u32) -> Option<&Caller> {
        self.users.get(&uid).or_else(|| self.groups.get(&gid))
    }

    pub(crate) fn recognize(&self, uid: u32, gid: u32) -> Peer {
        Peer { uid, gid, caller: self.find(uid, gid).cloned() }
    }
}

/// The number of a user of this host.
pub fn user_id(name: &str) -> Result<u32, String> {
    match User::from_name(name) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err(format!("names the user `{name}`, which this host does not know")),
        Err(error) => Err(format!("names the user `{name}`, which cannot be looked up: {error}")),
    }
}

/// The number of a group of this host.
pub fn group_id(name: &str) -> Result<u32, String> {
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err(format!("names the group `{name}`, which this host does not know")),
        Err(error) => Err(format!("names the group `{name}`, which cannot be looked up: {error}")),
    }
}

/// A process that connected, as the kernel named it then. Connections carry it to the guard; no header can.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    uid: u32,
    gid: u32,
    caller: Option<Caller>,
}

impl Peer {
    pub(crate) fn presented(&self, headers: &HeaderMap) -> Presented {
        if headers.contains_key(AUTHORIZATION) {
            return Presented::Twice;
        }
        match &self.caller {
            Some(caller) => Presented::Known(caller.clone()),
            None => Presented::Unmapped { uid: self.uid, gid: self.gid },
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Id {
    User(u32),
    Group(u32),
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Group(gid) => write!(f, "group {gid}"),
        }
    }
}

impl PeerEntry {
    fn id(&self) -> Result<Id, String> {
        let id = match (self.uid, &self.user, self.gid, &self.group) {
            (Some(uid), None, None, None) => Id::User(uid),
            (None, Some(name), None, None) => Id::User(user_id(name)?),
            (None, None, Some(gid), None) => Id::Group(gid),
            (None, None, None, Some(name)) => Id::Group(group_id(name)?),
            _ => return Err("takes exactly one of `uid`, `user`, `gid` and `group`".to_owned()),
        };
        match id {
            Id::User(OVERFLOW_ID | NO_ID) | Id::Group(OVERFLOW_ID | NO_ID) => {
                Err(format!("is for {id}, which stands for everyone whom this host does not know"))
            }
            _ => Ok(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(change: impl FnOnce(&mut PeerEntry)) -> PeerEntry {
        let mut entry =
            PeerEntry { principal: "agent".to_owned(), roles: vec!["decide".to_owned()], ..PeerEntry::default() };
        change(&mut entry);
        entry
    }

    #[test]
    fn a_user_counts_before_a_group() {
        let peers = Peers::new(&[
            entry(|entry| (entry.gid, entry.principal) = (Some(7), "group".to_owned())),
            entry(|entry| (entry.uid, entry.principal) = (Some(7), "user".to_owned())),
            entry(|entry| (entry.user, entry.principal) = (Some("root".to_owned()), "root".to_owned())),
        ])
        .unwrap();
        for (uid, gid, who) in
            [(7, 7, Some("user")), (7, 8, Some("user")), (8, 7, Some("group")), (8, 8, None), (0, 7, Some("root"))]
        {
            assert_eq!(peers.find(uid, gid).map(|caller| caller.principal.as_str()), who, "{uid} {gid}");
        }
    }

    #[test]
    fn an_unclear_table_is_refused() {
        let one = |change: fn(&mut PeerEntry)| entry(change);
        for (second, says) in [
            (one(|entry| entry.uid = Some(1000)), "peer 2 (`agent`) is for user 1000, as peer 1 is"),
            (one(|_| ()), "exactly one of"),
            (one(|entry| (entry.uid, entry.gid) = (Some(1), Some(1))), "exactly one of"),
            (one(|entry| (entry.uid, entry.user) = (Some(0), Some("root".to_owned()))), "exactly one of"),
            (one(|entry| entry.user = Some("no-such-user".to_owned())), "the user `no-such-user`, which this host"),
            (one(|entry| entry.group = Some("no-such-group".to_owned())), "the group `no-such-group`, which this host"),
            (one(|entry| entry.uid = Some(OVERFLOW_ID)), "everyone whom"),
            (one(|entry| entry.gid = Some(NO_ID)), "everyone whom"),
            (one(|entry| (entry.uid, entry.roles) = (Some(1), Vec::new())), "has no role"),
            (one(|entry| (entry.uid, entry.roles) = (Some(1), vec!["admin".to_owned()])), "unknown role `admin`"),
            (one(|entry| (entry.uid, entry.principal) = (Some(1), "placet:system".to_owned())), "reserved"),
        ] {
            let error = Peers::new(&[entry(|entry| entry.uid = Some(1000)), second]).unwrap_err().to_string();
            assert!(error.starts_with("peer 2") && error.contains(says), "{says}: {error}");
        }
        assert_eq!(Peers::new(&[]).unwrap_err(), PeersError::Empty);
        // The numbers of users and groups are apart.
        assert!(Peers::new(&[entry(|entry| entry.uid = Some(1)), entry(|entry| entry.gid = Some(1))]).is_ok());
    }
}
