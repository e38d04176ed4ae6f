//! URL rules against those who would slip past them: every spelling of a declared place reaches it or is refused.
//! The fixture declares `bank.example.com` and `192.0.2.0/24`. What a rule accepts and says is in `rules`.

mod rules;

use std::net::Ipv4Addr;

use super::host::Reading;
use super::{CANONICALIZER, CompiledUrlRule, UrlError, UrlRule, canonicalize};
use crate::limits::URL_BYTES_MAX;

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

fn rule(hosts: &[&str], cidrs: &[&str]) -> UrlRule {
    UrlRule { hosts: strings(hosts), cidrs: strings(cidrs), ..UrlRule::default() }
}

fn fixture() -> CompiledUrlRule {
    rule(&["bank.example.com"], &["192.0.2.0/24"]).compile().unwrap()
}

fn declared(rule: &CompiledUrlRule, url: &str) -> bool {
    rule.matches(&canonicalize(url).unwrap_or_else(|error| panic!("{url:?}: {error}"))).declared
}

/// The name of the refusal's variant.
fn refusal(url: &str) -> String {
    match canonicalize(url) {
        Ok(canonical) => format!("accepted as {canonical}"),
        Err(error) => format!("{error:?}").chars().take_while(|c| c.is_alphanumeric()).collect(),
    }
}

#[test]
fn spellings_that_reach_the_declared_name() {
    for (evasion, url) in [
        ("plain", "https://bank.example.com/pay"),
        ("surrounding space", " \r\n\thttps://bank.example.com/pay\n "),
        ("case of the scheme", "hTTpS://bank.example.com/"),
        ("another scheme", "gopher+x.1://bank.example.com/"),
        ("case of the host", "https://BANK.Example.COM/"),
        ("no path", "https://bank.example.com"),
        ("query without path", "https://bank.example.com?to=1"),
        ("fragment without path", "https://bank.example.com#to"),
        ("percent-encoded letter", "https://b%61nk.example.com/"),
        ("percent-encoded name, whole", "https://%62%61%6e%6B.example.com/"),
        ("percent-encoded dot", "https://bank%2eexample%2Ecom/"),
        ("percent-encoded trailing dot", "https://bank.example.com%2e/"),
        ("trailing dot", "https://bank.example.com./"),
        ("trailing dots", "https://bank.example.com.../"),
        ("trailing dot and port", "https://bank.example.com.:443/"),
        ("default port", "https://bank.example.com:443/"),
        ("default port with zeros", "https://bank.example.com:00000443/"),
        ("another port", "https://bank.example.com:8443/"),
        ("empty port", "https://bank.example.com:/"),
        ("userinfo", "https://user:secret@bank.example.com/"),
        ("userinfo that looks like a host", "https://evil.example:443@bank.example.com/"),
        ("userinfo with an encoded at-sign", "https://user%40evil.example@bank.example.com/"),
        ("userinfo with an encoded slash", "https://evil.example%2f@bank.example.com/"),
        ("userinfo with an encoded backslash", "https://evil.example%5c@bank.example.com/"),
        ("two at-signs", "https://evil.example@evil.example@bank.example.com/"),
        ("empty userinfo", "https://@bank.example.com/"),
        ("ideographic dots", "https://bank。example．com/"),
        ("halfwidth ideographic dot", "https://bank｡example｡com/"),
        ("trailing ideographic dot", "https://bank.example.com。/"),
        ("percent-encoded ideographic dot", "https://bank%E3%80%82example.com/"),
        ("fullwidth letters", "https://ｂａｎｋ.example.com/"),
        ("percent-encoded fullwidth letter", "https://%EF%BD%82ank.example.com/"),
        ("circled letters", "https://ⓑⓐⓝⓚ.example.com/"),
        ("mathematical letters", "https://𝐛𝐚𝐧𝐤.example.com/"),
        ("superscript letter", "https://baⁿk.example.com/"),
        ("kelvin sign", "https://ban\u{212a}.example.com/"),
        ("soft hyphen", "https://ba\u{ad}nk.example.com/"),
        ("zero-width space", "https://ba\u{200b}nk.example.com/"),
        ("word joiner", "https://bank\u{2060}.example.com/"),
        ("variation selector", "https://bank\u{fe0f}.example.com/"),
        ("byte-order mark inside", "https://bank\u{feff}.example.com/"),
        ("backslash in the path", "https://bank.example.com/a\\@evil.example"),
        ("at-sign in the path", "https://bank.example.com/@evil.example"),
        ("at-sign in the query", "https://bank.example.com/?mail=a@evil.example"),
    ] {
        assert!(declared(&fixture(), url), "{evasion}: {url}");
        assert_eq!(canonicalize(url).unwrap().host(), "bank.example.com", "{evasion}");
    }
}

