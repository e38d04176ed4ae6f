//! What this machine shows of a node: its disk, its folders, its secrets, its certificates.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::statvfs::statvfs;
use nix::unistd::{Uid, User};

use super::{Finding, Report, certificates};
use crate::config::Config;

/// Below these shares of free space a disk is a warning, or a problem.
const FREE_PERCENT: (u64, u64) = (20, 5);

/// Whatever the share, less than this is a problem: a snapshot needs room beside what it is taken of.
const FREE_BYTES_MIN: u64 = 1 << 30;

pub(super) fn look(config: &Config) -> Vec<Finding> {
    let mut report = Report::about("this machine");
    disk(&mut report, &config.data);
    folder(&mut report, &config.data);
    secrets(&mut report, config);
    certificates::look(&mut report, config);
    report.findings
}

fn disk(report: &mut Report, data: &Path) {
    let place = data.ancestors().find(|path| path.exists()).unwrap_or(data);
    let stats = match statvfs(place) {
        Ok(stats) => stats,
        Err(error) => {
            return report.problem(
                "disk",
                format!("`{}` cannot be looked at: {error}", place.display()),
                "check `data`",
            );
        }
    };
    #[expect(clippy::useless_conversion, reason = "the width of these differs between systems")]
    let (free, all) = (
        u64::from(stats.blocks_available()).saturating_mul(u64::from(stats.fragment_size())),
        u64::from(stats.blocks()).saturating_mul(u64::from(stats.fragment_size())),
    );
    let percent = free.saturating_mul(100).checked_div(all).unwrap_or_default();
    let text = format!("{} MiB ({percent} %) free at `{}`", free >> 20, place.display());
    let advice = "a full disk sheds decides: give it room, or move `data` with the node stopped";
    if percent < FREE_PERCENT.1 || free < FREE_BYTES_MIN {
        report.problem("disk", text, advice);
    } else if percent < FREE_PERCENT.0 {
        report.warning("disk", text, advice);
    } else {
        report.ok("disk", text);
    }
}

fn folder(report: &mut Report, data: &Path) {
    let facts = match std::fs::metadata(data) {
        Ok(facts) => facts,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = format!("`{}` is not there yet", data.display());
            return report.warning("data", text, "the first start makes it; if this node ran before, its data is lost");
        }
        Err(error) => {
            let text = format!("`{}` cannot be looked at: {error}", data.display());
            return report.problem("data", text, "run this as the node's user");
        }
    };
    let mode = facts.mode() & 0o777;
    let owner = User::from_uid(Uid::from_raw(facts.uid())).ok().flatten();
    let owner = owner.map_or_else(|| facts.uid().to_string(), |user| user.name);
    let text = format!("`{}` belongs to {owner}, mode {mode:04o}", data.display());
    if !facts.is_dir() {
        report.problem("data", format!("`{}` is no folder", data.display()), "correct `data`");
    } else if mode & 0o077 != 0 {
        report.warning("data", text, format!("others can look in: chmod 700 {}", data.display()));
    } else {
        report.ok("data", text);
    }
    let me = Uid::effective();
    if facts.uid() != me.as_raw() && !me.is_root() {
        report.warning("data", "it belongs to another user than the one who asks", "run this as the node's user");
    }
}

fn secrets(report: &mut Report, config: &Config) {
    let made = config.data.join("head.key");
    let head = config.head_key.as_deref().or_else(|| made.exists().then_some(made.as_path()));
    let webhook = config.webhook.as_ref().map(|webhook| webhook.secret.as_path());
    let refused = "the node does not start with it";
    let keys = [("redaction_key", config.redaction_key.as_deref()), ("head_key", head), ("webhook.secret", webhook)];
    for (name, path) in keys.into_iter().filter_map(|(name, path)| Some((name, path?))) {
        secret(report, name, path, Some(refused));
    }
    secret(report, "tokens", &config.tokens, None);
    let tls = [("http.tls.key", &config.http.tls), ("grpc.tls.key", &config.grpc.tls)];
    for (name, tls) in tls.into_iter().filter_map(|(name, tls)| Some((name, tls.as_ref()?))) {
        secret(report, name, &tls.key, None);
    }
    if let Some(tls) = &config.peer.tls {
        secret(report, "peer.tls.key", &tls.key, None);
    }
}

/// `fatal`: what happens when others can read it.
fn secret(report: &mut Report, name: &str, path: &Path, fatal: Option<&str>) {
    match std::fs::metadata(path) {
        Err(error) => {
            let text = format!("{name}: `{}` cannot be looked at: {error}", path.display());
            report.problem("secrets", text, "the node does not start without it");
        }
        Ok(facts) if facts.mode() & 0o077 != 0 => {
            let text = format!("{name}: `{}` is open to others, mode {:04o}", path.display(), facts.mode() & 0o777);
            let advice = format!("chmod 600 {}", path.display());
            match fatal {
                Some(fatal) => report.problem("secrets", text, format!("{fatal}: {advice}")),
                None => report.warning("secrets", text, advice),
            }
        }
        Ok(_) => report.ok("secrets", format!("{name} is its owner's alone")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::Level;
    use super::*;

    fn found<'a>(findings: &'a [Finding], check: &str, part: &str) -> &'a Finding {
        let one = findings.iter().find(|one| one.check == check && one.text.contains(part));
        one.unwrap_or_else(|| panic!("no {check} with `{part}`: {findings:#?}"))
    }

    /// Goal: what others can read, what is not there and what will not start is found, with what to do.
    #[test]
    fn open_folders_and_secrets_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let text = "node_id = 1\ndata = \"data\"\ntokens = \"tokens.json\"\nredaction_key = \"redaction.key\"\n\
                    [http]\nlisten = \"127.0.0.1:7101\"\n[grpc]\nlisten = \"127.0.0.1:7201\"\n\
                    [peer]\nlisten = \"127.0.0.1:7301\"\n";
        std::fs::write(at("node.toml"), text).unwrap();
        let config = Config::load(&at("node.toml")).unwrap();
        let findings = look(&config);
        assert_eq!(found(&findings, "data", "is not there yet").level, Level::Warning);
        assert_eq!(found(&findings, "secrets", "redaction_key").level, Level::Problem);
        assert!(found(&findings, "disk", "free at").text.contains("MiB"));

        let mode = |name: &str, mode: u32| {
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        std::fs::create_dir(at("data")).unwrap();
        for name in ["tokens.json", "redaction.key", "data/head.key"] {
            std::fs::write(at(name), "x").unwrap();
            mode(name, 0o640);
        }
        mode("data", 0o755);
        let findings = look(&config);
        assert_eq!(found(&findings, "data", "mode 0755").level, Level::Warning);
        assert!(found(&findings, "data", "mode 0755").advice.contains("chmod 700"));
        for (name, level) in
            [("redaction_key", Level::Problem), ("head_key", Level::Problem), ("tokens", Level::Warning)]
        {
            let one = found(&findings, "secrets", name);
            assert_eq!((one.level, one.advice.contains("chmod 600")), (level, true), "{one:?}");
        }
        mode("data", 0o700);
        for name in ["tokens.json", "redaction.key", "data/head.key"] {
            mode(name, 0o600);
        }
        let findings = look(&config);
        let bad: Vec<_> = findings.iter().filter(|one| one.level != Level::Ok && one.check != "disk").collect();
        assert!(bad.is_empty(), "{bad:#?}");
    }
}
