//! The walk through an export, line by line. Each line is checked from the outside in: its shape, the hash of its
//! bytes, its spelling, its place in the chain, and last what a signed head says about the entries before it.

use super::{ENTRY, ENTRY_END, ENTRY_HASH, Failure, HEADER, Kind, LINE_BYTES_MAX, Line, TRAILER};
use super::{Trailer, Trust, Verified};
use crate::event::{Body, Entry};
use crate::evidence::{self, ENTRY_VERSION};
use crate::head::SignedHead;
use crate::ids::{EvidenceIndex, Hash};
use crate::merkle::{self, Frontier};

/// Length of a hash in hex.
const HASH_DIGITS: usize = 64;

/// Which line comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Header,
    Entries,
    End,
}

/// Checks an export while it passes by. After a failure it is of no more use.
#[derive(Clone, Debug)]
pub struct Verifier {
    /// Whose signatures count.
    keys: Vec<String>,
    /// The auditor's heads that are not reached yet, largest first.
    given: Vec<SignedHead>,
    stage: Stage,
    /// The last head among the entries.
    newest: Option<SignedHead>,
    tree: Frontier,
    lines: u64,
    found: Verified,
    /// Where an entry is spelt again; kept, so that it is not allocated for each.
    spelt: Vec<u8>,
}

impl Default for Verifier {
    fn default() -> Self {
        let found = Verified {
            chain_head: Hash::GENESIS,
            entries: 0,
            from: None,
            heads: 0,
            heads_given: 0,
            redacted: 0,
            restored: None,
            root: merkle::empty_root(),
            to: None,
            vouched: None,
        };
        Self {
            keys: Vec::new(),
            given: Vec::new(),
            stage: Stage::Header,
            newest: None,
            tree: Frontier::default(),
            lines: 0,
            found,
            spelt: Vec::new(),
        }
    }
}

impl Verifier {
    /// A verifier that holds the export against what the auditor brings. A given head must be signed, and by a trusted
    /// key where keys are given.
    pub fn new(trust: Trust) -> Result<Self, Failure> {
        let Trust { mut heads, keys } = trust;
        for signed in &heads {
            let size = signed.head.size;
            let fail = |detail| Err(Failure { kind: Kind::Signature, entry: None, line: 0, detail });
            if !signed.verify() {
                return fail(format!("the signature of the given head over {size} entries does not fit"));
            }
            if !keys.is_empty() && !keys.contains(&signed.key) {
                return fail(format!("the given head over {size} entries is by another key, {}", signed.key));
            }
        }
        heads.sort_by_key(|signed| std::cmp::Reverse(signed.head.size));
        Ok(Self { keys, given: heads, ..Self::default() })
    }

