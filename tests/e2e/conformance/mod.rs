//! AADP §23 on one three-node cluster, each call to another node than the one before, through every door in turn: HTTP,
//! gRPC and the Unix socket. A case has the fixture of §23.1 to itself at each door, under a prefix of its own.

mod approvals;
mod budgets;
mod doors;
mod evidence;
mod fixture;
mod flood;
mod groups;
mod idempotency;
mod later;
mod mandates;
mod messages;
mod ordering;
mod policies;
mod policy_life;
mod records;
mod switches;
mod undo;
mod urls;
mod watch;
