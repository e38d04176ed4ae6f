//! What a URL rule may say, what it matches, and the one form that it has.

use super::{declared, fixture, rule, strings};
use crate::policy::url::{Opaque, UrlRule, canonicalize, opaque};

#[test]
fn names_networks_and_schemes() {
    let mut below = rule(&["Example.com.", "bücher.example"], &["2001:db8::/32", "198.51.100.7", "0.0.0.0/0"]);
    below.include_subdomains = true;
    below.schemes = strings(&["HTTPS", "ssh"]);
    let below = below.compile().unwrap();
    for (url, expected) in [
        ("https://example.com/", true),
        ("https://a.b.example.com/", true),
        ("https://badexample.com/", false),
        ("https://com/", false),
        ("https://a.xn--bcher-kva.example/", true),
        ("ssh://bank.example.com/", true),
        ("http://bank.example.com/", false),
        ("https://[2001:db8:ffff::1]/", true),
        ("https://[2001:db9::1]/", false),
        ("https://203.0.113.9/", true),
        ("http://203.0.113.9/", false),
    ] {
        assert_eq!(declared(&below, url), expected, "{url}");
    }
    let exact = rule(&[], &["198.51.100.7", "2001:db8::1/128", "::/0"]).compile().unwrap();
    assert!(declared(&exact, "http://198.51.100.7/") && !declared(&exact, "http://198.51.100.8/"));
    assert!(declared(&exact, "http://[fe80::1]/"));
}

#[test]
fn opaque_hosts_are_the_declared_target_and_are_named() {
    let mut opaque = rule(&["bank.example.com"], &[]);
    opaque.schemes = strings(&["https"]);
    opaque.opaque = Some(Opaque { builtin: true, extra: strings(&["Go.Acme.example"]) });
    let opaque = opaque.compile().unwrap();
    for (url, declared, entry) in [
        ("https://bank.example.com/", true, None),
        ("https://bit.ly/x", false, Some("builtin:bit.ly")),
        ("https://BIT%2ely./x", false, Some("builtin:bit.ly")),
        ("http://u@bit。ly:8080/x", false, Some("builtin:bit.ly")),
        ("ftp://go.acme.example/x", false, Some("extra:go.acme.example")),
        ("https://x.bit.ly/", false, None),
        ("https://acme.example/", false, None),
        ("https://203.0.113.1/", false, None),
    ] {
        let hit = opaque.matches(&canonicalize(url).unwrap());
        assert_eq!((hit.declared, hit.opaque.as_deref()), (declared, entry), "{url}");
        assert_eq!(hit.applies(), declared || entry.is_some());
    }
    // Without the block, a shortener is a host like any other.
    assert!(!fixture().matches(&canonicalize("https://bit.ly/x").unwrap()).applies());
    let only = UrlRule { opaque: Some(Opaque { builtin: true, extra: Vec::new() }), ..UrlRule::default() };
    assert!(only.compile().unwrap().matches(&canonicalize("https://t.co/x").unwrap()).applies());
}

#[test]
fn the_builtin_list_is_canonical_and_in_order() {
    assert!(opaque::BUILTIN.is_sorted_by(|a, b| a < b));
    for host in opaque::BUILTIN {
        assert_eq!(canonicalize(&format!("https://{host}/")).unwrap().host(), host);
    }
}

#[test]
fn rules_that_are_refused() {
    let host = |text: &str| rule(&[text], &[]);
    let cidr = |text: &str| rule(&[], &[text]);
    let opaque = |builtin, extra: &[&str]| UrlRule {
        opaque: Some(Opaque { builtin, extra: strings(extra) }),
        ..rule(&["a.example"], &[])
    };
    let scheme = |text: &str| UrlRule { schemes: strings(&[text]), ..rule(&["a.example"], &[]) };
    for (refused, part) in [
        (UrlRule::default(), "names no place"),
        (UrlRule { schemes: strings(&["https"]), ..UrlRule::default() }, "names no place"),
        (opaque(false, &[]), "names nothing"),
        (opaque(true, &["203.0.113.1"]), "IP address"),
        (opaque(true, &["https://go.example/"]), "holds `:`"),
        (host(""), "empty"),
        (host("*.example.com"), "include_subdomains"),
        (host("a.*.example.com"), "holds `*`"),
        (host(".example.com"), "not a domain name"),
        (host("https://example.com"), "holds `:`"),
        (host("example.com:443"), "holds `:`"),
        (host("example.com/pay"), "holds `/`"),
        (host("u@example.com"), "holds `@`"),
        (host(" example.com"), "holds ` `"),
        (host("192.0.2.1"), "list it under `cidrs`"),
        (host("0x7f.1"), "list it under `cidrs`"),
        (host("[::1]"), "list it under `cidrs`"),
        (host("::1"), "list it under `cidrs`"),
        (host("example.1"), "ends in a number"),
        (cidr(""), "does not begin with an IP address"),
        (cidr("example.com/8"), "does not begin with an IP address"),
        (cidr("192.0.2/24"), "does not begin with an IP address"),
        (cidr("0300.0.2.0/24"), "does not begin with an IP address"),
        (cidr("192.0.2.0/"), "prefix length"),
        (cidr("192.0.2.0/33"), "prefix length"),
        (cidr("192.0.2.0/+24"), "prefix length"),
        (cidr("192.0.2.0/024"), "prefix length"),
        (cidr("192.0.2.0/255.255.255.0"), "prefix length"),
        (cidr("2001:db8::/129"), "prefix length"),
        (cidr("192.0.2.1/24"), "bits set after its prefix"),
        (cidr("2001:db8::1/32"), "bits set after its prefix"),
        (cidr("::ffff:192.0.2.0/120"), "mapped into IPv6"),
        (scheme(""), "scheme"),
        (scheme("https:"), "scheme"),
        (scheme("2b"), "scheme"),
    ] {
        let message = refused.compile().unwrap_err();
        assert!(message.contains(part), "{refused:?}: {message}");
    }
}

#[test]
fn a_rule_has_one_form() {
    let spelled = UrlRule {
        cidrs: strings(&["2001:DB8::/32", "192.0.2.7", "192.0.2.7/32"]),
        hosts: strings(&["B.example", "a.example.", "b.example"]),
        include_subdomains: true,
        opaque: Some(Opaque { builtin: false, extra: strings(&["GO.example"]) }),
        schemes: strings(&["HTTPS", "http"]),
    };
    let json = r#"{"cidrs":["192.0.2.7/32","2001:db8::/32"],"hosts":["a.example","b.example"],"include_subdomains":true,"opaque":{"builtin":false,"extra":["go.example"]},"schemes":["http","https"]}"#;
    let compiled = spelled.compile().unwrap();
    assert_eq!(serde_json::to_string(&compiled.rule()).unwrap(), json);
    let read: UrlRule = serde_json::from_str(json).unwrap();
    assert_eq!(read.compile().unwrap(), compiled);
    assert!(serde_json::from_str::<UrlRule>(&json.replace("\"hosts\"", "\"host\"")).is_err());
    assert!(serde_json::from_str::<UrlRule>(&json.replace("\"extra\"", "\"extras\"")).is_err());
}
