//! Which role each operation needs: one table for both doors (AADP §15.1).
//! Absent on purpose: any other place that grants access. A route or method without a row here is not served.
//! INVARIANT (one table): a request passes a door only through its row.

use serde::Deserialize;

/// What a caller may do. A token or a peer of the socket holds exactly the roles that it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Asks for decisions, reports on its own permits, and hears what becomes of them.
    Decide,
    /// Resolves approvals, and hands in what the mandate authority signed.
    Approve,
    /// Kill switch, members, open permits, counters, backups.
    Operate,
    /// Publishes policies and puts them in force.
    Policy,
    /// Reads evidence and the state around it, and has its head signed.
    Audit,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 5] = [Self::Decide, Self::Approve, Self::Operate, Self::Policy, Self::Audit];

    /// The word in a keyring.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Decide => "decide",
            Self::Approve => "approve",
            Self::Operate => "operate",
            Self::Policy => "policy",
            Self::Audit => "audit",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == word)
    }
}

/// Who may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anyone; a token, if one is sent, must be known.
    Open,
    /// Any known caller.
    AnyToken,
    /// A caller with one of these roles.
    AnyOf(&'static [Role]),
}

/// Which bound a call counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Decides and reports: the flood.
    Decide,
    /// Everything else that must still work during a flood.
    Admin,
    /// The kill switch, which must work whatever else is asked.
    Control,
    /// Healths that are watched.
    HealthWatch,
    /// The schema.
    Reflection,
    /// Probes, and streams that have their own bounds: not counted here.
    Free,
}

/// One operation and its names at the doors.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// HTTP method and route, as the router spells it.
    pub http: Option<(&'static str, &'static str)>,
    /// gRPC path.
    pub grpc: Option<&'static str>,
    /// Who may.
    pub access: Access,
    /// Which bound.
    pub lane: Lane,
}

const DECIDE: Access = Access::AnyOf(&[Role::Decide]);
const APPROVE: Access = Access::AnyOf(&[Role::Approve]);
const READ_APPROVALS: Access = Access::AnyOf(&[Role::Approve, Role::Audit]);
const OPERATE: Access = Access::AnyOf(&[Role::Operate]);
const READ_OPERATIONS: Access = Access::AnyOf(&[Role::Operate, Role::Audit]);
const POLICY: Access = Access::AnyOf(&[Role::Policy]);
const READ_POLICIES: Access = Access::AnyOf(&[Role::Policy, Role::Audit]);
const AUDIT: Access = Access::AnyOf(&[Role::Audit]);

