//! What a node says about itself and its cluster: nouns shared by doors and replica.
//! Absent on purpose: how any of it is found out.

use serde::{Deserialize, Serialize};

use crate::ids::{EvidenceIndex, Hash};

/// Where a member listens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAddresses {
    /// `host:port` of the peer door.
    pub peer: String,
    /// URL of the HTTP door.
    pub http: String,
    /// URL of the gRPC door.
    pub grpc: String,
}

impl MemberAddresses {
    /// Names the first address that nobody could connect to.
    pub fn check(&self) -> Result<(), String> {
        let (host, port) = self.peer.rsplit_once(':').unwrap_or_default();
        if host.is_empty() || !port.parse::<u16>().is_ok_and(|port| port > 0) {
            return Err(format!("`peer` is `{}`, not HOST:PORT", self.peer));
        }
        for (name, url) in [("http", &self.http), ("grpc", &self.grpc)] {
            let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
            if host.is_none_or(str::is_empty) {
                return Err(format!("`{name}` is `{url}`, not a URL such as https://pdp-1.example:7101"));
            }
        }
        Ok(())
    }
}

/// How a member takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberRole {
    /// Counts for the quorum.
    Voter,
    /// Receives the log, does not count.
    Learner,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the facts of a member")]
pub struct MemberView {
    pub id: u64,
    pub role: MemberRole,
    pub addresses: MemberAddresses,
    /// Last log index that this member is known to hold; only the leader knows.
    pub matched_index: Option<u64>,
    /// What the node that answers last heard from this member itself; absent when it never did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub heard: Option<HeardView>,
}

/// What a member said about itself when it was last asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeardView {
    /// How long ago; more than a few seconds: it does not answer now.
    pub ago_ms: u64,
    /// Time from question to answer.
    pub round_trip_ms: u64,
    /// Its clock minus the clock of the node that answers, corrected by half of the round trip.
    pub clock_ahead_ms: i64,
    /// Its program's version; empty when it did not say.
    pub version: String,
    /// The newest format of log records that it knows; 0 when it did not say.
    pub log_format: u32,
    /// Last index in its log.
    pub last_log_index: u64,
    /// Last index that it applied.
    pub applied_index: u64,
    /// It lost its data and gives no votes yet.
    pub recovering: bool,
}

/// Whether a node's clock can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockState {
    /// More than half of the voters' clocks agree with it.
    Trusted,
    /// More than half of the voters' clocks agree with each other and not with it.
    Off,
    /// No clock agrees with more than half of the voters' clocks.
    Split,
    /// Too few voters have answered yet.
    Unknown,
}

/// A node's clock beside those of the voters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockView {
    /// Whether it can be believed.
    pub state: ClockState,
    /// How far it is ahead of the median of the voters' clocks; negative: behind.
    pub offset_ms: Option<i64>,
    /// How far two clocks may be apart and still agree.
    pub bound_ms: u64,
    /// How far the last entry's stamp is ahead of it: until then nothing expires. 0 when time passes as it should.
    pub stamp_ahead_ms: u64,
}

/// The cluster as one node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterView {
    /// The node that answers.
    pub node_id: u64,
    /// Who leads, if known here.
    pub leader_id: Option<u64>,
    /// Raft term.
    pub term: u64,
    /// Voters and learners.
    pub members: Vec<MemberView>,
    /// Last Raft index in the log here.
    pub last_log_index: u64,
    /// Last Raft index applied here.
    pub applied_index: u64,
    /// Last Raft index covered by a snapshot here.
    pub snapshot_index: u64,
    /// Last evidence entry applied here.
    pub evidence_index: EvidenceIndex,
    /// Hash of that entry: equal on every node that applied the same entries.
    pub chain_head: Hash,
    /// The clock here.
    pub clock: ClockView,
    /// The program's version here.
    pub version: String,
    /// The newest format of log records that this node reads and writes.
    pub log_format: u32,
    /// What names the cluster: the hash of its first entry, or what was drawn when it was restored.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cluster: Option<Hash>,
}

/// Whether a node can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthStatus {
    /// It leads, or knows who leads.
    Serving,
    /// It knows no leader with a quorum.
    NoLeader,
    /// Its clock does not agree with those of a majority; the detail says how far it is off.
    ClockOff,
    /// It was told to stop: it still answers, and is to be asked nothing new.
    Stopping,
    /// It has stopped for good; the detail says why.
    Fatal,
}

/// The answer of `GET /v1/health`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the facts of AADP §15.1")]
pub struct Health {
    pub status: HealthStatus,
    pub node_id: u64,
    pub leader_id: Option<u64>,
    /// As applied on this node.
    pub kill_switch: bool,
    /// Permits without a report, as applied on this node.
    pub pending_intents: u64,
    /// Reports that came after their permit had expired, although the act may have happened: for a human to reconcile.
    pub late_reports: u64,
    /// `false` only under `--unsafe-no-fsync`.
    pub durable: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub detail: Option<String>,
}

/// A change of the cluster's members, or of which of them leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MembershipChange {
    /// Starts to send the log to a node that does not count yet.
    AddLearner {
        /// The new node's id.
        id: u64,
        /// Where it listens.
        addresses: MemberAddresses,
    },
    /// Makes a learner that has caught up a voter.
    Promote {
        /// Which.
        id: u64,
    },
    /// Removes a voter or a learner.
    Remove {
        /// Which.
        id: u64,
    },
    /// Hands the leadership to a voter that is up to date.
    TransferLeader {
        /// Which; `None` leaves the choice to the leader.
        to: Option<u64>,
    },
}
