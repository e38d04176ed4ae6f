//! What auditors do with the evidence (AADP §14): search it, prove it, export it.

use placet_core::evidence;
use placet_core::head::SignedHead;
use placet_core::ids::Hash;
use placet_core::merkle::{leaf_hash, verify_consistency, verify_inclusion};
use serde_json::{Value, json};

use super::fixture::{Case, JSON_DOORS, case, case_at};
use crate::harness::{A1, AUDIT, P2, escaped, text};

async fn found(case: &Case, query: &str) -> Vec<Value> {
    case.client().every(AUDIT, &format!("/v1/evidence?{query}"), "evidence").await
}

#[test]
fn evidence_is_found_by_what_it_says() {
    case("rfind", async |case| {
        let action = format!("action_type={}", case.name("pay.small"));
        let permit = case.pay("60").await;
        let denied = case.pay("900").await;
        let body = case.body("pay.small", json!({"payee": "x", "amount_eur": "1"}));
        let foreign = case.client().decide_as(P2, &body).await;
        let done = case.report(text(&permit, "permit_id"), "success").await;
        let at = |reply: &Value| text(reply, "evidence_id").to_owned();
        let (_, _, entry) = case.entry(&at(&permit)).await;
        let digest = text(&entry["body"]["exec_intent"], "permit_digest").to_owned();
        let instant = escaped(text(&entry, "at"));
        let (_, _, last) = case.entry(&at(&done)).await;
        let (all, end) = ([&permit, &denied, &foreign, &done].map(at), escaped(text(&last, "at")));
        for (query, expected) in [
            (action.clone(), all.to_vec()),
            (format!("{action}&since={instant}&until={end}"), all[..3].to_vec()),
            (format!("{action}&until={instant}"), vec![]),
            (format!("{action}&kind=exec_intent"), vec![at(&permit), at(&foreign)]),
            (format!("{action}&principal=P2"), vec![at(&foreign)]),
            (format!("{action}&verdict=deny&reason=bounds"), vec![at(&denied)]),
            (format!("{action}&verdict=observe"), vec![]),
            (format!("request_id={}", text(&denied, "request_id")), vec![at(&denied)]),
            (format!("permit={}", text(&permit, "permit_id")), vec![at(&permit), at(&done)]),
            (format!("permit={digest}&kind=exec_result"), vec![at(&done)]),
        ] {
            let ids: Vec<_> =
                found(&case, &query).await.iter().map(|one| text(one, "evidence_id").to_owned()).collect();
            assert_eq!(ids, expected, "{query}");
        }
        // Page by page, each from where the one before ended; a page may be empty and have more behind it.
        let (mut ids, mut after) = (Vec::new(), String::new());
        loop {
            let page = case.client().get(&format!("/v1/evidence?{action}&limit=1{after}"), AUDIT).await;
            let entries = page["evidence"].as_array().unwrap();
            assert!(entries.len() <= 1);
            ids.extend(entries.iter().map(|one| text(one, "evidence_id").to_owned()));
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(ids, all);
        for wrong in ["kind=nonsense", "verdict=allow", "since=yesterday", "request_id=7", "permit=pmt-1", "limit=1001"]
        {
            let answer = case.client().call("GET", &format!("/v1/evidence?{wrong}"), AUDIT, None).await;
            assert_eq!((answer.status, text(&answer.body, "code")), (400, "invalid"), "{wrong}");
        }
    });
}

/// Goal: a report that came too late and may be about an act is what a human looks for.
#[test]
fn late_reports_that_ask_for_a_human_are_found() {
    case("rlate", async |case| {
        let reply = case.ask("pay.brief", json!({"amount_eur": "60"})).await;
        let permit = text(&reply, "permit_id");
        let query = format!("kind=reservation_expired&request_id={}", text(&reply, "request_id"));
        case.cluster().until("expiry", async || found(&case, &query).await.first().map(drop)).await;
        let late = case.report(permit, "success").await;
        assert_eq!((&late["accepted"], text(&late, "reason")), (&json!(false), "expired"));
        let asked = found(&case, &format!("permit={permit}&reconcile=true")).await;
        let ids: Vec<_> = asked.iter().map(|one| text(one, "evidence_id")).collect();
        assert_eq!(ids, [text(&late, "evidence_id")]);
    });
}

async fn signed(case: &Case) -> SignedHead {
    let view = case.client().done("POST", "/v1/evidence/head", AUDIT, None).await;
    let head: SignedHead = serde_json::from_value(view["signed"].clone()).unwrap();
    assert!(head.verify(), "{view}");
    let (kind, body, _) = case.entry(text(&view, "evidence_id")).await;
    assert_eq!((kind.as_str(), &body), ("head_signed", &view["signed"]));
    head
}

fn hash(value: &Value) -> Hash {
    Hash::parse(value.as_str().unwrap()).unwrap()
}

fn path_of(proof: &Value) -> Vec<Hash> {
    proof["path"].as_array().unwrap().iter().map(hash).collect()
}

#[test]
fn an_entry_is_proved_under_a_signed_head_and_a_head_continues_another() {
    case("rproof", async |case| {
        let entry = text(&case.pay("60").await, "evidence_id").to_owned();
        let index: u64 = entry.trim_start_matches("aud-").parse().unwrap();
        let older = signed(&case).await;
        case.pay("1").await;
        let newer = signed(&case).await;
        let view = case.client().get(&format!("/v1/evidence/{entry}"), AUDIT).await;
        let leaf = leaf_hash(&hash(&view["hash"]));
        for head in [&older, &newer] {
            let (size, root) = (head.head.size, head.head.root);
            let proof = case.client().get(&format!("/v1/evidence/{entry}/proof?size={size}"), AUDIT).await;
            assert_eq!((hash(&proof["root"]), hash(&proof["start"]), &proof["size"]), (root, leaf, &json!(size)));
            assert!(verify_inclusion(&leaf, index - 1, size, &path_of(&proof), &root));
            assert!(!verify_inclusion(&leaf_hash(&root), index - 1, size, &path_of(&proof), &root));
        }
        let (from, to) = (older.head.size, newer.head.size);
        let proof = case.client().get(&format!("/v1/evidence/consistency?from={from}&to={to}"), AUDIT).await;
        assert!(verify_consistency(from, &older.head.root, to, &newer.head.root, &path_of(&proof)));
        assert!(!verify_consistency(from, &newer.head.root, to, &newer.head.root, &path_of(&proof)));
        for wrong in
            [format!("/v1/evidence/{entry}/proof?size=99999999"), "/v1/evidence/consistency?from=9&to=3".to_owned()]
        {
            assert_eq!(case.client().call("GET", &wrong, AUDIT, None).await.status, 400, "{wrong}");
        }
    });
}

/// Goal: an export is the chain itself, line by line, up to the moment of the request. Over HTTP only: it is a stream of
/// JSON Lines; gRPC has `Tail`.
#[test]
fn an_export_is_the_chain_itself() {
    case_at("rexport", JSON_DOORS, async |case| {
        case.pay("60").await;
        let last = case.pay("1").await;
        let answer = case.client().call("GET", "/v1/evidence/export", AUDIT, None).await;
        assert_eq!(answer.status, 200);
        let lines: Vec<&str> = answer.body.as_str().unwrap().lines().collect();
        let mut prev = Hash::GENESIS;
        for (line, index) in lines.iter().zip(1..) {
            let (entry, rest) = line.strip_prefix("{\"entry\":").unwrap().rsplit_once(",\"hash\":\"").unwrap();
            let decoded = evidence::decode(entry.as_bytes()).unwrap();
            assert_eq!((decoded.index.0, decoded.prev), (index, prev));
            prev = evidence::hash(entry.as_bytes());
            assert_eq!(rest, format!("{prev}\"}}"));
        }
        let index: usize = text(&last, "evidence_id").trim_start_matches("aud-").parse().unwrap();
        assert!(lines.len() >= index, "whatever node was asked, what was answered before is in it");
        let rest =
            case.client().call("GET", &format!("/v1/evidence/export?after=aud-{}", index - 2), AUDIT, None).await;
        assert!(rest.body.as_str().is_some_and(|body| body.starts_with(&format!(
            "{}\n{}\n",
            lines[index - 2],
            lines[index - 1]
        ))));
        assert_eq!(case.client().call("GET", "/v1/evidence/export", A1, None).await.status, 403);
    });
}