#[test]
fn spellings_that_reach_the_declared_network() {
    for (evasion, url) in [
        ("plain", "http://192.0.2.1/"),
        ("trailing dot", "http://192.0.2.1./"),
        ("port", "http://192.0.2.1:8080/"),
        ("userinfo", "http://bank.example.com@192.0.2.1/"),
        ("integer", "http://3221225985/"),
        ("hexadecimal integer", "http://0xC0000201/"),
        ("octal integer", "http://030000001001/"),
        ("hexadecimal parts", "http://0xc0.0x0.0x2.0x1/"),
        ("octal parts", "http://0300.0.02.01/"),
        ("mixed parts", "http://0xC0.0.2.01/"),
        ("bare hexadecimal prefix is zero", "http://192.0x.2.1/"),
        ("three parts", "http://192.0.513/"),
        ("two parts", "http://192.513/"),
        ("many zeros", "http://0000000300.0.2.1/"),
        ("leading zero read as decimal", "http://192.0.2.0377/"),
        ("percent-encoded", "http://%31%39%32.0.2.1/"),
        ("percent-encoded dot", "http://192%2e0.2.1/"),
        ("ideographic dots", "http://192。0。2。1/"),
        ("fullwidth x", "http://0ｘc0000201/"),
        ("fullwidth hexadecimal letter", "http://0xＣ0000201/"),
        ("soft hyphen", "http://19\u{ad}2.0.2.1/"),
        ("another scheme", "redis://0300.0.2.1:6379/"),
        ("mapped", "http://[::ffff:192.0.2.1]/"),
        ("mapped, hexadecimal", "http://[::FFFF:c000:201]:80/"),
        ("mapped, uncompressed", "http://[0000:0000:0:0:0:ffff:c000:0201]/"),
        ("compatible", "http://[::192.0.2.1]/"),
        ("translated", "http://[::ffff:0:192.0.2.1]/"),
        ("6to4", "http://[2002:c000:201::1]/"),
        ("NAT64", "http://[64:ff9b::192.0.2.1]/"),
        ("NAT64, local, 48 bits", "http://[64:ff9b:1:c000:2:100::]/"),
        ("NAT64, local, 56 bits", "http://[64:ff9b:1:ffc0:0:201::]/"),
        ("NAT64, local, 64 bits", "http://[64:ff9b:1:0:c0:2:100:0]/"),
        ("NAT64, local, 96 bits", "http://[64:ff9b:1::c000:201]/"),
        ("Teredo client", "http://[2001:0:cb00:7101:8000:ffff:3fff:fdfe]/"),
        ("Teredo server", "http://[2001:0:c000:201::]/"),
        ("ISATAP", "http://[2001:db8::5efe:192.0.2.1]/"),
        ("ISATAP, global", "http://[2001:db8::200:5efe:c000:201]/"),
    ] {
        assert!(declared(&fixture(), url), "{evasion}: {url}");
    }
}