    /// Takes the next line, its line break included.
    pub fn line<'a>(&mut self, line: &'a [u8]) -> Result<Line<'a>, Failure> {
        self.lines = self.lines.saturating_add(1);
        if line.len() > LINE_BYTES_MAX {
            return self.fail(Kind::Unreadable, self.here(line), "the line is longer than any line of an export");
        }
        if line.last() != Some(&b'\n') {
            return self.fail(Kind::Truncated, self.here(line), "the export ends within a line");
        }
        match self.stage {
            Stage::Header if line == HEADER => {
                self.stage = Stage::Entries;
                self.given_heads()?;
                Ok(Line::Header)
            }
            Stage::Header => self.fail(Kind::Unreadable, None, "not the first line of an export of version 1"),
            Stage::Entries if line.starts_with(ENTRY) => {
                let (entry, bytes) = self.entry(line)?;
                Ok(Line::Entry(entry, bytes))
            }
            Stage::Entries if line.starts_with(TRAILER) => {
                self.trailer(line)?;
                Ok(Line::Trailer)
            }
            Stage::Entries => {
                self.fail(Kind::Unreadable, Some(self.next()), "neither an entry nor the last line of an export")
            }
            Stage::End => self.fail(Kind::Unreadable, None, "more lines behind the last one"),
        }
    }

    /// The last line for the entries so far, for who writes an export.
    pub fn closing_line(&self) -> Vec<u8> {
        let Verified { chain_head, entries, .. } = self.found;
        Trailer { chain_head, count: entries, root: self.tree.root(), signed: self.newest.clone() }.line()
    }

    /// How many entries have passed.
    pub fn entries(&self) -> u64 {
        self.found.entries
    }

    /// Ends the walk.
    pub fn finish(self) -> Result<Verified, Failure> {
        if self.stage != Stage::End {
            return self.fail(Kind::Truncated, Some(self.next()), "the export ends before its last line");
        }
        if let Some(signed) = self.given.last() {
            let (size, count) = (signed.head.size, self.found.entries);
            let detail = format!("the export has {count} entries, the given head is over {size}");
            return self.fail(Kind::Truncated, Some(self.next()), detail);
        }
        if !self.keys.is_empty() && self.found.vouched.is_none() {
            return self.fail(Kind::Signature, None, "no head is signed by a key that you trust");
        }
        Ok(self.found)
    }

    fn next(&self) -> EvidenceIndex {
        EvidenceIndex(self.found.entries).next()
    }

    /// The entry that a damaged line stands for, if it stands for one.
    fn here(&self, line: &[u8]) -> Option<EvidenceIndex> {
        (self.stage == Stage::Entries && !line.starts_with(TRAILER)).then(|| self.next())
    }

    fn fail<T>(&self, kind: Kind, entry: Option<EvidenceIndex>, detail: impl Into<String>) -> Result<T, Failure> {
        Err(Failure { kind, entry, line: self.lines, detail: detail.into() })
    }

    fn entry<'a>(&mut self, line: &'a [u8]) -> Result<(Entry, &'a [u8]), Failure> {
        let here = Some(self.next());
        let Some((bytes, said)) = parts(line) else {
            return self.fail(Kind::Unreadable, here, "not an entry and its hash");
        };
        let hash = evidence::hash(bytes);
        if hash != said {
            return self.fail(Kind::Hash, here, format!("the entry hashes to {hash}, the line says {said}"));
        }
        let entry = match evidence::decode(bytes) {
            Ok(entry) => entry,
            Err(error) => {
                let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
                return self.fail(Kind::Unreadable, here, format!("{error}{}", source.unwrap_or_default()));
            }
        };
        if !evidence::is_canonical(&entry, bytes, &mut self.spelt) {
            return self.fail(Kind::Unreadable, here, "the entry is not in its canonical spelling");
        }
        if entry.v != ENTRY_VERSION {
            return self.fail(Kind::Unreadable, here, format!("entries of version {} are not known here", entry.v));
        }
        if Some(entry.index) != here {
            return self.fail(Kind::Chain, here, format!("entry `{}` stands in its place", entry.index));
        }
        if entry.prev != self.found.chain_head {
            let detail = format!("it names predecessor {}, the chain has {}", entry.prev, self.found.chain_head);
            return self.fail(Kind::Chain, here, detail);
        }
        if let Body::HeadSigned(signed) = &entry.body {
            if !signed.verify() {
                return self.fail(Kind::Signature, here, "the signature of the head does not fit");
            }
            self.fits(signed, here)?;
            self.found.heads = self.found.heads.saturating_add(1);
            self.newest = Some(signed.clone());
        }
        if let Body::Restored(restored) = &entry.body {
            if (restored.entries, restored.chain_head) != (self.found.entries, self.found.chain_head) {
                let detail = format!("restored from {} entries that are not those before it", restored.entries);
                return self.fail(Kind::Contradiction, here, detail);
            }
            self.found.restored = Some(restored.entries);
        }
        self.found.chain_head = hash;
        self.found.entries = self.found.entries.saturating_add(1);
        self.found.redacted = self.found.redacted.saturating_add(is_redacted(&entry.body).into());
        self.found.from = self.found.from.or(Some(entry.at));
        self.found.to = Some(entry.at);
        self.tree.push(merkle::leaf_hash(&hash));
        self.given_heads()?;
        Ok((entry, bytes))
    }

    /// Holds the entries so far against the given heads over exactly as many.
    fn given_heads(&mut self) -> Result<(), Failure> {
        let count = self.found.entries;
        let last = (count > 0).then_some(EvidenceIndex(count));
        while let Some(signed) = self.given.pop_if(|signed| signed.head.size == count) {
            self.fits(&signed, last)?;
            self.found.heads_given = self.found.heads_given.saturating_add(1);
        }
        Ok(())
    }

    /// Whether a head says of the entries so far what they are.
    fn fits(&mut self, signed: &SignedHead, at: Option<EvidenceIndex>) -> Result<(), Failure> {
        let (head, found) = (&signed.head, &self.found);
        if head.size != found.entries {
            let detail = format!("a head over {} entries, where {} stand before it", head.size, found.entries);
            return self.fail(Kind::Contradiction, at, detail);
        }
        let root = self.tree.root();
        if head.chain_head != found.chain_head || head.root != root {
            let backup = found.restored.filter(|backup| *backup < head.size);
            let lost = backup.map(|backup| format!("; the cluster was restored from a backup of {backup} entries"));
            let lost = lost.unwrap_or_default();
            let detail = format!("the head signed over {} entries is over other entries than these{lost}", head.size);
            return self.fail(Kind::Contradiction, at, detail);
        }
        if self.keys.contains(&signed.key) {
            self.found.vouched = self.found.vouched.max(Some(signed.head.size));
        }
        Ok(())
    }

    fn trailer(&mut self, line: &[u8]) -> Result<(), Failure> {
        let trailer = match serde_json::from_slice::<Trailer>(line) {
            Ok(trailer) if trailer.line() == line => trailer,
            _ => return self.fail(Kind::Unreadable, None, "the last line is not in its canonical spelling"),
        };
        let (count, have) = (trailer.count, self.found.entries);
        if count != have {
            let detail = format!("the last line counts {count} entries, {have} are there");
            return self.fail(Kind::Truncated, Some(EvidenceIndex(count.min(have)).next()), detail);
        }
        if trailer.chain_head != self.found.chain_head {
            return self.fail(Kind::Chain, None, "the last line names another last hash");
        }
        self.found.root = self.tree.root();
        if trailer.root != self.found.root {
            return self.fail(Kind::Tree, None, format!("the root over the entries is {}", self.found.root));
        }
        if trailer.signed != self.newest {
            let Some(signed) = &trailer.signed else {
                return self.fail(Kind::Contradiction, None, "the last line leaves out the newest signed head");
            };
            if !signed.verify() {
                return self.fail(Kind::Signature, None, "the signature of the head in the last line does not fit");
            }
            if signed.head.size > have {
                let detail = format!("the export has {have} entries, its signed head is over {}", signed.head.size);
                return self.fail(Kind::Truncated, Some(self.next()), detail);
            }
            self.fits(signed, None)?;
        }
        self.stage = Stage::End;
        Ok(())
    }
}

/// The bytes of an entry and the hash that stands behind them.
fn parts(line: &[u8]) -> Option<(&[u8], Hash)> {
    let rest = line.strip_prefix(ENTRY)?.strip_suffix(ENTRY_END)?;
    let (rest, digits) = rest.split_at_checked(rest.len().checked_sub(HASH_DIGITS)?)?;
    Some((rest.strip_suffix(ENTRY_HASH)?, Hash::parse(std::str::from_utf8(digits).ok()?)?))
}

fn is_redacted(body: &Body) -> bool {
    match body {
        Body::Decision(decided) | Body::ExecIntent(decided) => !decided.redacted.is_empty(),
        Body::ExecResult(result) => !result.redacted.is_empty(),
        Body::ReportNoted(noted) => !noted.redacted.is_empty(),
        Body::ReportRefused(refused) => !refused.redacted.is_empty(),
        Body::LocalDecision(local) => !local.redacted.is_empty(),
        _ => false,
    }
}
