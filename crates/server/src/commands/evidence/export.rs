//! `placet evidence export`: the evidence of a cluster as a file, verified while it is written.
//! INVARIANT (whole): under the name that was asked for there is a whole, verified export, or what was there before.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use placet_core::export::{HEADER, LINE_BYTES_MAX, Trust, Verified, Verifier};
use serde_json::json;

use super::offline::describe;
use super::progress::Progress;
use super::{failed, sign_head};
use crate::cli::{Target, exit};
use crate::client::Client;
use crate::commands::print;

pub(super) async fn export(target: &Target, client: &Client, out: Option<&Path>, sign: bool) -> anyhow::Result<u8> {
    // Signed first, so that the signature is itself among the entries, and the export must continue it.
    let heads = if sign {
        let signed = sign_head(client).await.context("no signed head; `--no-sign` exports without a new one")?;
        vec![signed.signed]
    } else {
        Vec::new()
    };
    let verifier = Verifier::new(Trust { heads, keys: Vec::new() }).map_err(|failure| failed(&failure))?;
    let verified = match out {
        Some(path) => {
            let partial = Partial::beside(path);
            let file = File::create(&partial.0).with_context(|| format!("cannot write `{}`", partial.0.display()))?;
            let mut writer = BufWriter::new(file);
            let verified = copy(client, verifier, &mut writer).await?;
            writer.into_inner().map_err(|error| error.into_error())?.sync_all()?;
            std::fs::rename(&partial.0, path).with_context(|| format!("cannot write `{}`", path.display()))?;
            print(target.output, &json!(verified), |_| describe(&verified));
            return Ok(exit::OK);
        }
        None => copy(client, verifier, &mut BufWriter::new(std::io::stdout().lock())).await?,
    };
    let _ = writeln!(std::io::stderr(), "{}", describe(&verified));
    Ok(exit::OK)
}

/// Writes the first line, every entry of the node's stream that follows, and the last line.
async fn copy(client: &Client, mut verifier: Verifier, out: &mut impl Write) -> anyhow::Result<Verified> {
    let mut take = |verifier: &mut Verifier, line: &[u8]| -> anyhow::Result<()> {
        verifier.line(line).map_err(|failure| failed(&failure))?;
        Ok(out.write_all(line)?)
    };
    take(&mut verifier, HEADER)?;
    let mut stream = client.stream("/v1/evidence/export").await?;
    let mut progress = Progress::new(None);
    let (mut rest, mut bytes) = (Vec::new(), 0u64);
    while let Some(chunk) = stream.next().await? {
        bytes = bytes.saturating_add(u64::try_from(chunk.len()).unwrap_or_default());
        rest.extend_from_slice(&chunk);
        let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        for line in rest.get(..whole).unwrap_or_default().split_inclusive(|byte| *byte == b'\n') {
            take(&mut verifier, line)?;
        }
        rest.drain(..whole);
        anyhow::ensure!(rest.len() <= LINE_BYTES_MAX, "the node sent a line that is longer than any entry");
        progress.at(bytes, verifier.entries());
    }
    if !rest.is_empty() {
        take(&mut verifier, &rest)?;
    }
    let last = verifier.closing_line();
    take(&mut verifier, &last)?;
    out.flush()?;
    verifier.finish().map_err(|failure| failed(&failure))
}

/// A file that is not whole yet; whatever goes wrong, it does not stay.
struct Partial(PathBuf);

impl Partial {
    fn beside(path: &Path) -> Self {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".partial-{}", std::process::id()));
        Self(path.with_file_name(name))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Once it has its name, there is nothing to remove.
        let _ = std::fs::remove_file(&self.0);
    }
}
