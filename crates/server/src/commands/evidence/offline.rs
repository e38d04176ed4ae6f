//! `placet evidence verify` and `placet evidence rederive`: a file and nothing else.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Stdin};
use std::path::Path;

use anyhow::Context;
use placet_core::evaluate::{Rederivation, Rederived};
use placet_core::export::{Failure, Kind, LINE_BYTES_MAX, Line, Trust, Verified, Verifier};
use placet_core::head::SignedHead;
use serde_json::{Value, json};

use super::failed;
use super::progress::Progress;
use crate::cli::{Output, TrustArgs, exit};
use crate::commands::print;

/// Read at once.
const BUFFER_BYTES: usize = 1 << 20;

/// What deriving every entry again came to.
#[derive(Default)]
struct Counts {
    verdicts: u64,
    facts: u64,
    redacted: u64,
}

pub(super) fn verify(output: Output, path: &Path, trust: &TrustArgs) -> anyhow::Result<u8> {
    let verified = walk(path, trust, |_, _| Ok(()))?;
    print(output, &json!(verified), |_| describe(&verified));
    Ok(exit::OK)
}

pub(super) fn rederive(output: Output, path: &Path, trust: &TrustArgs) -> anyhow::Result<u8> {
    let (mut state, mut counts) = (Rederivation::default(), Counts::default());
    let verified = walk(path, trust, |line, at| {
        let Line::Entry(entry, bytes) = line else { return Ok(()) };
        let derived = state.step(entry, bytes.to_vec()).map_err(|difference| Failure {
            kind: Kind::Difference,
            entry: Some(difference.index),
            line: at,
            detail: format!(
                "`{}` is {} in the record and {} when derived again",
                difference.field, difference.recorded, difference.derived
            ),
        })?;
        match derived {
            Rederived::Verdict => counts.verdicts += 1,
            Rederived::Fact => counts.facts += 1,
            Rederived::Redacted { .. } => counts.redacted += 1,
        }
        Ok(())
    })?;
    let Counts { verdicts, facts, redacted } = counts;
    let mut body = json!(verified);
    if let Value::Object(members) = &mut body {
        let found = json!({"verdicts": verdicts, "facts": facts, "redacted": redacted});
        members.insert("rederived".to_owned(), found);
    }
    print(output, &body, |_| {
        let note = if redacted > 0 { ", which read what only digests are kept of" } else { "" };
        format!(
            "{}\nrederived:   {verdicts} verdicts reproduced, {facts} other entries follow, {redacted} as far as hidden values allow{note}",
            describe(&verified)
        )
    });
    Ok(exit::OK)
}

/// What was found, for people.
pub(super) fn describe(verified: &Verified) -> String {
    let stamp = |stamp: Option<placet_core::stamp::Stamp>| stamp.map_or_else(|| "-".to_owned(), |at| at.to_string());
    let vouched = match verified.vouched {
        Some(size) => format!("a trusted key vouches for the first {size} of {} entries", verified.entries),
        None => "self-consistent, no key vouched for".to_owned(),
    };
    let restored = verified.restored.map_or_else(String::new, |backup| {
        format!(
            "\nrestored:    from a backup of {backup} entries; what the cluster before recorded behind them is not here"
        )
    });
    format!(
        "verified:    {} entries, {} to {}\nchain head:  {}\nroot:        {}\nheads:       {} signed inside, {} given\n\
         redacted:    {} entries hold digests in place of values\nsignatures:  {vouched}{restored}",
        verified.entries,
        stamp(verified.from),
        stamp(verified.to),
        verified.chain_head,
        verified.root,
        verified.heads,
        verified.heads_given,
        verified.redacted,
    )
}

/// Verifies the file line by line, and shows each good line to `each`.
fn walk(
    path: &Path,
    trust: &TrustArgs,
    mut each: impl FnMut(Line<'_>, u64) -> Result<(), Failure>,
) -> anyhow::Result<Verified> {
    let mut verifier = Verifier::new(read_trust(trust)?).map_err(|failure| failed(&failure))?;
    let (source, size) = Source::open(path)?;
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, source);
    let mut progress = Progress::new(size);
    let (mut line, mut bytes, mut lines) = (Vec::new(), 0u64, 0u64);
    let longest = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    loop {
        line.clear();
        let read = reader.by_ref().take(longest).read_until(b'\n', &mut line);
        if read.with_context(|| format!("cannot read `{}`", path.display()))? == 0 {
            break;
        }
        lines += 1;
        bytes = bytes.saturating_add(u64::try_from(line.len()).unwrap_or_default());
        verifier.line(&line).and_then(|found| each(found, lines)).map_err(|failure| failed(&failure))?;
        progress.at(bytes, verifier.entries());
    }
    verifier.finish().map_err(|failure| failed(&failure))
}

/// The heads and keys that the auditor brings.
pub(super) fn read_trust(trust: &TrustArgs) -> anyhow::Result<Trust> {
    let mut heads = Vec::new();
    for path in &trust.head {
        heads.extend(read_heads(path)?);
    }
    for key in &trust.key {
        anyhow::ensure!(
            placet_core::head::is_public_key(key),
            "`{key}` is not an Ed25519 key: 64 lowercase hex digits"
        );
    }
    Ok(Trust { heads, keys: trust.key.clone() })
}

/// Signed heads, one for each line: as `placet evidence head` prints them, or as a node answers.
pub(super) fn read_heads(path: &Path) -> anyhow::Result<Vec<SignedHead>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let head = |line: &str| -> Result<SignedHead, serde_json::Error> {
        let value: Value = serde_json::from_str(line)?;
        serde_json::from_value(value.get("signed").cloned().unwrap_or(value))
    };
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            head(line).map_err(|error| {
                let detail = format!("line {at} of `{}` is not a signed head: {error}", path.display());
                failed(&Failure { kind: Kind::Unreadable, entry: None, line: 0, detail })
            })
        })
        .collect()
}

/// A file, or standard input for `-`.
enum Source {
    File(File),
    Stdin(Stdin),
}

impl Source {
    fn open(path: &Path) -> anyhow::Result<(Self, Option<u64>)> {
        if path.as_os_str() == "-" {
            return Ok((Self::Stdin(std::io::stdin()), None));
        }
        let file = File::open(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let size = file.metadata().map(|metadata| metadata.len()).ok();
        Ok((Self::File(file), size))
    }
}

impl Read for Source {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::File(file) => file.read(into),
            Self::Stdin(stdin) => stdin.read(into),
        }
    }
}
