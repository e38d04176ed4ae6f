//! AADP §23 on one three-node cluster, each call to another node than the one before, through every door in turn: HTTP,
//! gRPC and the Unix socket. A case has the fixture of §23.1 to itself at each door, under a prefix of its own.

mod approvals;
mod budgets;
mod evidence;
mod fixture;
mod idempotency;
mod messages;
mod ordering;
mod policies;
