//! Real processes and real faults.
