//! The webhook: approvers hear of proposals and of what became of them (AADP §11), at least once and in order.
//! Absent on purpose: any influence on decisions. The sender follows the evidence behind the log; an endpoint that is
//! down delays its own messages and nothing else.
//!
//! How far it came is itself recorded, so that another leader goes on from there. Signed as Standard Webhooks says:
//! `webhook-id`, `webhook-timestamp`, and `webhook-signature: v1,<base64 of HMAC-SHA256 over id.timestamp.body>`.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use placet_core::event::{ApprovalState, Body, Entry};
use placet_core::evidence;
use placet_core::ids::{ApprovalId, EvidenceIndex, Principal};
use placet_core::op::{Answer, ApprovalView, Call, Op, Query, Reject};
use placet_core::state::List;
use placet_replica::Node;
use serde::Serialize;
use sha2::Sha256;

use crate::config::Webhook;

/// Entries read at once.
const FEW: usize = 256;

/// Entries without anything to tell before the position is recorded all the same: a new leader reads at most so many
/// again.
const SILENT_MAX: u64 = 10_000;

/// Entries between two records of the position while there is much to tell.
const RECORD_EVERY: u64 = 32;

/// How far back a webhook begins that this cluster never had.
const PAST_MS: i64 = 3_600_000;

/// Attempts at a message that the endpoint says it will never take; then the next one has its turn.
const REFUSED_ATTEMPTS_MAX: u32 = 10;

/// Bytes of arguments and of a rationale in the part for programs: receivers have limits, and an agent must not choose a
/// message that none takes.
const TOLD_BYTES_MAX: usize = 16 << 10;

/// One attempt.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(10);

/// The first pause after a failure; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(500);

/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Characters of arguments and rationale in the line for people.
const SHOWN_CHARS_MAX: usize = 600;

/// Plain text leaves this machine only encrypted.
pub fn check_url(text: &str) -> anyhow::Result<()> {
    let url = reqwest::Url::parse(text).context("`webhook.url` is not a URL")?;
    let local = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
    ensure!(
        url.scheme() == "https" || (url.scheme() == "http" && local),
        "`webhook.url` is https, or http on loopback"
    );
    Ok(())
}

/// The task that sends until the process ends. Only the leader sends.
pub fn sender(node: Node, config: &Webhook) -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
    let sender = Sender {
        client: reqwest::Client::builder()
            .timeout(ATTEMPT_WITHIN)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .context("the webhook's client")?,
        url: config.url.clone(),
        secret: secret(&config.secret)?,
        node,
    };
    Ok(sender.follow())
}

/// `whsec_<base64>`, as receivers of Standard Webhooks know it, or the bytes of the file.
fn secret(path: &Path) -> anyhow::Result<Vec<u8>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("webhook secret `{}`", path.display()))?;
    let secret = match text.trim().strip_prefix("whsec_") {
        Some(encoded) => STANDARD.decode(encoded).context("the webhook secret is not base64 behind `whsec_`")?,
        None => text.trim().as_bytes().to_vec(),
    };
    if secret.len() < 16 {
        bail!("the webhook secret `{}` is shorter than 16 bytes", path.display());
    }
    Ok(secret)
}

struct Sender {
    client: reqwest::Client,
    url: String,
    secret: Vec<u8>,
    node: Node,
}

/// What is sent. `text` is for people, and what Slack shows; the rest is for programs.
#[derive(Serialize)]
struct Message {
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: String,
    text: String,
    data: Data,
}

#[derive(Serialize)]
struct Data {
    evidence_id: String,
    /// Who caused this event.
    by: Principal,
    /// Whether arguments or rationale are longer than what is told here.
    clipped: bool,
    approval: ApprovalView,
}

/// Shows how far the news were looked through; 0 where another node does it.
fn position(at: EvidenceIndex) {
    #[expect(clippy::cast_precision_loss, reason = "a gauge")]
    metrics::gauge!("placet_webhook_position").set(at.0 as f64);
}

impl Sender {
    async fn follow(self) {
        // What was delivered and is not recorded yet: it is not sent again while this node leads.
        let mut sent = EvidenceIndex(0);
        loop {
            if !self.node.leads() {
                sent = EvidenceIndex(0);
                position(sent);
            } else if let Err(reject) = self.send_what_is_new(&mut sent).await {
                tracing::debug!(detail = reject.detail(), "the webhook waits");
            }
            tokio::time::sleep(PAUSE_FIRST).await;
        }
    }

