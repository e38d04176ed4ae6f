//! How long the configured certificates hold.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use x509_parser::pem::Pem;

use super::Report;
use crate::config::Config;

/// Days left below which a certificate is a warning, or a problem.
const DAYS: (i64, i64) = (30, 7);

const DAY_S: i64 = 86_400;

/// Every certificate that the configuration names, once for each place that names it.
pub(super) fn look(report: &mut Report, config: &Config) {
    let mut named: Vec<(&str, &Path)> = Vec::new();
    for (door, tls) in [("http.tls", &config.http.tls), ("grpc.tls", &config.grpc.tls)] {
        let Some(tls) = tls else { continue };
        named.push((if door == "http.tls" { "http.tls.cert" } else { "grpc.tls.cert" }, &tls.cert));
        if let Some(path) = &tls.client_ca {
            named.push((if door == "http.tls" { "http.tls.client_ca" } else { "grpc.tls.client_ca" }, path));
        }
    }
    if let Some(tls) = &config.peer.tls {
        named.extend([("peer.tls.cert", tls.cert.as_path()), ("peer.tls.ca", tls.ca.as_path())]);
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    for (name, path) in named {
        match std::fs::read(path) {
            Ok(pem) => judge(report, name, &pem, now),
            Err(error) => {
                let text = format!("{name}: `{}` cannot be read: {error}", path.display());
                report.problem("certificates", text, "the node does not start without it");
            }
        }
    }
}

/// `now`: seconds since the Unix epoch.
fn judge(report: &mut Report, name: &str, pem: &[u8], now: i64) {
    let mut seen = 0;
    for block in Pem::iter_from_buffer(pem) {
        let Ok(block) = block else { break };
        if block.label != "CERTIFICATE" {
            continue;
        }
        seen += 1;
        let certificate = match block.parse_x509() {
            Ok(certificate) => certificate,
            Err(error) => {
                report.problem("certificates", format!("{name}: not a certificate: {error}"), "replace the file");
                continue;
            }
        };
        let validity = certificate.validity();
        let (begins, ends) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        let who = format!("{name} ({})", certificate.subject());
        let days = ends.saturating_sub(now).div_euclid(DAY_S);
        let advice = "replace the file and restart the node, one node after the other";
        if now < begins {
            report.problem(
                "certificates",
                format!("{who} is not valid before {}", validity.not_before),
                "check this machine's clock",
            );
        } else if now >= ends {
            report.problem("certificates", format!("{who} expired at {}", validity.not_after), advice);
        } else if days < DAYS.1 {
            report.problem("certificates", format!("{who} expires in {days} days"), advice);
        } else if days < DAYS.0 {
            report.warning("certificates", format!("{who} expires in {days} days"), advice);
        } else {
            report.ok("certificates", format!("{who} holds for {days} days"));
        }
    }
    if seen == 0 {
        report.problem("certificates", format!("{name} holds no certificate in PEM"), "replace the file");
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    /// Goal: days are counted for every certificate of a file, and what cannot be read is a problem.
    #[test]
    fn days_are_counted() {
        let made = |not_after: (i32, u8, u8)| {
            let mut params = rcgen::CertificateParams::new(vec!["pdp.example".to_owned()]).unwrap();
            params.not_before = rcgen::date_time_ymd(2026, 1, 1);
            params.not_after = rcgen::date_time_ymd(not_after.0, not_after.1, not_after.2);
            params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
        };
        // 2026-03-01T00:00:00Z
        let now = 1_772_323_200;
        let look = |pem: &str, now: i64| {
            let mut report = Report::about("here");
            judge(&mut report, "peer.tls.cert", pem.as_bytes(), now);
            report.findings.into_iter().map(|one| (one.level, one.text)).collect::<Vec<_>>()
        };
        for (until, level, part) in [
            ((2027, 3, 1), Level::Ok, "holds for 365 days"),
            ((2026, 3, 31), Level::Ok, "holds for 30 days"),
            ((2026, 3, 30), Level::Warning, "expires in 29 days"),
            ((2026, 3, 7), Level::Problem, "expires in 6 days"),
            ((2026, 2, 28), Level::Problem, "expired at Feb 28"),
        ] {
            let found = look(&made(until), now);
            assert!(found.len() == 1 && found[0].0 == level && found[0].1.contains(part), "{found:?}");
        }
        let two = made((2027, 3, 1)) + &made((2026, 3, 7));
        assert_eq!(look(&two, now).iter().map(|(level, _)| *level).collect::<Vec<_>>(), [Level::Ok, Level::Problem]);
        assert!(
            look(&two, 1_700_000_000)
                .iter()
                .all(|(level, text)| *level == Level::Problem && text.contains("not valid before"))
        );
        assert!(look("hello", now)[0].1.contains("holds no certificate"));
    }
}
