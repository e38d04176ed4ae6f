//! Compiles the protobuf files in Rust: no `protoc` on the machine.

use std::error::Error;
use std::path::PathBuf;

use prost::Message;

const PROTO_ROOT: &str = "../../proto";
const FILES: [&str; 2] = ["placet/v1/placet.proto", "placet/internal/v1/peer.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO_ROOT}");
    let descriptors = protox::compile(FILES, [PROTO_ROOT])?;
    // The public descriptors alone: reflection shows doors, not peers.
    let public = protox::compile(FILES.iter().take(1), [PROTO_ROOT])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("placet.v1.descriptors.bin"), public.encode_to_vec())?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