#[test]
fn urls_that_are_refused_and_why() {
    for (url, why) in [
        ("", "Scheme"),
        (":", "Scheme"),
        ("bank.example.com", "Scheme"),
        ("bank.example.com/a:b", "Scheme"),
        ("//bank.example.com/", "Scheme"),
        ("/\\bank.example.com/", "Scheme"),
        ("1http://bank.example.com/", "Scheme"),
        ("ht tp://bank.example.com/", "Scheme"),
        ("http ://bank.example.com/", "Scheme"),
        ("ｈttp://bank.example.com/", "Scheme"),
        ("\u{feff}http://bank.example.com/", "Scheme"),
        ("\u{a0}http://bank.example.com/", "Scheme"),
        ("{http,ftp}://bank.example.com/", "Scheme"),
        ("bank.example.com:443/", "Slashes"),
        ("http:bank.example.com", "Slashes"),
        ("http:/bank.example.com", "Slashes"),
        ("http:%2f%2fbank.example.com/", "Slashes"),
        ("http:／／bank.example.com/", "Slashes"),
        ("mailto:x@bank.example.com", "Slashes"),
        ("view-source:https://bank.example.com/", "Slashes"),
        ("jar:http://bank.example.com/!/", "Slashes"),
        ("http:/\\bank.example.com/", "Backslash"),
        ("http:\\\\bank.example.com/", "Backslash"),
        ("http://\\bank.example.com/", "Backslash"),
        ("http://bank.example.com\\pay", "Backslash"),
        ("http://evil.example\\@bank.example.com/", "Backslash"),
        ("http://bank.example.com\\@evil.example/", "Backslash"),
        ("http://evil.example\\.bank.example.com/", "Backslash"),
        ("http://evil.example?@bank.example.com/", "Tail"),
        ("http://evil.example#@bank.example.com/", "Tail"),
        ("http://evil.example#\\@bank.example.com/", "Tail"),
        ("ht\ttp://bank.example.com/", "Control"),
        ("http:/\n/bank.example.com/", "Control"),
        ("http://ba\tnk.example.com/", "Control"),
        ("http://bank.example.com\r\n.evil.example/", "Control"),
        ("http://bank.example.com/a\tb", "Control"),
        ("http://bank.example.com\0.evil.example/", "Control"),
        ("\u{1}http://bank.example.com/", "Control"),
        ("http://bank.example.com\u{7f}/", "Control"),
        ("http://bank.example.com\u{85}/", "Control"),
        ("http://evil.example @bank.example.com/", "Userinfo"),
        ("http://evil.example／@bank.example.com/", "Userinfo"),
        ("http:///", "HostEmpty"),
        ("http:///bank.example.com/", "HostEmpty"),
        ("http://", "HostEmpty"),
        ("http://?q", "HostEmpty"),
        ("http://@/", "HostEmpty"),
        ("http://bank.example.com@/", "HostEmpty"),
        ("http://:80/", "HostEmpty"),
        ("http://\u{ad}/", "HostEmpty"),
        ("file:///etc/passwd", "HostEmpty"),
        ("http://bank.example.com:65536/", "Port"),
        ("http://bank.example.com:+80/", "Port"),
        ("http://bank.example.com:-1/", "Port"),
        ("http://bank.example.com:8 0/", "Port"),
        ("http://bank.example.com:８０/", "Port"),
        ("http://bank.example.com:%38%30/", "Port"),
        ("http://bank.example.com:80:evil.example/", "Port"),
        ("http://2001:db8::1/", "Port"),
    ] {
        assert_eq!(refusal(url), why, "{url:?}");
    }
}

