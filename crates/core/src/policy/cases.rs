//! Tests of a policy, written as data.
