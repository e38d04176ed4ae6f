//! Cases L17, L18 and L22: URLs by what they reach, and hosts that hide it.

use placet_core::event::SwitchScope;
use placet_core::ids::Principal;
use placet_core::reply::Tier;
use serde_json::json;

use crate::features;
use crate::fixture::{request, says, tiers, with};

#[test]
fn case_l17_no_spelling_of_a_url_avoids_its_rule() {
    let reaches = [
        "https://bank.example/",
        "HTTPS://BANK.EXAMPLE/",
        "  https://bank.example  ",
        "https://%62ank.example/",
        "https://b%61nk%2Eexample/",
        "https://user:pass@bank.example/",
        "https://other.example@bank.example/",
        "https://other.example%2f@bank.example/",
        "https://bank.example./",
        "https://bank.example../",
        "https://bank.example:443/",
        "http://bank.example:80/",
        "https://bank\u{3002}example/",
        "https://bank\u{ff0e}example/",
        "https://\u{ff42}ank.example/",
        "https://ban\u{212a}.example/",
        "https://a.bank.example/",
        "https://192.0.2.7/",
        "https://3221225991/",
        "https://0xC0000207/",
        "https://0xc0.0.2.7/",
        "https://0300.0.2.7/",
        "https://192.0.519/",
        "https://192.519/",
        "https://[::ffff:192.0.2.7]/",
        "https://[::ffff:c000:207]/",
        "https://[::192.0.2.7]/",
        "https://[2002:c000:207::]/",
        "https://[64:ff9b::192.0.2.7]/",
        "https://\u{ff11}\u{ff19}\u{ff12}.0.2.7/",
        "https://other.example\\@bank.example/",
        "https://bank.example\\@other.example/",
        "https:\\\\bank.example/",
        "https://bank%2eexample%2e/",
        "https://bank.example%00.other.example/",
        "https://ba\tnk.example/",
        "https://ba\nnk.example/",
        "https://%2562ank.example/",
        "https://[bank.example]/",
        "https:/bank.example/",
        "https:bank.example/",
        "//bank.example/",
        "bank.example",
    ];
    let mut pdp = features::pdp();
    let mut reached = 0;
    for url in reaches {
        for url in [json!(url), json!([url])] {
            let reply = pdp.ask("web.get", json!({"url": url}));
            let decided = pdp.decided(&reply);
            match says(&reply) {
                ("propose", "effect_floor") => {
                    reached += 1;
                    assert_eq!(decided.effects, ["egress"], "{url}");
                }
                ("deny", "malformed") => {
                    assert_eq!((tiers(&reply), pdp.trace(&reply).len()), ((3, 3), 0), "{url}");
                    assert_eq!(decided.malformed_kind.as_deref(), Some("url"), "{url}");
                }
                other => panic!("{url}: {other:?} {}", reply.detail),
            }
            assert!(decided.url_canonicalizer.unwrap().starts_with("placet/url/"), "{url}");
        }
    }
    assert!(reached >= 20, "{reached}");
    // What is another place is left alone.
    for url in [
        "https://other.example/",
        "https://bank.example.other.example/",
        "https://xbank.example/",
        "https://bank.example@other.example/",
        "https://other.example/?u=https://bank.example/",
        "https://192.0.3.7/",
        "https://[2001:db8::1]/",
    ] {
        assert_eq!(says(&pdp.ask("web.get", json!({"url": url}))), ("permit", "passed"), "{url}");
    }
}

#[test]
fn case_l18_a_redirector_never_runs_alone() {
    for host in ["bit.ly", "BIT.ly", "bit.ly.", "%62it.ly", "t.co", "user@tinyurl.com"] {
        for name in ["web.get", "web.plain", "web.bulk"] {
            let mut pdp = features::pdp();
            let params = json!({"url": format!("https://{host}/x")});
            let reply = pdp.ask(name, params.clone());
            assert_eq!((says(&reply), tiers(&reply)), (("propose", "effect_floor"), (1, 3)), "{name} {host}");
            let decided = pdp.decided(&reply);
            assert!(decided.opaque_class.unwrap().starts_with("builtin:"), "{name} {host}");
            let id = reply.approval_id.unwrap();
            pdp.grant(&id);
            let resumed = pdp.decide(&with(request(name, params), json!({"approval_ref": id.as_str()})));
            assert_eq!(says(&resumed), ("permit", "passed"), "a human decided");
        }
    }
}

#[test]
fn case_l22_a_redirector_under_the_switch() {
    for scope in [None, Some(SwitchScope::Effect("web".to_owned())), Some(SwitchScope::Principal(Principal::new("P1")))]
    {
        let mut pdp = features::pdp();
        match &scope {
            None => pdp.switch(true),
            Some(scope) => drop(pdp.scoped(scope, true).unwrap()),
        }
        for (name, nominal) in [("web.plain", Tier::Auto), ("web.confirm", Tier::Confirm)] {
            let reply = pdp.ask(name, json!({"url": "https://bit.ly/x"}));
            assert_eq!(says(&reply), ("deny", "kill_switch"), "{scope:?}");
            assert_eq!((reply.nominal_tier, reply.approval_id.clone()), (nominal, None));
            assert_eq!(pdp.decided(&reply).opaque_class.as_deref(), Some("builtin:bit.ly"));
        }
        assert_eq!(pdp.reserved(), (0, 0, 0));
        assert!(pdp.state.approvals.is_empty() && pdp.state.meta.pending_approvals == 0);
    }
}