/// The table.
pub const TABLE: &[Row] = &[
    both("POST", "/v1/decide", "/placet.v1.DecisionService/Decide", DECIDE, Lane::Decide),
    both("POST", "/v1/report", "/placet.v1.DecisionService/Report", DECIDE, Lane::Decide),
    grpc("/placet.v1.DecisionService/Stream", DECIDE, Lane::Free),
    both("POST", "/v1/permits/check", "/placet.v1.DecisionService/CheckPermit", DECIDE, Lane::Decide),
    grpc("/placet.v1.DecisionService/WatchPermits", DECIDE, Lane::Free),
    both("GET", "/v1/static", "/placet.v1.DecisionService/ListStatic", DECIDE, Lane::Decide),
    both("POST", "/v1/local", "/placet.v1.DecisionService/RecordLocal", DECIDE, Lane::Decide),
    both("GET", "/v1/approvals", "/placet.v1.ApprovalService/List", READ_APPROVALS, Lane::Admin),
    both("GET", "/v1/approvals/{id}", "/placet.v1.ApprovalService/Get", READ_APPROVALS, Lane::Admin),
    both("POST", "/v1/approvals/{id}/grant", "/placet.v1.ApprovalService/Grant", APPROVE, Lane::Admin),
    both("POST", "/v1/approvals/{id}/deny", "/placet.v1.ApprovalService/Deny", APPROVE, Lane::Admin),
    both("POST", "/v1/approvals/{id}/approve", "/placet.v1.ApprovalService/Approve", APPROVE, Lane::Admin),
    both("POST", "/v1/approvals/{id}/ratify", "/placet.v1.ApprovalService/Ratify", APPROVE, Lane::Admin),
    both("POST", "/v1/mandates", "/placet.v1.ApprovalService/SetMandate", APPROVE, Lane::Admin),
    both("GET", "/v1/killswitch", "/placet.v1.ControlService/GetKillSwitch", READ_OPERATIONS, Lane::Control),
    both("POST", "/v1/killswitch", "/placet.v1.ControlService/SetKillSwitch", OPERATE, Lane::Control),
    both("GET", "/v1/policies", "/placet.v1.PolicyService/Get", READ_POLICIES, Lane::Admin),
    http("GET", "/v1/policies/{digest}", READ_POLICIES, Lane::Admin),
    // Over HTTP: `GET /v1/policies?all=true`.
    grpc("/placet.v1.PolicyService/List", READ_POLICIES, Lane::Admin),
    both("POST", "/v1/policies", "/placet.v1.PolicyService/Publish", POLICY, Lane::Admin),
    both("POST", "/v1/policies/{digest}/activate", "/placet.v1.PolicyService/Activate", POLICY, Lane::Admin),
    both("DELETE", "/v1/policies/{digest}", "/placet.v1.PolicyService/Drop", POLICY, Lane::Admin),
    both("GET", "/v1/evidence/{id}", "/placet.v1.EvidenceService/Get", AUDIT, Lane::Admin),
    both("GET", "/v1/evidence", "/placet.v1.EvidenceService/Find", AUDIT, Lane::Admin),
    both("POST", "/v1/evidence/head", "/placet.v1.EvidenceService/SignHead", AUDIT, Lane::Admin),
    both("GET", "/v1/evidence/{id}/proof", "/placet.v1.EvidenceService/ProveInclusion", AUDIT, Lane::Admin),
    both("GET", "/v1/evidence/consistency", "/placet.v1.EvidenceService/ProveConsistency", AUDIT, Lane::Admin),
    http("GET", "/v1/evidence/export", AUDIT, Lane::Free),
    grpc("/placet.v1.EvidenceService/Tail", AUDIT, Lane::Free),
    both("GET", "/v1/intents", "/placet.v1.ClusterService/ListIntents", READ_OPERATIONS, Lane::Admin),
    both("GET", "/v1/budgets", "/placet.v1.ClusterService/ListBudgets", READ_OPERATIONS, Lane::Admin),
    both("GET", "/v1/cluster", "/placet.v1.ClusterService/Status", READ_OPERATIONS, Lane::Admin),
    // It holds permits, which are capabilities: for who could add a node and get them all the same.
    both("GET", "/v1/cluster/backup", "/placet.v1.ClusterService/Backup", OPERATE, Lane::Free),
    both("POST", "/v1/cluster/members", "/placet.v1.ClusterService/AddLearner", OPERATE, Lane::Admin),
    both("POST", "/v1/cluster/members/{id}/promote", "/placet.v1.ClusterService/Promote", OPERATE, Lane::Admin),
    both("DELETE", "/v1/cluster/members/{id}", "/placet.v1.ClusterService/Remove", OPERATE, Lane::Admin),
    both("POST", "/v1/cluster/leader", "/placet.v1.ClusterService/TransferLeader", OPERATE, Lane::Admin),
    both("GET", "/v1/health", "/grpc.health.v1.Health/Check", Access::Open, Lane::Free),
    grpc("/grpc.health.v1.Health/Watch", Access::Open, Lane::HealthWatch),
    // The schema is public; what it describes is not.
    grpc("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Access::Open, Lane::Reflection),
    http("GET", "/metrics", Access::AnyToken, Lane::Free),
];

const fn both(method: &'static str, route: &'static str, path: &'static str, access: Access, lane: Lane) -> Row {
    Row { http: Some((method, route)), grpc: Some(path), access, lane }
}

const fn http(method: &'static str, route: &'static str, access: Access, lane: Lane) -> Row {
    Row { http: Some((method, route)), grpc: None, access, lane }
}

const fn grpc(path: &'static str, access: Access, lane: Lane) -> Row {
    Row { http: None, grpc: Some(path), access, lane }
}

/// The row of an HTTP route.
pub fn http_row(method: &str, route: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.http == Some((method, route)))
}

/// The row of a gRPC method.
pub fn grpc_row(path: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.grpc == Some(path))
}

/// The methods of an HTTP route, for `Allow`.
pub fn methods(route: &str) -> String {
    let methods = TABLE.iter().filter_map(|row| row.http).filter(|(_, of)| *of == route).map(|(method, _)| method);
    methods.collect::<Vec<_>>().join(", ")
}