#[test]
fn hosts_that_are_refused_and_why() {
    for (url, why) in [
        ("http://bank.example.com%/", "Percent"),
        ("http://bank.example.com%2/", "Percent"),
        ("http://bank.example.com%zz/", "Percent"),
        ("http://bank.example.com%+1/", "Percent"),
        ("http://bank.example.com%ff/", "Percent"),
        ("http://bank.example.com%c0%ae/", "Percent"),
        ("http://b%2561nk.example.com/", "DoubleEncoding"),
        ("http://b%25%36%31nk.example.com/", "DoubleEncoding"),
        ("http://user%40bank.example.com/", "Forbidden"),
        ("http://bank.example.com%00.evil.example/", "Forbidden"),
        ("http://bank.example.com%0a/", "Forbidden"),
        ("http://bank.example.com%09/", "Forbidden"),
        ("http://bank.example.com%20/", "Forbidden"),
        ("http://bank.example.com%2f.evil.example/", "Forbidden"),
        ("http://bank.example.com%5c.evil.example/", "Forbidden"),
        ("http://bank.example.com%23.evil.example/", "Forbidden"),
        ("http://bank.example.com%3f.evil.example/", "Forbidden"),
        ("http://bank.example.com%3a80/", "Forbidden"),
        ("http://%5b::1%5d/", "Port"),
        ("http://%5b%3a%3a1%5d/", "Forbidden"),
        ("http://bank.example.com /", "Forbidden"),
        ("http://bank.example.com,evil.example/", "Forbidden"),
        ("http://{bank.example.com,evil.example}/", "Forbidden"),
        ("http://*.example.com/", "Forbidden"),
        ("http://$(id).example.com/", "Forbidden"),
        ("http://+192.0.2.1/", "Forbidden"),
        ("http://１９２.0.2.1/", "Digit"),
        ("http://%EF%BC%91.0.2.1/", "Digit"),
        ("http://١٩٢.٠.٢.١/", "Digit"),
        ("http://१९२.०.२.१/", "Digit"),
        ("http://①.0.2.1/", "Digit"),
        ("http://𝟏𝟗𝟐.0.2.1/", "Digit"),
        ("http://192.0.2.⒈/", "Digit"),
        ("http://bank².example.com/", "Digit"),
        ("http://evil.example＠bank.example.com/", "Name"),
        ("http://evil.example／bank.example.com/", "Name"),
        ("http://bank.example.com：80/", "Name"),
        ("http://bank.example.com＃.evil.example/", "Name"),
        ("http://bank.example.com？.evil.example/", "Name"),
        ("http://bank.example.com＼.evil.example/", "Name"),
        ("http://bank.example.com％2e/", "Name"),
        ("http://bank.example.com℀/", "Name"),
        ("http://bank․example․com/", "Name"),
        ("http://bank…example.com/", "Name"),
        ("http://bank.example.com\u{a0}/", "Name"),
        ("http://bank.example.com\u{3000}/", "Name"),
        ("http://bank\u{202e}.example.com/", "Name"),
        ("http://ba\u{fffd}nk.example.com/", "Name"),
        ("http://bank\u{200d}.example.com/", "Name"),
        ("http://bank..example.com/", "Name"),
        ("http://.bank.example.com/", "Name"),
        ("http://./", "Name"),
        ("http://xn--bank-.example.com/", "Name"),
        ("http://xn--/", "Name"),
        ("http://xn--zzzzzz.example/", "Name"),
        ("http://192.0.2.256/", "Ipv4"),
        ("http://192.0.2.1.1/", "Ipv4"),
        ("http://192..2.1/", "Name"),
        ("http://192.0.65536/", "Ipv4"),
        ("http://192.16777216/", "Ipv4"),
        ("http://4294967296/", "Ipv4"),
        ("http://0x100000000/", "Ipv4"),
        ("http://0300.0.2.09/", "Ipv4"),
        ("http://bank.example.1/", "Ipv4"),
        ("http://bank.example.0x/", "Ipv4"),
        ("http://bank.example.0xc0/", "Ipv4"),
        ("http://[]/", "Ipv6"),
        ("http://[::1/", "Ipv6"),
        ("http://[::1]x/", "Ipv6"),
        ("http://[::1]80/", "Ipv6"),
        ("http://[::1]:80:80/", "Port"),
        ("http://[[::1]]/", "Ipv6"),
        ("http://[::1%25eth0]/", "Ipv6"),
        ("http://[fe80::1%eth0]/", "Ipv6"),
        ("http://[::%31]/", "Ipv6"),
        ("http://[v1.x]/", "Ipv6"),
        ("http://[192.0.2.1]/", "Ipv6"),
        ("http://[bank.example.com]/", "Ipv6"),
        ("http://[::ffff:0300.0.2.1]/", "Ipv6"),
        ("http://[::ffff:192.0.513]/", "Ipv6"),
        ("http://[1:2:3:4:5:6:7:8:9]/", "Ipv6"),
        ("http://[::１]/", "Ipv6"),
    ] {
        assert_eq!(refusal(url), why, "{url:?}");
    }
}

