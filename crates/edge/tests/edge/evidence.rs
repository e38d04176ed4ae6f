//! Evidence beyond one entry: searches, proofs, signed heads and exports (AADP §14).

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use placet_core::ids::{ActionType, EvidenceIndex, Hash, PermitId, Principal, RequestId};
use placet_core::op::{EvidenceFilter, Op, Query, Reject};
use placet_core::reply::Verdict;
use placet_core::stamp::Stamp;
use placet_wire::v1;
use placet_wire::v1::evidence_service_client::EvidenceServiceClient;
use serde_json::json;
use tokio::net::TcpStream;
use tonic::Code;

use crate::client::{ask, channel, signed};
use crate::fake::{PERMIT_ID, REQUEST_ID, signed_head};
use crate::house::{ALL, House};

fn permit() -> Option<Hash> {
    Some(PermitId::new(PERMIT_ID).digest())
}

#[tokio::test]
async fn a_search_reads_its_words() {
    let house = House::open().await;
    house.fake.record(7, "{}");
    let digest = permit().unwrap();
    for (query, filter) in [
        ("since=2026-08-17T09:00:00Z", EvidenceFilter { since: Stamp::parse("2026-08-17T09:00:00Z"), ..none() }),
        ("until=2026-08-17T09:00:00Z", EvidenceFilter { until: Stamp::parse("2026-08-17T09:00:00Z"), ..none() }),
        ("kind=exec_intent", EvidenceFilter { kind: Some("exec_intent".into()), ..none() }),
        ("action_type=pay.small", EvidenceFilter { action_type: Some(ActionType::new("pay.small")), ..none() }),
        ("principal=agent", EvidenceFilter { principal: Some(Principal::new("agent")), ..none() }),
        ("verdict=dry_run", EvidenceFilter { verdict: Some(Verdict::DryRun), ..none() }),
        ("reason=x-vendor", EvidenceFilter { reason: Some("x-vendor".into()), ..none() }),
        (
            &format!("request_id={}", REQUEST_ID.to_uppercase()),
            EvidenceFilter { request_id: Some(RequestId::new(REQUEST_ID)), ..none() },
        ),
        (&format!("permit={PERMIT_ID}"), EvidenceFilter { permit: permit(), ..none() }),
        (&format!("permit={digest}"), EvidenceFilter { permit: permit(), ..none() }),
        (
            "reconcile=true&kind=report_refused",
            EvidenceFilter { kind: Some("report_refused".into()), reconcile: true, ..none() },
        ),
    ] {
        let got = ask("GET", format!("/v1/evidence?{query}&after=aud-2&limit=5")).of(&house).await;
        assert_eq!((got.status.as_u16(), &got.json()["next"]), (200, &"aud-7".into()), "{query}: {}", got.text);
        let asked = Query::EvidenceFind { after: EvidenceIndex(2), limit: 5, filter };
        assert_eq!(house.fake.last().op, Op::Query(asked), "{query}");
    }
    let mut client = EvidenceServiceClient::new(channel(&house).await);
    let find = v1::FindEvidenceRequest { permit: PERMIT_ID.into(), verdict: "permit".into(), ..Default::default() };
    let found = client.find(signed(find)).await.unwrap().into_inner();
    assert_eq!((found.evidence[0].evidence_id.as_str(), found.next.as_str()), ("aud-7", "aud-7"));
    let filter = EvidenceFilter { permit: permit(), verdict: Some(Verdict::Permit), ..none() };
    let asked = Query::EvidenceFind { after: EvidenceIndex(0), limit: 100, filter };
    assert_eq!(house.fake.last().op, Op::Query(asked));
    let bad = v1::FindEvidenceRequest { kind: "intent".into(), ..Default::default() };
    assert_eq!(client.find(signed(bad)).await.unwrap_err().code(), Code::InvalidArgument);
}

fn none() -> EvidenceFilter {
    EvidenceFilter::default()
}

#[tokio::test]
async fn heads_are_signed_and_proofs_given() {
    let house = House::open().await;
    let got = ask("POST", "/v1/evidence/head").of(&house).await;
    assert_eq!(got.json(), json!({"signed": signed_head(), "evidence_id": "aud-9"}));
    let proof = json!({"path": [Hash::of(b"path")], "root": Hash::of(b"root"), "size": 8, "start": Hash::of(b"start")});
    let inclusion = Op::Query(Query::InclusionProof { index: EvidenceIndex(7), size: 8 });
    let consistency = Op::Query(Query::ConsistencyProof { from: 3, to: 8 });
    for (path, op) in
        [("/v1/evidence/aud-7/proof?size=8", &inclusion), ("/v1/evidence/consistency?from=3&to=8", &consistency)]
    {
        assert_eq!(ask("GET", path).of(&house).await.json(), proof, "{path}");
        assert_eq!(house.fake.last().op, *op);
    }

    let mut client = EvidenceServiceClient::new(channel(&house).await);
    let head = client.sign_head(signed(v1::SignHeadRequest {})).await.unwrap().into_inner();
    assert_eq!((head.size, head.signature, head.evidence_id.as_str()), (8, signed_head().signature, "aud-9"));
    let wanted = v1::ProveInclusionRequest { evidence_id: "aud-7".into(), size: 8 };
    let one = client.prove_inclusion(signed(wanted)).await.unwrap().into_inner();
    let other =
        client.prove_consistency(signed(v1::ProveConsistencyRequest { from: 3, to: 8 })).await.unwrap().into_inner();
    assert_eq!((&one, one.size, one.start.clone()), (&other, 8, Hash::of(b"start").to_string()));
    for bad in [(0, 8), (3, 0), (8, 3)] {
        let wanted = v1::ProveConsistencyRequest { from: bad.0, to: bad.1 };
        assert_eq!(client.prove_consistency(signed(wanted)).await.unwrap_err().code(), Code::InvalidArgument);
    }
}

