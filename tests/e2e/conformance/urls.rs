//! AADP §19 and the cases of §23.10 about URLs: a spelling does not hide a place, a redirector is nobody's permit.

use serde_json::json;

use super::fixture::{case, case_alone};
use crate::harness::{says, text, with};

#[test]
fn case_l17_no_spelling_of_a_url_avoids_its_rule() {
    case("l17", async |case| {
        let mut reached = 0;
        for url in [
            "https://bank.example/",
            "https://b%61nk%2Eexample/",
            "https://other.example@bank.example/",
            "https://bank.example./",
            "HTTPS://BANK.EXAMPLE:443/",
            "https://bank\u{3002}example/",
            "https://\u{ff42}ank.example/",
            "https://0xC0000207/",
            "https://0300.0.2.7/",
            "https://3221225991/",
            "https://[::ffff:192.0.2.7]/",
            "https://\u{ff11}\u{ff19}\u{ff12}.0.2.7/",
            "https://other.example\\@bank.example/",
            "https://bank.example%00.other.example/",
            "https://ba\tnk.example/",
            "https://%2562ank.example/",
            "//bank.example/",
        ] {
            let reply = case.ask("web.get", json!({"url": url})).await;
            let (_, entry, _) = case.entry(text(&reply, "evidence_id")).await;
            match says(&reply) {
                ("propose", "effect_floor") => {
                    reached += 1;
                    assert_eq!(entry["effects"], json!([case.name("egress")]), "{url}");
                }
                ("deny", "malformed") => assert_eq!(text(&entry, "malformed_kind"), "url", "{url}"),
                other => panic!("{url}: {other:?} {reply}"),
            }
        }
        assert!(reached >= 10, "{reached}");
        for url in ["https://other.example/", "https://bank.example.other.example/", "https://192.0.3.7/"] {
            assert_eq!(says(&case.ask("web.get", json!({"url": url})).await), ("permit", "passed"), "{url}");
        }
    });
}

#[test]
fn case_l18_a_redirector_never_runs_alone() {
    case("l18", async |case| {
        for host in ["bit.ly", "BIT.ly.", "%62it.ly", "user@tinyurl.com"] {
            for action in ["web.get", "web.plain"] {
                let params = json!({"url": format!("https://{host}/x")});
                let reply = case.ask(action, params.clone()).await;
                assert_eq!(says(&reply), ("propose", "effect_floor"), "{action} {host}");
                let (_, entry, _) = case.entry(text(&reply, "evidence_id")).await;
                assert!(text(&entry, "opaque_class").starts_with("builtin:"), "{action} {host}");
                let id = text(&reply, "approval_id");
                case.client().grant(id).await;
                let body = with(case.body(action, params), json!({"approval_ref": id}));
                assert_eq!(says(&case.client().decide(&body).await), ("permit", "passed"), "a human decided");
            }
        }
    });
}

#[test]
fn case_l22_a_redirector_under_the_switch() {
    case_alone("l22", async |case| {
        case.switch(true).await;
        for action in ["web.plain", "web.confirm"] {
            let reply = case.ask(action, json!({"url": "https://bit.ly/x"})).await;
            assert_eq!(says(&reply), ("deny", "kill_switch"));
            assert!(reply.get("approval_id").is_none());
            let (_, entry, _) = case.entry(text(&reply, "evidence_id")).await;
            assert_eq!(text(&entry, "opaque_class"), "builtin:bit.ly");
        }
        assert!(case.approvals().await.is_empty());
    });
}
