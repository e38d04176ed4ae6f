//! The only crate that knows bytes: protobuf services for doors and peers, and the codec of log records.
//! Absent on purpose: sockets, files and judgement.

pub mod archive;
pub mod log;

/// Services and messages of `placet.v1`: what clients speak.
pub mod v1 {
    #![allow(
        missing_docs,
        missing_debug_implementations,
        clippy::allow_attributes_without_reason,
        reason = "generated code"
    )]
    #![allow(clippy::all, clippy::pedantic, unreachable_pub, reason = "generated code")]
    tonic::include_proto!("placet.v1");

    /// Descriptors of `placet.v1`, for reflection.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/placet.v1.descriptors.bin"));
}

/// Services and messages of `placet.internal.v1`: what nodes speak to each other.
pub mod peer {
    #![allow(
        missing_docs,
        missing_debug_implementations,
        clippy::allow_attributes_without_reason,
        reason = "generated code"
    )]
    #![allow(clippy::all, clippy::pedantic, unreachable_pub, reason = "generated code")]
    tonic::include_proto!("placet.internal.v1");
}
