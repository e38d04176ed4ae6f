//! `placet evidence proof` and `placet evidence consistency`: a node's proofs, checked here against heads that were kept.

use std::path::Path;

use placet_core::event::Entry;
use placet_core::evidence;
use placet_core::export::{Failure, Kind, Verifier};
use placet_core::head::SignedHead;
use placet_core::ids::EvidenceIndex;
use placet_core::merkle::{leaf_hash, verify_consistency, verify_inclusion};
use placet_core::op::ProofView;
use serde_json::{Value, json};

use super::failed;
use super::offline::{read_heads, read_trust};
use crate::cli::{Target, TrustArgs};
use crate::client::{Client, Request};
use crate::commands::{print, segment};

/// That an entry is under the newest of the given heads that is large enough.
pub(super) async fn inclusion(target: &Target, client: &Client, id: &str, trust: &TrustArgs) -> anyhow::Result<()> {
    let Some(index) = EvidenceIndex::parse(id) else {
        anyhow::bail!("`{id}` is not an evidence id such as aud-17");
    };
    let trust = read_trust(trust)?;
    Verifier::new(trust.clone()).map_err(|failure| failed(&failure))?;
    let Some(signed) = trust.heads.iter().max_by_key(|signed| signed.head.size) else {
        anyhow::bail!("--head FILE holds no signed head");
    };
    let head = &signed.head;
    anyhow::ensure!(index.0 <= head.size, "entry `{index}` is not under a head over {} entries", head.size);
    let shown = client.send(&Request::get(format!("/v1/evidence/{}", segment(id)))).await?;
    // The node's JSON has the members of the entry in their order, so this is its canonical spelling.
    let bytes = shown.get("entry").map(Value::to_string).unwrap_or_default().into_bytes();
    let fail =
        |kind, detail: &str| Err(failed(&Failure { kind, entry: Some(index), line: 0, detail: detail.to_owned() }));
    let it_is = |entry: Entry| entry.index == index && evidence::is_canonical(&entry, &bytes, &mut Vec::new());
    if !evidence::decode(&bytes).is_ok_and(it_is) {
        return fail(Kind::Unreadable, "the node's answer is not this entry");
    }
    let path = format!("/v1/evidence/{}/proof?size={}", segment(id), head.size);
    let proof: ProofView = serde_json::from_value(client.send(&Request::get(path)).await?)?;
    let (hash, leaf) = (evidence::hash(&bytes), index.0.saturating_sub(1));
    if !verify_inclusion(&leaf_hash(&hash), leaf, head.size, &proof.path, &head.root) {
        return fail(Kind::Tree, "the proof does not lead from this entry to the signed root");
    }
    let body = json!({"evidence_id": id, "hash": hash, "head": signed, "path": proof.path});
    print(target.output, &body, |_| {
        format!(
            "proved: entry `{index}` is under the head over {} entries, signed {} by {}",
            head.size, head.at, signed.key
        )
    });
    Ok(())
}

/// That the evidence under the new head begins with the evidence under the old one.
pub(super) async fn consistency(
    target: &Target,
    client: &Client,
    old: &Path,
    new: &Path,
    keys: &[String],
) -> anyhow::Result<()> {
    let [old, new] = [one(old)?, one(new)?];
    let trust = TrustArgs { head: Vec::new(), key: keys.to_vec() };
    let trust = placet_core::export::Trust { heads: vec![old.clone(), new.clone()], ..read_trust(&trust)? };
    Verifier::new(trust).map_err(|failure| failed(&failure))?;
    let (from, to) = (&old.head, &new.head);
    anyhow::ensure!(from.size <= to.size, "the old head is over {} entries, the new one over {}", from.size, to.size);
    let path = if from.size == 0 || from.size == to.size {
        Vec::new()
    } else {
        let path = format!("/v1/evidence/consistency?from={}&to={}", from.size, to.size);
        serde_json::from_value::<ProofView>(client.send(&Request::get(path)).await?)?.path
    };
    let same_chain = from.size < to.size || from.chain_head == to.chain_head;
    if !same_chain || !verify_consistency(from.size, &from.root, to.size, &to.root, &path) {
        let detail = format!(
            "the evidence under the head over {} entries does not begin with that under the head over {}",
            to.size, from.size
        );
        return Err(failed(&Failure { kind: Kind::Contradiction, entry: None, line: 0, detail }));
    }
    print(target.output, &json!({"from": old, "to": new, "path": path}), |_| {
        format!("proved: the first {} of {} entries are those of the old head", from.size, to.size)
    });
    Ok(())
}

/// The newest head of a file.
fn one(path: &Path) -> anyhow::Result<SignedHead> {
    let newest = read_heads(path)?.into_iter().max_by_key(|signed| signed.head.size);
    newest.ok_or_else(|| anyhow::anyhow!("`{}` holds no signed head", path.display()))
}
