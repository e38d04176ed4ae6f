//! Real node processes, real networks and disks, and the faults of both: clusters in network namespaces under load, and
//! what their clients know compared with what their evidence says.
//! Absent on purpose: simulation (`chaos/sim`), which finds more histories; this finds what a simulation leaves out.

pub mod campaign;
pub mod clock;
pub mod cluster;
pub mod dice;
pub mod disk;
pub mod doors;
pub mod evidence;
pub mod journal;
pub mod load;
pub mod means;
pub mod network;
pub mod picture;
pub mod properties;
pub mod relay;
pub mod report;
pub mod requests;
pub mod run;
pub mod sandbox;
pub mod secrets;
pub mod summary;
pub mod timeline;
