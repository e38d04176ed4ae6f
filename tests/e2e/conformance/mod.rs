//! AADP §23 through HTTP on one three-node cluster, each call to another node than the one before. A case has the
//! fixture of §23.1 to itself, under a prefix of its own.

mod approvals;
mod budgets;
mod evidence;
mod fixture;
mod idempotency;
mod messages;
mod ordering;
