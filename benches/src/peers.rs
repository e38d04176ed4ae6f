//! What we are compared with, each as its own documentation starts it, on the same disk.
//! Absent on purpose: tuning that would weaken a peer.

pub(crate) mod disk;
pub(crate) mod etcd;
pub(crate) mod onedoor;
pub(crate) mod redis;
