//! Exhaustive exploration of small histories of the real core.
