//! How RocksDB is set up, each number with its reason. Absent on purpose: anything that gives up order or snapshots.

use std::path::PathBuf;

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode, Options,
};

use crate::StoreOptions;
use crate::keys::Family;

/// Bits of a bloom filter for each key: one wrong answer in a hundred.
const BLOOM_BITS: f64 = 10.0;

/// Parts of the state's write buffer that records and entries of decides fill together.
const STATE_BUFFER_PARTS: usize = 16;

/// Entries are read in runs or seldom, and have most of their text in common: large blocks pack it better.
const EVIDENCE_BLOCK_BYTES: usize = 16 << 10;

/// A table reaches the disk in pieces while it is written: all at once it would stand before the next sync of the log.
const TABLE_BYTES_PER_SYNC: u64 = 1 << 20;

/// RocksDB's own log files: a few, so that they never fill a disk.
const OWN_LOG_FILES: usize = 4;
const OWN_LOG_BYTES: usize = 4 << 20;

/// The log's write buffer, and so its write-ahead log and its tables: a part of what the log may hold.
const LOG_BUFFER_PARTS: u64 = 16;
const LOG_BUFFER_BYTES_MIN: u64 = 1 << 20;
const LOG_BUFFER_BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, Debug)]
pub(crate) struct Tuning {
    cache: SharedCache,
    own_logs: PathBuf,
    log_buffer_bytes: usize,
    state_buffer_bytes: usize,
    pub(crate) fsync: bool,
}

#[derive(Clone)]
struct SharedCache(Cache);

impl std::fmt::Debug for SharedCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cache({} bytes used)", self.0.get_usage())
    }
}

impl Tuning {
    pub(crate) fn new(options: &StoreOptions, own_logs: PathBuf) -> Self {
        let cache = SharedCache(Cache::new_lru_cache(options.block_cache_bytes));
        let part = options.log_bytes_max.map_or(LOG_BUFFER_BYTES_MAX, |max| max / LOG_BUFFER_PARTS);
        let log_buffer_bytes = usize::try_from(part.clamp(LOG_BUFFER_BYTES_MIN, LOG_BUFFER_BYTES_MAX));
        Self {
            cache,
            own_logs,
            log_buffer_bytes: log_buffer_bytes.unwrap_or(usize::MAX),
            state_buffer_bytes: options.write_buffer_bytes,
            fsync: !options.unsafe_no_fsync,
        }
    }

    fn common(&self) -> Options {
        let mut options = Options::default();
        // Whoever opens decides whether a database may be made: one that lost its `CURRENT` must not be made anew.
        options.create_if_missing(false);
        options.set_paranoid_checks(true);
        // A write-ahead log that a table already relies on must be there, and as long as it was.
        options.set_track_and_verify_wals_in_manifest(true);
        options.create_missing_column_families(true);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_db_log_dir(&self.own_logs);
        options.set_bytes_per_sync(TABLE_BYTES_PER_SYNC);
        options.set_keep_log_file_num(OWN_LOG_FILES);
        options.set_max_log_file_size(OWN_LOG_BYTES);
        // What cannot be read is dropped with all behind it. `inspect` has looked before whether that may be.
        options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
        options
    }

    fn blocks(&self, bloom: bool) -> BlockBasedOptions {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&self.cache.0);
        // Indexes and filters grow with history, so they have a place in the cache and no memory of their own: in parts,
        // so that what is asked for is there without the rest.
        blocks.set_cache_index_and_filter_blocks(true);
        blocks.set_cache_index_and_filter_blocks_with_high_priority(true);
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
        blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        blocks.set_pin_top_level_index_and_filter(true);
        if bloom {
            blocks.set_bloom_filter(BLOOM_BITS, false);
            blocks.set_partition_filters(true);
        }
        blocks
    }

    /// The log's database: sequential keys, read back soon, deleted in ranges.
    pub(crate) fn log(&self) -> Options {
        let mut options = self.common();
        // Records are packed when they are made.
        options.set_compression_type(DBCompressionType::None);
        options.set_block_based_table_factory(&self.blocks(false));
        options.set_write_buffer_size(self.log_buffer_bytes);
        // What was purged leaves the disk when tables are merged, so they are small beside what the log may hold.
        options.set_max_bytes_for_level_base(4 * u64::try_from(self.log_buffer_bytes).unwrap_or(u64::MAX));
        options.set_target_file_size_base(u64::try_from(self.log_buffer_bytes).unwrap_or(u64::MAX));
        options
    }

    /// The state's database.
    pub(crate) fn state(&self) -> Options {
        let mut options = self.common();
        // It has no write-ahead log: after a crash all families must stand at the same position of Raft's log.
        options.set_atomic_flush(true);
        options
    }

    /// One descriptor for each kind of record. The default family must be named too; it stays empty.
    pub(crate) fn families(&self, known: &[Family]) -> Vec<ColumnFamilyDescriptor> {
        let mut descriptors =
            vec![ColumnFamilyDescriptor::new(rocksdb::DEFAULT_COLUMN_FAMILY_NAME, Options::default())];
        descriptors.extend(known.iter().map(|family| {
            let mut options = self.common();
            // All are flushed when the first is full: the evidence, unless many batches of few calls rewrite the others.
            let (parts, bloom) = match family {
                Family::Evidence => (8, false),
                // Read by level and index, and a node that is asked for is there.
                Family::Merkle => (1, false),
                Family::Requests => (2, true),
                Family::Permits | Family::Budgets | Family::Meta => (4, true),
                Family::Approvals | Family::Policies => (2, true),
                // Read in runs.
                Family::Search => (1, false),
            };
            options.set_write_buffer_size(self.state_buffer_bytes.saturating_mul(parts) / STATE_BUFFER_PARTS);
            let mut blocks = self.blocks(bloom);
            if *family == Family::Evidence {
                blocks.set_block_size(EVIDENCE_BLOCK_BYTES);
            }
            options.set_block_based_table_factory(&blocks);
            ColumnFamilyDescriptor::new(family.name(), options)
        }));
        descriptors
    }
}
