//! The auditor's tools: exports of a real cluster, both verifiers on them, and their agreement on damaged ones.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use placet_core::evidence;
use placet_core::export::{Failure, Trust, Verifier, entry_line};
use placet_core::ids::hex;
use serde_json::{Value, json};

use crate::harness::{A1, AUDIT, Cluster, OPERATE, P1, Settings, request};

const VERIFIER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/verifier/verify.py");
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/export-v1.jsonl");
const RESTORED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/export-restored-v1.jsonl");
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/payments.yaml");

fn python() -> Command {
    let python = std::env::var("PLACET_TEST_PYTHON")
        .expect("PLACET_TEST_PYTHON names a Python with blake3; `./dev test` sets it");
    let mut command = Command::new(python);
    command.arg(VERIFIER);
    command
}

/// The second verifier's exit code.
pub fn second(args: &[&str]) -> (i32, String) {
    let output = python().args(args).output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(told).unwrap())
}

/// Goal: an auditor with nothing but the CLI exports, verifies, re-derives, searches and proves; a damaged or shortened
/// file is named with its entry, and both verifiers say the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_auditor_needs_no_trust_in_the_cluster() {
    let cluster = Cluster::start(Settings::default()).await;
    let run = |args: &[&str], code: i32| {
        let (got, out, err) = cluster.cli(AUDIT, args);
        assert_eq!(got, code, "placet {args:?}\n{out}\n{err}");
        (out, err)
    };
    let at = |name: &str| cluster.path().join(name).to_str().unwrap().to_owned();
    cluster.publish(&std::fs::read_to_string(EXAMPLE).unwrap()).await;
    let transfer = json!({"payee": "alice", "amount_eur": "120"});
    let mut permits = Vec::new();
    for _ in 0..5 {
        let permit = cluster.http.decide(&request("payments.transfer", transfer.clone())).await;
        permits.push(permit["permit_id"].as_str().unwrap().to_owned());
    }
    cluster.http.report_as(P1, &crate::harness::report(&permits[0], "success")).await;
    let proposal = cluster.http.decide(&request("payments.payout", json!({"batch": "b", "amount_eur": "900"}))).await;
    cluster.http.resolve(A1, proposal["approval_id"].as_str().unwrap(), "grant").await;

    let old = run(&["evidence", "head"], 0).0;
    std::fs::write(at("old"), &old).unwrap();
    let key = serde_json::from_str::<Value>(&old).unwrap()["key"].as_str().unwrap().to_owned();
    let (export, first) = (at("export.jsonl"), at("first.jsonl"));
    run(&["evidence", "export", "--out", &first, "--no-sign"], 0);
    cluster.http.decide(&request("payments.mint", json!({}))).await;
    assert!(run(&["evidence", "export", "--out", &export], 0).0.starts_with("verified:    1"));
    let new: Value = serde_json::from_str(std::fs::read_to_string(&export).unwrap().lines().last().unwrap()).unwrap();
    std::fs::write(at("new"), new["signed"].to_string()).unwrap();

    let trusted = [export.as_str(), "--head", &at("old"), "--key", &key];
    for command in ["verify", "rederive"] {
        let (out, _) = run(&[&["evidence", command][..], &trusted].concat(), 0);
        assert!(out.contains("1 given") && out.contains("a trusted key vouches for the first"), "{out}");
    }
    assert_eq!(second(&trusted).0, 0);
    assert!(run(&["evidence", "verify", &export], 0).0.contains("self-consistent, no key vouched for"));
    let found: Value = serde_json::from_str(&run(&["evidence", "rederive", &export, "--output", "json"], 0).0).unwrap();
    assert!(found["rederived"]["verdicts"].as_u64().unwrap() >= 7, "{found}");

    // The earlier export against the later head, and one whose last entries are gone: the first one missing is named.
    for args in
        [["evidence", "verify", &first, "--head", &at("new")], ["evidence", "rederive", &first, "--head", &at("new")]]
    {
        let (out, err) = run(&[&args[..], &["--output", "json"]].concat(), 25);
        assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["code"], "truncated", "{out}");
        assert!(err.contains("the given head is over"), "{err}");
    }
    let text = std::fs::read_to_string(&export).unwrap();
    let damaged = at("damaged.jsonl");
    std::fs::write(&damaged, text.replacen("\\\"120\\\"", "\\\"121\\\"", 1)).unwrap();
    let line = text.lines().position(|line| line.contains("\\\"120\\\"")).unwrap();
    let (_, err) = run(&["evidence", "verify", &damaged], 22);
    assert!(err.contains(&format!("entry `aud-{line}` (line {}): hash", line + 1)), "{err}");
    let (code, told) = second(&[&damaged]);
    assert!(code == 22 && told.starts_with(&format!("entry `aud-{line}`")), "{code} {told}");

    run(&["evidence", "proof", "aud-3", "--head", &at("old"), "--key", &key], 0);
    run(&["evidence", "proof", "aud-3", "--head", &at("new")], 0);
    run(&["evidence", "consistency", &at("old"), &at("new"), "--key", &key], 0);
    let mut forged: Value = serde_json::from_str(&old).unwrap();
    forged["head"]["root"] = json!("00".repeat(32));
    std::fs::write(at("forged"), forged.to_string()).unwrap();
    run(&["evidence", "consistency", &at("forged"), &at("new")], 24);
    run(&["evidence", "proof", "aud-3", "--head", &at("forged")], 24);

    let find = |filters: &[&str]| run(&[&["evidence", "find"][..], filters].concat(), 0).0.lines().count() - 1;
    assert_eq!(find(&["--kind", "exec_intent", "--action-type", "payments.transfer"]), 5);
    assert_eq!(find(&["--permit", &permits[0]]), 2);
    assert_eq!(find(&["--verdict", "deny", "--reason", "default_deny", "--action-type", "payments.mint"]), 1);
    assert_eq!(find(&["--limit", "3"]), 3);
    let (code, _, _) = cluster.cli(OPERATE, &["evidence", "export"]);
    assert_eq!(code, 3);
}

