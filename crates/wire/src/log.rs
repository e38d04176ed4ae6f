//! The codec of log records.
