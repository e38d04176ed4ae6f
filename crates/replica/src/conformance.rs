//! openraft's storage conformance suite over the ports, for the tests of a store.
//! Absent on purpose: anything that ships; generic over the guard, so that only a test instantiates it.

use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::TypeConfigExt;

use crate::log_store::LogStore;
use crate::ports::{Log, State};
use crate::retention::LogUse;
use crate::snapshot::Snapshots;
use crate::state_machine::Applier;
use crate::types::Types;
use crate::work::Work;

/// One new, empty store and what must outlive it.
pub type Fresh<G> = (Arc<dyn Log>, Arc<dyn State>, PathBuf, G);

struct Builder<F, G> {
    fresh: F,
    guard: PhantomData<fn() -> G>,
}

impl<F, G> StoreBuilder<Types, LogStore, Applier, G> for Builder<F, G>
where
    F: Fn() -> Fresh<G> + Send + Sync,
    G: Send + Sync,
{
    async fn build(&self) -> Result<(G, LogStore, Applier), StorageError<Types>> {
        let (log, state, snapshot_dir, guard) = (self.fresh)();
        let failed = |error: std::io::Error| StorageError::read(Types::err_from_string(error));
        let snapshots = Arc::new(Snapshots::open(&snapshot_dir, state.clone(), Work::threads()).map_err(failed)?);
        let store = LogUse::open(log.as_ref(), None)
            .and_then(|log_use| LogStore::new(log.clone(), snapshots.clone(), Arc::new(log_use), &Work::threads()))
            .map_err(failed)?;
        let applier = Applier::open(state, log, snapshots, tokio::sync::broadcast::channel(1).0, Arc::default())
            .map_err(failed)?;
        Ok((guard, store, applier))
    }
}

/// Runs the suite; `fresh` makes a new store for each case. Panics where the suite's own assertions fail.
pub async fn run<G: Send + Sync>(fresh: impl Fn() -> Fresh<G> + Send + Sync) -> Result<(), String> {
    Suite::test_all(Builder { fresh, guard: PhantomData }).await.map_err(|error| error.to_string())
}

/// The batch in a log record, for a simulation that looks at its disks; `None` for any other record.
pub fn batch_in(record: &bytes::Bytes) -> Option<bytes::Bytes> {
    match crate::network::convert::decode_entry(record.clone()).ok()?.payload {
        openraft::EntryPayload::Normal(crate::types::Blob(bytes)) => Some(bytes),
        _ => None,
    }
}
