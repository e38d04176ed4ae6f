//! The life of a policy (AADP §8): kept, put in force, rolled back, dropped. Alone, because every case's policies are one
//! document.

use serde_json::{Value, json};

use super::fixture::{Case, case_alone};
use crate::harness::{Answer, Call, P1, POLICY, says, text};

async fn publish(case: &Case, document: &str, activate: bool, expect: Option<&str>) -> Answer {
    let path = format!("/v1/policies?activate={activate}");
    let call = Call { expect, ..Call::new("POST", &path, POLICY) };
    case.client().ask(call.bytes(document.as_bytes(), "application/yaml")).await
}

async fn activate(case: &Case, digest: &str, expect: Option<&str>) -> Answer {
    let path = format!("/v1/policies/{digest}/activate");
    case.client().ask(Call { expect, ..Call::new("POST", &path, POLICY) }).await
}

async fn drop_unused(case: &Case, digest: &str) -> Answer {
    case.client().call("DELETE", &format!("/v1/policies/{digest}"), POLICY, None).await
}

/// Active and used, if it is kept.
async fn listed(case: &Case, digest: &str) -> Option<(bool, bool)> {
    let all = case.client().every(POLICY, "/v1/policies?all=true", "policies").await;
    let found = all.iter().find(|one| one["digest"] == digest)?.clone();
    assert_eq!(text(&found, "published_by"), "D1");
    assert!(text(&found, "evidence_id").starts_with("aud-") && text(&found, "published_at").ends_with('Z'));
    Some((found["active"] == true, found["used"] == true))
}

#[test]
fn a_policy_is_kept_activated_rolled_back_and_dropped() {
    case_alone("plife", async |case| {
        let document = case.document().await;
        let first = text(&case.client().get("/v1/policies", POLICY).await, "digest").to_owned();
        let changed = document.replace("daily_rate: 3,", "daily_rate: 4,");
        let pay = async || says(&case.pay("1").await).0 == "permit";

        // Kept: in force is what was.
        let kept = publish(&case, &changed, false, None).await;
        assert_eq!((kept.status, &kept.body["active"]), (200, &json!(false)), "{}", kept.body);
        let second = text(&kept.body, "digest").to_owned();
        assert_eq!(listed(&case, &second).await, Some((false, false)));
        assert_eq!(text(&case.client().get("/v1/policies", POLICY).await, "digest"), first);
        let shown = case.client().get(&format!("/v1/policies/{second}"), POLICY).await;
        assert!(shown["active"] == false && text(&shown, "document").contains(&case.name("pay.small")));
        for _ in 0..3 {
            assert!(pay().await);
        }
        assert!(!pay().await, "three calls a day are what is in force");

        // Unused, it can be dropped, once.
        let dropped = drop_unused(&case, &second).await;
        assert_eq!((dropped.status, &dropped.body["digest"]), (200, &json!(second)), "{}", dropped.body);
        assert_eq!((listed(&case, &second).await, drop_unused(&case, &second).await.status), (None, 404));
        assert_eq!(activate(&case, &second, None).await.status, 404);

        // In force, if it replaces what it is meant to.
        assert_eq!(publish(&case, &changed, false, None).await.body["digest"], second);
        for wrong in ["none", second.as_str()] {
            let refused = activate(&case, &second, Some(wrong)).await;
            assert_eq!((refused.status, text(&refused.body, "code")), (409, "conflict"));
            assert_eq!(publish(&case, &changed, true, Some(wrong)).await.status, 409);
        }
        let active = activate(&case, &second, Some(&first)).await;
        assert_eq!(
            (active.status, &active.body["active"], &active.body["previous"]),
            (200, &json!(true), &json!(first))
        );
        assert!(pay().await && !pay().await, "four calls a day");
        assert_eq!(listed(&case, &second).await, Some((true, true)));

        // Back: the same digest, and what was used is kept.
        let back = activate(&case, &first, Some(&second)).await;
        assert_eq!((back.status, &back.body["digest"], &back.body["previous"]), (200, &json!(first), &json!(second)));
        for digest in [&first, &second] {
            assert_eq!(drop_unused(&case, digest).await.status, 409);
        }
        assert_eq!(listed(&case, &first).await, Some((true, true)));
        assert_eq!(listed(&case, &second).await, Some((false, true)));
        let steps: Vec<Value> = case
            .client()
            .every(crate::harness::AUDIT, "/v1/evidence?kind=policy_change", "evidence")
            .await
            .into_iter()
            .map(|one| one["entry"]["body"]["policy_change"].clone())
            .filter(|change| change["digest"] == second.as_str())
            .map(|change| change["step"].clone())
            .collect();
        assert_eq!(steps, ["published", "dropped", "published", "activated"]);
        let foreign = case.client().call("DELETE", &format!("/v1/policies/{second}"), P1, None).await;
        assert_eq!(foreign.status, 403);
    });
}