    /// Goes on from the recorded position for as long as this node leads.
    async fn send_what_is_new(&self, sent: &mut EvidenceIndex) -> Result<(), Reject> {
        let mut recorded = match self.ask(Op::Query(Query::Notified)).await? {
            Answer::Notified(up_to) => up_to,
            _ => return Ok(()),
        };
        if recorded == EvidenceIndex(0) {
            recorded = self.begin().await?;
        }
        let mut after = recorded.max(*sent);
        while self.node.leads() {
            position(after);
            if after.0.saturating_sub(recorded.0) > SILENT_MAX || (*sent > recorded && after == *sent) {
                self.ask(Op::Notified { up_to: after }).await?;
                recorded = after;
            }
            let entries = self.node.records().entries(after, FEW)?;
            if entries.is_empty() {
                self.node.evidence_beyond(after).await;
                continue;
            }
            for (index, bytes) in entries {
                if let Ok(entry) = evidence::decode(&bytes)
                    && let Some((kind, id)) = news(&entry)
                {
                    position(index);
                    self.deliver(&entry, kind, &id).await?;
                    *sent = index;
                }
                after = index;
                if sent.0.saturating_sub(recorded.0) > RECORD_EVERY && *sent == index {
                    break;
                }
            }
            // Silence behind the last message is covered by its record, too.
            if *sent > recorded {
                *sent = after;
            }
        }
        Ok(())
    }