/// A verifier before each line of `export`, and where the line begins.
fn before_each_line(export: &[u8]) -> Vec<(usize, Verifier)> {
    let (mut verifier, mut start, mut all) = (Verifier::default(), 0, Vec::new());
    for line in export.split_inclusive(|byte| *byte == b'\n') {
        all.push((start, verifier.clone()));
        verifier.line(line).unwrap();
        start += line.len();
    }
    all
}

/// What the first verifier says from some line on.
fn first_failure(mut verifier: Verifier, rest: &[u8]) -> Failure {
    let found = rest.split_inclusive(|byte| *byte == b'\n').find_map(|line| verifier.line(line).err());
    found.unwrap_or_else(|| verifier.finish().unwrap_err())
}

fn answer(failure: &Failure) -> String {
    let entry = failure.entry.map_or_else(|| "-".to_owned(), |index| index.0.to_string());
    format!("{} {entry}", failure.kind.code())
}

/// Goal: on the golden export and on twenty thousand one-byte changes of it, both verifiers give the same exit code and
/// name the same entry.
#[test]
fn two_verifiers_agree_on_every_damage() {
    assert_eq!(second(&[GOLDEN]).0, 0);
    let export = std::fs::read(GOLDEN).unwrap();
    let before = before_each_line(&export);
    let (mut changes, mut expected) = (String::new(), Vec::new());
    let mut change = |at: usize, byte: u8| {
        let line = before.partition_point(|(start, _)| *start <= at) - 1;
        let (start, verifier) = before[line].clone();
        let end = before.get(line + 2).map_or(export.len(), |(next, _)| *next);
        let mut rest = export[start..end].to_vec();
        rest[at - start] = byte;
        changes.push_str(&format!("{at} {byte}\n"));
        expected.push((at, byte, answer(&first_failure(verifier, &rest))));
    };
    let last = before.last().unwrap().0;
    for (at, was) in export.iter().copied().enumerate() {
        // Around the ends of lines, and in the whole of the last one, every change; elsewhere a sample.
        let edge = at < 200 || at >= last || before.iter().any(|(start, _)| start.abs_diff(at) < 12);
        let bytes: &[u8] =
            if edge { &[was ^ 1, was ^ 0x20, was ^ 0x80, b'\n', b'"', b'\\', b'0', b' '] } else { &[was ^ 1] };
        for byte in bytes.iter().filter(|byte| **byte != was && (edge || at % 7 == 0)) {
            change(at, *byte);
        }
    }
    assert!(expected.len() > 15_000, "{}", expected.len());
    let mut child =
        python().args(["--corruptions", GOLDEN]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(changes.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(told.lines().count(), expected.len());
    for (told, (at, byte, expected)) in told.lines().zip(expected) {
        assert_eq!(told, expected, "position {at}, byte {byte}");
    }
}

/// Goal: the two agree on what a change with a new hash does, down to the fine print of JSON and Ed25519.
#[test]
fn two_verifiers_agree_on_entries_that_are_hashed_anew() {
    let export = std::fs::read(GOLDEN).unwrap();
    let before = before_each_line(&export);
    let folder = tempfile::tempdir().unwrap();
    let entries: Vec<Value> = export
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok()?.get("entry").cloned())
        .collect();
    let signed = entries.iter().position(|entry| entry["body"].get("head_signed").is_some()).unwrap();
    let check = |position: usize, text: String| {
        let bytes = text.into_bytes();
        let (start, verifier) = before[position + 1].clone();
        let line = entry_line(&bytes, &evidence::hash(&bytes));
        let expected = answer(&first_failure(verifier, &line));
        let path = folder.path().join("changed");
        std::fs::write(&path, [&export[..start], &line].concat()).unwrap();
        let (code, told) = second(&[path.to_str().unwrap()]);
        let entry = told.strip_prefix("entry `aud-").and_then(|rest| rest.split('`').next()).unwrap_or("-");
        assert_eq!(format!("{code} {entry}"), expected, "{}", String::from_utf8_lossy(&bytes));
    };
    let plain = entries[3].to_string();
    for (from, to) in [
        ("{\"at\"", "{ \"at\""),
        ("{\"at\"", "{\"AT\":1,\"at\""),
        ("\"v\":1", "\"v\":1,\"v\":1"),
        ("\"v\":1", "\"v\":1.0"),
        ("\"v\":1", "\"v\":2"),
        ("\"v\":1", "\"v\":true"),
        ("\"index\":4", "\"index\":5"),
        ("\"index\":4", "\"index\":-4"),
        ("\"index\":4", "\"index\":04"),
        ("\"prev\":\"", "\"prev\":\"0"),
        ("agent-1", "\\u0061gent-1"),
        ("agent-1", "agent\\/1"),
        ("agent-1", "\\ud800"),
        ("agent-1", "agent-2"),
        ("Z\",\"body\"", ".500Z\",\"body\""),
        ("Z\",\"body\"", "+00:00\",\"body\""),
        ("2026-08-17", "2026-02-30"),
        ("2026-08-17", "2026-13-01"),
    ] {
        assert!(plain.contains(from), "{from}: {plain}");
        check(3, plain.replacen(from, to, 1));
    }
    let traced = entries.iter().position(|entry| entry["body"]["exec_intent"]["trace"].is_array()).unwrap();
    let plain = entries[traced].to_string();
    for (from, to) in [
        ("\"trace\":[{", "\"trace\":[ {"),
        ("\"trace\":[{\"check\":\"", "\"trace\":[{\"check\":\"\\u0061"),
        ("\"trace\":[{", "\"trace\":[{\"check\":\"twice\","),
    ] {
        assert!(plain.contains(from), "{from}: {plain}");
        check(traced, plain.replacen(from, to, 1));
    }
    // What a trace is made of, the first one knows alone: the other reads no further into a decision than JSON goes.
    for (from, to) in [
        ("\"trace\":[{", "\"trace\":[{\"a\":1,"),
        ("\"trace\":[", "\"trace\":{},\"x\":["),
        ("\"trace\":[", "\"trace\":null,\"x\":["),
        ("\"trace\":[", "\"trace\":[[],"),
        ("\"result\":\"pass\"", "\"result\":\"passed\""),
        ("\"result\":\"pass\"", "\"result\":1"),
    ] {
        assert!(plain.contains(from), "{from}: {plain}");
        let bytes = plain.replacen(from, to, 1).into_bytes();
        let verifier = before[traced + 1].1.clone();
        let found = first_failure(verifier, &entry_line(&bytes, &evidence::hash(&bytes)));
        assert_eq!(answer(&found), format!("20 {}", traced + 1), "{to}");
    }
    check(3, "[1]".to_owned());
    check(3, "{}".to_owned());
    check(3, "[".repeat(100_000));
    let head = |change: &dyn Fn(&mut Value)| {
        let mut entry = entries[signed].clone();
        change(&mut entry["body"]["head_signed"]);
        check(signed, entry.to_string());
    };
    let signature = entries[signed]["body"]["head_signed"]["signature"].as_str().unwrap().to_owned();
    let neutral = format!("01{}", "00".repeat(31));
    head(&|signed| signed["head"]["size"] = json!(1));
    head(&|signed| signed["head"]["root"] = json!("00"));
    head(&|signed| signed["key"] = json!("00"));
    head(&|signed| signed["note"] = json!("rides along"));
    head(&|signed| signed["signature"] = json!(signature.to_uppercase()));
    head(&|signed| signed["signature"] = json!(format!("{}{}", &signature[..64], beyond(&signature[64..]))));
    head(&|signed| {
        // Under a key and a nonce of small order, this fits every message unless verification is strict.
        signed["key"] = json!(neutral);
        signed["signature"] = json!(format!("{neutral}{}", "00".repeat(32)));
    });
    for y in ["ec", "ed", "ee", "00"] {
        let point = format!("{y}{}7f", "ff".repeat(30));
        head(&|signed| signed["key"] = json!(point));
        head(&|signed| signed["signature"] = json!(format!("{point}{}", &signature[64..])));
    }
}

/// Goal: the two agree on what an entry says about the backup that a cluster was restored from.
#[test]
fn two_verifiers_agree_on_a_restoration() {
    assert_eq!(second(&[RESTORED]).0, 0);
    let export = std::fs::read(RESTORED).unwrap();
    let before = before_each_line(&export);
    let lines: Vec<Value> =
        export.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let line = lines.iter().position(|line| line["entry"]["body"].get("restored").is_some()).unwrap();
    let good = lines[line]["entry"].to_string();
    let entries = lines[line]["entry"]["body"]["restored"]["entries"].as_u64().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut codes = Vec::new();
    for (from, to) in [
        ("\"v\":1", "\"v\":1".to_owned()),
        (&*format!("\"entries\":{entries}"), format!("\"entries\":{}", entries - 1)),
        (&*format!("\"entries\":{entries}"), format!("\"entries\":\"{entries}\"")),
        ("\"restored\":{\"chain_head\":\"", format!("\"restored\":{{\"chain_head\":\"{}", "0".repeat(64))),
        ("\"cluster\":\"", "\"cluster\":\"0".to_owned()),
        ("\"previous\":", "\"note\":1,\"previous\":".to_owned()),
        ("\"previous\":", "\"Previous\":".to_owned()),
    ] {
        assert!(good.contains(from), "{from}: {good}");
        let text = good.replacen(from, &to, 1).into_bytes();
        let (start, verifier) = before[line].clone();
        let changed = entry_line(&text, &evidence::hash(&text));
        let expected = answer(&first_failure(verifier, &changed));
        let path = folder.path().join("changed");
        std::fs::write(&path, [&export[..start], &changed].concat()).unwrap();
        let (code, told) = second(&[path.to_str().unwrap()]);
        let entry = told.strip_prefix("entry `aud-").and_then(|rest| rest.split('`').next()).unwrap_or("-");
        assert_eq!(format!("{code} {entry}"), expected, "{}", String::from_utf8_lossy(&text));
        codes.push(code);
    }
    assert_eq!(codes, [25, 26, 20, 20, 20, 20, 20]);
}

/// The same scalar and the order of the group: another spelling of the same signature.
fn beyond(scalar: &str) -> String {
    const ORDER: &str = "edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010";
    let byte = |text: &str, at: usize| u16::from_str_radix(&text[at * 2..at * 2 + 2], 16).unwrap();
    let mut carry = 0;
    let sum: Vec<u8> = (0..32)
        .map(|at| {
            carry += byte(scalar, at) + byte(ORDER, at);
            let low = u8::try_from(carry & 0xff).unwrap();
            carry >>= 8;
            low
        })
        .collect();
    hex(&sum)
}

/// Goal: what one verifier takes from the auditor, the other takes too.
#[test]
fn two_verifiers_take_the_same_heads_and_keys() {
    let export = std::fs::read_to_string(GOLDEN).unwrap();
    let last: Value = serde_json::from_str(export.lines().last().unwrap()).unwrap();
    let signed = last["signed"].clone();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name).to_str().unwrap().to_owned()
    };
    let head = write("head", &signed.to_string());
    let mut forged = signed.clone();
    forged["head"]["size"] = json!(3);
    let forged = write("forged", &forged.to_string());
    let short: String = export.lines().take(20).map(|line| format!("{line}\n")).collect();
    let short = write("short", &short);
    let (key, other) =
        (signed["key"].as_str().unwrap(), "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
    for (args, code) in [
        (vec![GOLDEN, "--head", &head], 0),
        (vec![GOLDEN, "--head", &head, "--key", key], 0),
        (vec![GOLDEN, "--key", other], 24),
        (vec![GOLDEN, "--head", &head, "--key", other], 24),
        (vec![GOLDEN, "--head", &forged], 24),
        (vec![GOLDEN, "--head", &short], 20),
        (vec![&short], 25),
    ] {
        assert_eq!(second(&args).0, code, "{args:?}");
        let parsed = |path: &str| serde_json::from_str(&std::fs::read_to_string(Path::new(path)).unwrap());
        let heads: Result<Vec<_>, _> =
            args.windows(2).filter(|pair| pair[0] == "--head").map(|pair| parsed(pair[1])).collect();
        let keys = args.windows(2).filter(|pair| pair[0] == "--key").map(|pair| pair[1].to_owned()).collect();
        let Ok(heads) = heads else { continue };
        let found = Verifier::new(Trust { heads, keys }).and_then(|mut verifier| {
            let export = std::fs::read(args[0]).unwrap();
            export.split_inclusive(|byte| *byte == b'\n').try_for_each(|line| verifier.line(line).map(drop))?;
            verifier.finish()
        });
        assert_eq!(found.map_or_else(|failure| i32::from(failure.kind.code()), |_| 0), code, "{args:?}");
    }
}