fn line(entry: &str) -> String {
    format!("{{\"entry\":{entry},\"hash\":\"{}\"}}\n", Hash::of(entry.as_bytes()))
}

/// Goal: every entry that was there when the request began, byte for byte, over more than one page.
#[tokio::test]
async fn an_export_is_whole() {
    let house = House::open().await;
    let entry = |index: u64| format!(r#"{{"body":{{"decision":{{}}}},"index":{index}, "é":1.0e2}}"#);
    for index in 1..=2500 {
        house.fake.record(index, &entry(index));
    }
    let got = ask("GET", "/v1/evidence/export").of(&house).await;
    assert_eq!((got.status.as_u16(), got.header("content-type")), (200, "application/x-ndjson"));
    assert_eq!(got.text, (1..=2500).map(|index| line(&entry(index))).collect::<String>());
    let got = ask("GET", "/v1/evidence/export?after=aud-2498").of(&house).await;
    assert_eq!(got.text, line(&entry(2499)) + &line(&entry(2500)));
    for after in ["aud-2500", "aud-9999"] {
        assert_eq!(ask("GET", format!("/v1/evidence/export?after={after}")).of(&house).await.text, "", "{after}");
    }
}

async fn begin(house: &House) -> hyper::body::Incoming {
    let stream = TokioIo::new(TcpStream::connect(house.http).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("/v1/evidence/export").header("host", "localhost");
    let request = request.header("authorization", format!("Bearer {ALL}")).body(Full::<Bytes>::default()).unwrap();
    sender.send_request(request).await.unwrap().into_body()
}

/// Goal: an export reads on only as its client does, ends at the entry that was last when it began, and a failure in
/// its middle is not taken for its end.
#[tokio::test]
async fn an_export_waits_for_its_client() {
    let house = House::with(None, |edge| edge.with_open_max(1, 1)).await;
    let large = format!(r#"{{"n":"{}"}}"#, "x".repeat(16 << 10));
    for index in 1..=8000 {
        house.fake.record(index, &large);
    }
    let pages = || house.fake.calls.lock().unwrap().len();
    let mut body = begin(&house).await;
    body.frame().await.unwrap().unwrap();
    let busy = ask("GET", "/v1/evidence/export").of(&house).await;
    assert_eq!((busy.status.as_u16(), &busy.json()["code"]), (503, &"unavailable".into()));
    house.fake.record(8001, "{}");
    // A few pages of 1 MiB more than what the sockets hold, of 125.
    assert!(pages() < 32, "{} pages were read ahead", pages());
    let rest = body.collect().await.unwrap().to_bytes();
    assert_eq!(rest.iter().rev().take(3).collect::<Vec<_>>(), [&b'\n', &b'}', &b'"']);

    // The place is free again when the export ended.
    let mut body = begin(&house).await;
    body.frame().await.unwrap().unwrap();
    *house.fake.reject.lock().unwrap() = Some(Reject::Unavailable { detail: "gone".into() });
    assert!(body.collect().await.is_err());

    // And when its client left.
    *house.fake.reject.lock().unwrap() = None;
    let mut body = begin(&house).await;
    body.frame().await.unwrap().unwrap();
    drop(body);
    while ask("GET", "/v1/evidence/export?after=aud-8001").of(&house).await.status != 200 {
        tokio::task::yield_now().await;
    }
}

/// Goal: a client that stops reading gives its place to others, and does not take what it got for everything.
#[tokio::test]
async fn an_export_gives_up_on_a_client_that_does_not_read() {
    let short = Duration::from_millis(200);
    let house = House::with(None, |edge| edge.with_open_max(1, 1).with_taken_within(short)).await;
    let large = format!(r#"{{"n":"{}"}}"#, "x".repeat(16 << 10));
    for index in 1..=8000 {
        house.fake.record(index, &large);
    }
    let body = begin(&house).await;
    while ask("GET", "/v1/evidence/export?after=aud-8000").of(&house).await.status != 200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(body.collect().await.is_err());

    let mut client = EvidenceServiceClient::new(channel(&house).await);
    let mut tail = client.tail(signed(v1::TailEvidenceRequest::default())).await.unwrap().into_inner();
    while ask("GET", "/v1/evidence/export?after=aud-8000").of(&house).await.status != 200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let status = loop {
        if let Err(status) = tail.next().await.unwrap() {
            break status;
        }
    };
    assert_eq!(status.code(), Code::Cancelled);
    // A client that has taken everything is not behind.
    let mut tail =
        client.tail(signed(v1::TailEvidenceRequest { after: "aud-7999".into() })).await.unwrap().into_inner();
    assert_eq!(tail.next().await.unwrap().unwrap().evidence_id, "aud-8000");
    tokio::time::sleep(short * 2).await;
    house.fake.record(8001, "{}");
    assert_eq!(tail.next().await.unwrap().unwrap().evidence_id, "aud-8001");
}

/// Goal: a door that closes does not wait for exports.
#[tokio::test]
async fn an_export_ends_with_its_door() {
    let house = House::open().await;
    let large = format!(r#"{{"n":"{}"}}"#, "x".repeat(16 << 10));
    for index in 1..=8000 {
        house.fake.record(index, &large);
    }
    let mut body = begin(&house).await;
    body.frame().await.unwrap().unwrap();
    house.close();
    let closed = tokio::spawn(house.closed());
    assert!(tokio::time::timeout(Duration::from_secs(5), body.collect()).await.unwrap().is_err());
    closed.await.unwrap();
}