#[test]
fn lengths_are_bounded() {
    let path = |length: usize| format!("http://a.example/{}", "x".repeat(length - "http://a.example/".len()));
    assert!(canonicalize(&path(URL_BYTES_MAX)).is_ok());
    assert_eq!(refusal(&path(URL_BYTES_MAX + 1)), "TooLong");
    assert_eq!(refusal(&format!("http://{}.example/", "a".repeat(64))), "Name");
    assert_eq!(refusal(&format!("http://{}example/", "a.".repeat(124))), "Name");
    assert!(canonicalize(&format!("http://{}example/", "a.".repeat(123))).is_ok());
    assert_eq!(refusal(&format!("http://{}/", "ü".repeat(4000))), "Name");
    let message = canonicalize(&format!("http://{}/", "%00\u{202e}".repeat(1000))).unwrap_err().to_string();
    assert!(message.len() < 300 && !message.contains('\u{202e}'), "{message}");
}

#[test]
fn near_misses_do_not_match() {
    for url in [
        "https://evil.example/bank.example.com",
        "https://bank.example.com@evil.example/",
        "https://bank.example.com:443@evil.example/",
        "https://bank.example.com%23@evil.example/",
        "https://a@bank.example.com@evil.example/",
        "https://evil.example/@bank.example.com",
        "https://evil.example/\\@bank.example.com",
        "https://evil.example/?u=https://bank.example.com/",
        "https://bank.example.com.evil.example/",
        "https://sub.bank.example.com/",
        "https://xbank.example.com/",
        "https://example.com/",
        "https://bаnk.example.com/",
        "http://192.0.3.1/",
        "http://[2001:db8::c000:201]/",
        "http://192.0.2.1.nip.example/",
    ] {
        let hit = fixture().matches(&canonicalize(url).unwrap());
        assert!(!hit.applies(), "{url}");
    }
}

#[test]
fn a_host_that_clients_read_in_two_ways_has_both_readings() {
    let rule = rule(&["strasse.example", "σ.example"], &["10.0.0.0/8"]).compile().unwrap();
    for url in ["http://straße.example/", "http://STRAẞE.example/", "http://stra%C3%9Fe.example/", "http://ς.example/"]
    {
        assert!(declared(&rule, url), "{url}");
    }
    assert_eq!(canonicalize("http://straße.example/").unwrap().host(), "xn--strae-oqa.example");
    // The A-label has one meaning only.
    assert!(!declared(&rule, "http://xn--strae-oqa.example/"));
    let url = canonicalize("http://010.0.0.1/").unwrap();
    assert_eq!(url.host(), "8.0.0.1");
    assert_eq!(url.host.readings[1], Reading::Address(Ipv4Addr::new(10, 0, 0, 1).into()));
    assert!(rule.matches(&url).declared);
}

#[test]
fn the_canonical_spelling() {
    for (url, canonical) in [
        ("HTTP://A.Example", "http://a.example/"),
        ("http://a.example?q", "http://a.example/?q"),
        ("http://a.example#f", "http://a.example/#f"),
        ("http://u:p@a.example:80/P?Q#F", "http://a.example/P?Q#F"),
        ("https://a.example:80", "https://a.example:80/"),
        ("ftp://a.example:21/%2e%2e/x", "ftp://a.example/%2e%2e/x"),
        ("ws://a.example:80", "ws://a.example/"),
        ("wss://a.example:443", "wss://a.example/"),
        ("ssh://a.example:022", "ssh://a.example:22/"),
        ("http://bücher.example./", "http://xn--bcher-kva.example/"),
        ("http://xn--BCHER-kva.example/", "http://xn--bcher-kva.example/"),
        ("http://_a-.example/", "http://_a-.example/"),
        ("http://r3---sn-x.example/", "http://r3---sn-x.example/"),
        ("http://0x7f.1:8080", "http://127.0.0.1:8080/"),
        ("http://0/", "http://0.0.0.0/"),
        ("http://[2001:DB8:0:0::1]:80", "http://[2001:db8::1]/"),
        ("http://[::FFFF:c000:201]", "http://[::ffff:192.0.2.1]/"),
        ("http://a.example/ü b", "http://a.example/ü b"),
    ] {
        assert_eq!(canonicalize(url).unwrap().to_string(), canonical);
    }
    let url = canonicalize("HTTPS://u:p@A.example:8443/secret").unwrap();
    assert_eq!((url.scheme(), url.host(), url.port()), ("https", "a.example", Some(8443)));
    assert_eq!(url.origin(), "https://a.example:8443");
}

