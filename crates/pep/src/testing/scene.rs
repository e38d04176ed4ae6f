//! A decision point and an enforcement point that asks it, ready for an example or a test.
//! Absent on purpose: choices. Who needs others starts a [`LocalPdp`] and builds a [`Pep`] itself.

use std::path::PathBuf;
use std::{env, fs, io};

use super::LocalPdp;
use crate::clock;
use crate::pep::{Pep, Unreachable};

/// A read, a lamp, a payment that demands an idempotency key, and a transfer that waits for a human.
pub const EXAMPLE_POLICIES: &str = r#"
apiVersion: placet/v1
policies:
  - { action_type: read.status, tier: 0 }
  - action_type: lamp.toggle
    tier: 1
    dry_run: false
    compensating_command: lamp.toggle
    bounds: { enum: { state: ["on", "off"] }, required: [state] }
  - action_type: pay.small
    tier: 2
    dry_run: false
    compensating_command: pay.small
    bounds: { numeric: { amount_eur: { min: "0.01", max: "500" } }, required: [payee, amount_eur] }
    obligations: [{ type: idempotency_key }]
  - { action_type: wire.send, tier: 3, dry_run: false, bounds: { strict_params: false } }
"#;

/// Both ends, and a folder for the outbox that goes when this is dropped.
///
/// ```
/// use placet_pep::Action;
/// use placet_pep::testing::Scene;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let scene = Scene::open().await?;
/// scene.pep.run(Action::new("lamp.toggle").param("state", "on"), async |_| Ok(())).await?;
/// scene.pep.flush().await;
/// assert_eq!(scene.pdp.results(), ["success"]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Scene {
    /// Under [`EXAMPLE_POLICIES`].
    pub pdp: LocalPdp,
    /// Fails closed.
    pub pep: Pep,
    folder: PathBuf,
}

impl Scene {
    /// Starts both.
    pub async fn open() -> io::Result<Self> {
        let pdp = LocalPdp::start(EXAMPLE_POLICIES).await?;
        let name = clock::new_request_id().map_err(io::Error::other)?;
        let folder = env::temp_dir().join(format!("placet-scene-{name}"));
        let builder = Pep::builder().endpoint(pdp.url()).bearer_token(pdp.token()).outbox(&folder);
        let pep = builder.unreachable(Unreachable::FailClosed).build().map_err(io::Error::other)?;
        Ok(Self { pdp, pep, folder })
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
