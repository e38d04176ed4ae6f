//! Who takes part in a run, with which token, and the certificates of its doors.
//! Absent on purpose: secrecy. They live for one run, in namespaces that nobody else reaches.

use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};

use crate::sandbox::{NODES_MAX, address, relay_address};

/// The principals that ask, one for each client.
pub const CLIENTS_MAX: usize = 16;
pub const OPERATE: &str = "token-of-the-operator";
pub const POLICY: &str = "token-of-the-policy-desk";
pub const AUDIT: &str = "token-of-the-auditor";
/// The approvers; all of them must grant.
pub const APPROVERS: [(&str, &str); 2] = [("A1", "token-of-approver-one"), ("A2", "token-of-approver-two")];

/// The principal of a client.
pub fn principal(client: usize) -> String {
    format!("P{client}")
}

/// Its token.
pub fn token(client: usize) -> String {
    format!("token-of-principal-{client:02}")
}

/// Writes keyring and certificates into `folder`.
pub fn write(folder: &Path) -> anyhow::Result<()> {
    let entry =
        |principal: &str, role: &str, token: &str| json!({"principal": principal, "roles": [role], "token": token});
    let mut keyring: Vec<Value> =
        (0..CLIENTS_MAX).map(|client| entry(&principal(client), "decide", &token(client))).collect();
    keyring.extend(APPROVERS.iter().map(|(name, token)| entry(name, "approve", token)));
    keyring.extend([entry("O1", "operate", OPERATE), entry("D1", "policy", POLICY), entry("X1", "audit", AUDIT)]);
    std::fs::write(folder.join("tokens.json"), Value::Array(keyring).to_string())?;
    certificates(folder).context("certificates")
}

/// An authority and one certificate for all nodes, by name and by every address that a node can be reached at.
fn certificates(folder: &Path) -> anyhow::Result<()> {
    let mut authority = rcgen::CertificateParams::new(Vec::<String>::new())?;
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_key = rcgen::KeyPair::generate()?;
    let ca = authority.self_signed(&ca_key)?;
    let issuer = rcgen::Issuer::new(authority, ca_key);
    let mut names = vec!["localhost".to_owned()];
    names.extend((1..=NODES_MAX).flat_map(|id| [address(id), relay_address(id)]));
    let key = rcgen::KeyPair::generate()?;
    let node = rcgen::CertificateParams::new(names)?.signed_by(&key, &issuer)?;
    std::fs::write(folder.join("ca.pem"), ca.pem())?;
    std::fs::write(folder.join("node.pem"), node.pem())?;
    std::fs::write(folder.join("node.key"), key.serialize_pem())?;
    Ok(())
}