    /// Records where this cluster's messages begin, once: a webhook that is new to a cluster with a past does not tell
    /// that past, and what is not delivered yet does not become past under the next leader. The first entry is never
    /// news: without a policy there is no proposal.
    async fn begin(&self) -> Result<EvidenceIndex, Reject> {
        self.node.evidence_beyond(EvidenceIndex(0)).await;
        let news_from = self.node.now().plus_ms(-PAST_MS);
        let mut up_to = EvidenceIndex(1);
        'past: loop {
            let entries = self.node.records().entries(up_to, FEW)?;
            if entries.is_empty() {
                break;
            }
            for (index, bytes) in entries {
                if evidence::decode(&bytes).is_ok_and(|entry| entry.at >= news_from) {
                    break 'past;
                }
                up_to = index;
            }
        }
        self.ask(Op::Notified { up_to }).await?;
        Ok(up_to)
    }

    async fn ask(&self, op: Op) -> Result<Answer, Reject> {
        self.node.submit(Call { principal: Principal::system(), op }).await
    }

    /// Tries until the endpoint takes it, or this node leads no longer.
    async fn deliver(&self, entry: &Entry, kind: &'static str, id: &ApprovalId) -> Result<(), Reject> {
        let mut approval = match self.ask(Op::Query(Query::Approval { id: id.clone() })).await? {
            Answer::Approval(view) => view,
            _ => return Ok(()),
        };
        let text = line(kind, entry, &approval);
        let clipped = clip(&mut approval.params) | clip(&mut approval.rationale);
        let data = Data { evidence_id: entry.index.to_string(), by: entry.principal.clone(), clipped, approval };
        let message = Message { kind, timestamp: entry.at.to_string(), text, data };
        // Strings, numbers and lists; serialising them to memory has no way to fail.
        let body = serde_json::to_vec(&message).unwrap_or_default();
        let (mut pause, mut refused) = (PAUSE_FIRST, 0);
        while self.node.leads() {
            match self.post(entry.index, &body).await {
                Ok(()) => {
                    metrics::counter!("placet_webhook_delivered_total").increment(1);
                    return Ok(());
                }
                Err(failure) => {
                    metrics::counter!("placet_webhook_failed_total").increment(1);
                    refused += u32::from(failure.refused);
                    if refused >= REFUSED_ATTEMPTS_MAX {
                        metrics::counter!("placet_webhook_refused_total").increment(1);
                        tracing::error!(error = failure.what, evidence = %entry.index, "the webhook refuses an event; it is left out");
                        return Ok(());
                    }
                    tracing::warn!(error = failure.what, evidence = %entry.index, "the webhook did not take an event; it is sent again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
        Err(Reject::Unavailable { detail: "this node leads no longer".to_owned() })
    }

    async fn post(&self, index: EvidenceIndex, body: &[u8]) -> Result<(), Failure> {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().to_string();
        let id = index.to_string();
        let signature =
            signature(&self.secret, &id, &seconds, body).map_err(|error| Failure::again(error.to_string()))?;
        let sent = self
            .client
            .post(&self.url)
            .header("content-type", "application/json")
            .header("webhook-id", &id)
            .header("webhook-timestamp", &seconds)
            .header("webhook-signature", signature)
            .body(body.to_vec())
            .send()
            .await;
        // The address is a secret at some receivers, so it is not in what is logged.
        let response = sent.map_err(|error| Failure::again(error.without_url().to_string()))?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let later = matches!(status.as_u16(), 408 | 425 | 429);
        Err(Failure { what: format!("it answered {status}"), refused: status.is_client_error() && !later })
    }
}

/// Why a message was not taken.
struct Failure {
    what: String,
    /// The endpoint will say the same again.
    refused: bool,
}

impl Failure {
    fn again(what: String) -> Self {
        Self { what, refused: false }
    }
}

/// Cuts a long text at a character, and says whether it did.
fn clip(text: &mut String) -> bool {
    if text.len() <= TOLD_BYTES_MAX {
        return false;
    }
    let end = (0..=TOLD_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.truncate(end);
    true
}

fn signature(secret: &[u8], id: &str, timestamp: &str, body: &[u8]) -> anyhow::Result<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret)?;
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    Ok(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
}

/// What approvers hear of: a word, and the approval.
fn news(entry: &Entry) -> Option<(&'static str, ApprovalId)> {
    match &entry.body {
        Body::Decision(decided) => match (&decided.approval_id, &decided.approval_ref) {
            (Some(id), _) => Some(("approval.proposed", id.clone())),
            (None, Some(id)) if decided.resumes.is_some() => Some(("approval.consumed", id.clone())),
            _ => None,
        },
        Body::ExecIntent(decided) => {
            decided.resumes.and(decided.approval_ref.clone()).map(|id| ("approval.consumed", id))
        }
        Body::ApprovalTransition(change) => {
            let kind = match change.to {
                ApprovalState::Pending => "approval.voted",
                ApprovalState::Approved => "approval.granted",
                ApprovalState::Denied => "approval.denied",
                ApprovalState::Expired => "approval.expired",
                ApprovalState::Consumed => "approval.consumed",
            };
            Some((kind, change.approval_id.clone()))
        }
        Body::ApprovalRefused(refused) => Some(("approval.refused", refused.approval_id.clone())),
        _ => None,
    }
}

/// One message for people. What an agent wrote must not look like something else: marks of the message's own markup are
/// escaped, control characters shown.
fn line(kind: &str, entry: &Entry, approval: &ApprovalView) -> String {
    let plain = |text: &str| {
        let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).flat_map(harmless).collect();
        if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
            shown.push('…');
        }
        shown
    };
    let what = kind.trim_start_matches("approval.");
    let mut lines = vec![
        format!("*{} {what}* by `{}`", plain(approval.action_type.as_str()), plain(entry.principal.as_str())),
        format!("proposed by `{}`: {}", plain(approval.proposer.as_str()), plain(&approval.rationale)),
        format!("arguments: `{}`", plain(&approval.params)),
        format!("why a human: {}", approval.reason.as_str()),
    ];
    if let Some(cost) = approval.cost {
        lines.push(format!("cost: {cost}"));
    }
    for budget in &approval.budgets {
        let (name, dimension) = (plain(&budget.name), plain(&budget.dimension));
        lines.push(format!("left in {name}: {} of {} {dimension}", budget.remaining, budget.limit));
    }
    if kind == "approval.proposed" || kind == "approval.voted" {
        lines.push(format!("votes: {} of {}", approval.votes.len(), approval.quorum));
        lines.push(format!("decide before {}: `placet approvals grant {}`", approval.deadline, approval.approval_id));
    }
    lines.join("\n")
}

fn harmless(letter: char) -> Vec<char> {
    match letter {
        '&' => "&amp;".chars().collect(),
        '<' => "&lt;".chars().collect(),
        '>' => "&gt;".chars().collect(),
        '*' | '_' | '~' | '`' => vec!['\u{200b}', letter],
        '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            letter.escape_default().collect()
        }
        letter if letter.is_control() => letter.escape_default().collect(),
        letter => vec![letter],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a receiver of Standard Webhooks accepts the signature. The vector is that specification's own.
    #[test]
    fn the_signature_is_the_one_of_standard_webhooks() {
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signed = signature(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body).unwrap();
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn what_an_agent_wrote_stays_text() {
        let text: String = "<!channel> *ok* `x`\n\u{202e}".chars().flat_map(harmless).collect();
        assert!(!text.contains('<') && !text.contains('\n') && !text.contains('\u{202e}'), "{text}");
    }

    #[test]
    fn addresses() {
        for (url, fits) in [
            ("https://hooks.example.com/x", true),
            ("http://127.0.0.1:9000/", true),
            ("http://hooks.example.com/x", false),
            ("ftp://127.0.0.1/", false),
            ("nonsense", false),
        ] {
            assert_eq!(check_url(url).is_ok(), fits, "{url}");
        }
    }
}