#[test]
fn messages_hold_no_userinfo() {
    for url in [
        "http://u:s3cret@bank.example.com:x/",
        "http://u:s3cret@[x/",
        "http://u:s3cret@1.2.3.4.5/",
        "http://u:s3cret @a/",
        "http:u:s3cret@a/",
        "//u:s3cret@a/",
        "http://u:s3cret@a\\b/",
    ] {
        let message = canonicalize(url).unwrap_err().to_string();
        assert!(!message.contains("s3cret"), "{url}: {message}");
    }
    let error = UrlError::Control(9).to_string();
    assert!(error.contains("U+0009"), "{error}");
}

/// xorshift64: the same texts on every run.
struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).unwrap()).unwrap()
    }
}

/// Goal: no text panics, and a canonical URL is its own canonical form, with the same answer from the same rule.
/// Method: random bytes, and random sequences of the pieces that evasions are made of.
#[test]
fn any_text_is_refused_or_has_one_canonical_form() {
    const PIECES: [&str; 46] = [
        "http",
        "https",
        ":",
        "/",
        "//",
        "://",
        "\\",
        "@",
        "?",
        "#",
        "[",
        "]",
        "%",
        "%2e",
        "%25",
        "%40",
        "%00",
        ".",
        "。",
        "..",
        "bank",
        "example",
        "com",
        "192",
        "0",
        "2",
        "0x",
        "0300",
        "-",
        "xn--",
        "bcher-kva",
        "ü",
        "ß",
        "\u{200d}",
        "１",
        "٣",
        "::ffff:",
        "::",
        "fe80",
        "192.0.2.1",
        " ",
        "\t",
        "\u{ad}",
        "אב",
        "4294967295",
        "bank.example.com",
    ];
    let rule = fixture();
    let check = |text: &str| {
        let Ok(url) = canonicalize(text) else { return false };
        let again = canonicalize(&url.to_string()).unwrap_or_else(|error| panic!("{text:?} -> {url}: {error}"));
        assert_eq!(again.to_string(), url.to_string(), "{text:?}");
        assert_eq!(again.host.readings.first(), url.host.readings.first(), "{text:?}");
        let _ = rule.matches(&url);
        true
    };
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let mut accepted = 0;
    for round in 0..60_000 {
        let start = if round % 2 == 0 { "http://" } else { "" };
        let bytes: Vec<u8> = (0..noise.below(24)).map(|_| u8::try_from(noise.below(256)).unwrap()).collect();
        accepted += usize::from(check(&format!("{start}{}", String::from_utf8_lossy(&bytes))));
        let pieces: String = (0..noise.below(9)).map(|_| PIECES[noise.below(PIECES.len())]).collect();
        accepted += usize::from(check(&format!("{start}{pieces}")));
        let text: String = (0..noise.below(6))
            .filter_map(|_| char::from_u32(u32::try_from(noise.below(0x0011_0000)).unwrap()))
            .collect();
        accepted += usize::from(check(&format!("{start}{text}.example")));
    }
    assert!(accepted > 1000, "{accepted} accepted: the generator no longer reaches the inside");
}

/// The identity names the Unicode data: when a library brings other data, this fails, and the identity changes.
#[test]
fn the_identity_names_the_unicode_data() {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for c in (0..0x3_3480).chain(0xe_0000..0xe_0200).filter_map(char::from_u32) {
        let host = super::host::interpret(&format!("a{c}b")).map_or_else(|_| "-".to_owned(), |host| host.text);
        for byte in host.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    assert_eq!(char::UNICODE_VERSION, (17, 0, 0));
    assert_eq!(
        (CANONICALIZER, hash),
        ("placet/url/1 idna/1.1.0 unicode/18.0 rust-unicode/17.0", 13_315_090_139_016_966_953)
    );
}
