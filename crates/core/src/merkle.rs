//! The tree: a Merkle tree over the evidence, in the shape of RFC 6962 §2.1, so that one entry, or all growth since an
//! earlier head, is proved with a few hashes (AADP §14.7; the algorithms are those of RFC 9162 §2.1).
//!
//! ```text
//! level 2          (2,0)                   leaf n stands for entry n+1; its data is that entry's chain hash
//!                 /     \                  leaf = BLAKE3(0x00 | chain hash)
//! level 1      (1,0)   (1,1)               node = BLAKE3(0x01 | left | right)
//!              /  \    /  \                node (l, i) covers the leaves i*2^l up to (i+1)*2^l
//! leaves      0    1  2    3    4          leaf 4 has no partner yet: nothing above it is stored
//! ```
//!
//! Absent on purpose: storage (the caller brings [`Nodes`]), the leaf level (it follows from the entries), and nodes
//! over an incomplete range (they follow from complete ones). INVARIANT (append-only): a complete node never changes,
//! so the nodes of a tree also answer for every smaller size.

use std::error::Error;

use thiserror::Error;

use crate::ids::Hash;

/// Precedes a leaf's data, so that no leaf can pass for a node (RFC 6962 §2.1).
const LEAF_TAG: &[u8] = &[0];

/// Precedes two children, so that no node can pass for a leaf.
const NODE_TAG: &[u8] = &[1];

/// Where the tree reads what is already in it.
pub trait Nodes {
    /// Why a read failed.
    type Error: Error + 'static;

    /// The leaf hash ([`leaf_hash`]) of the entry at `index`, from 0; `None` when there is no such entry.
    fn leaf(&self, index: u64) -> Result<Option<Hash>, Self::Error>;

    /// The complete node at `level`, from 1, and `index`, from 0; `None` when it is not there.
    fn node(&self, level: u8, index: u64) -> Result<Option<Hash>, Self::Error>;
}

/// A node to keep: its level and its index there, and its hash.
pub type Complete = ((u8, u64), Hash);

/// Why the tree gives no answer.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum MerkleError<E: Error + 'static> {
    /// A node that the answer needs is not there.
    #[error("the tree has no node `{index}` at level {level}")]
    Missing {
        /// Its level; 0 is a leaf.
        level: u8,
        /// Its place within the level.
        index: u64,
    },
    /// The question is about more than the tree holds.
    #[error("`{asked}` lies beyond a tree of {size} leaves")]
    Beyond {
        /// The leaf or the size that was asked for.
        asked: u64,
        /// The size of the tree.
        size: u64,
    },
    /// The nodes could not be read.
    #[error("a node of the tree cannot be read")]
    Read {
        /// What the reader found.
        source: E,
    },
}

/// The hash of the leaf that stands for an entry.
pub fn leaf_hash(chain_hash: &Hash) -> Hash {
    tagged(LEAF_TAG, &[chain_hash])
}

/// The root of a tree without leaves.
pub fn empty_root() -> Hash {
    Hash::of(&[])
}

/// The nodes that become complete when `leaf` is appended at `index`, lowest first; none for an even index.
/// `before` is the leaf hash at `index - 1`; a caller that has it at hand saves that read, which leaves half a read
/// per leaf on average. Nodes of leaves that are appended together must be readable here too.
pub fn appended<N: Nodes>(
    nodes: &N,
    index: u64,
    leaf: Hash,
    before: Option<Hash>,
) -> Result<Vec<Complete>, MerkleError<N::Error>> {
    if index == u64::MAX {
        // Its size would have no number.
        return Err(MerkleError::Beyond { asked: index, size: index });
    }
    let mut complete = Vec::new();
    let (mut level, mut at, mut hash) = (0u8, index, leaf);
    // A right child completes its parent, which may in turn be a right child.
    while at & 1 == 1 {
        let left = match before {
            Some(before) if level == 0 => before,
            _ => read(nodes, level, at ^ 1)?,
        };
        hash = parent(&left, &hash);
        level += 1;
        at >>= 1;
        complete.push(((level, at), hash));
    }
    Ok(complete)
}

/// The root over the first `size` leaves.
pub fn root<N: Nodes>(nodes: &N, size: u64) -> Result<Hash, MerkleError<N::Error>> {
    range(nodes, 0, size)
}

/// The proof that leaf `index` is in the tree of `size` leaves, from the leaf upward (RFC 9162 §2.1.3.1).
pub fn inclusion<N: Nodes>(nodes: &N, index: u64, size: u64) -> Result<Vec<Hash>, MerkleError<N::Error>> {
    if index >= size {
        return Err(MerkleError::Beyond { asked: index, size });
    }
    let mut proof = Vec::new();
    let (mut start, mut end) = (0, size);
    while end - start > 1 {
        let middle = split(start, end);
        if index < middle {
            proof.push(range(nodes, middle, end)?);
            end = middle;
        } else {
            proof.push(range(nodes, start, middle)?);
            start = middle;
        }
    }
    proof.reverse();
    Ok(proof)
}

/// The proof that the tree of `new_size` leaves begins with the tree of `old_size` leaves (RFC 9162 §2.1.4.1).
/// Empty when the sizes are equal or the old tree is: there is nothing to prove.
pub fn consistency<N: Nodes>(nodes: &N, old_size: u64, new_size: u64) -> Result<Vec<Hash>, MerkleError<N::Error>> {
    if old_size > new_size {
        return Err(MerkleError::Beyond { asked: old_size, size: new_size });
    }
    let mut proof = Vec::new();
    if old_size == 0 {
        return Ok(proof);
    }
    let (mut start, mut end) = (0, new_size);
    while old_size != end {
        let middle = split(start, end);
        if old_size <= middle {
            proof.push(range(nodes, middle, end)?);
            end = middle;
        } else {
            proof.push(range(nodes, start, middle)?);
            start = middle;
        }
    }
    if start != 0 {
        // The old root itself is known to whoever asks; any other last part of the old tree is not.
        proof.push(range(nodes, start, end)?);
    }
    proof.reverse();
    Ok(proof)
}

/// Whether `proof` leads from `leaf` at `index` to `root` (RFC 9162 §2.1.3.2). `size` and `root` come from one head:
/// some sizes share a shape, so a proof alone does not tell them apart.
pub fn verify_inclusion(leaf: &Hash, index: u64, size: u64, proof: &[Hash], root: &Hash) -> bool {
    if index >= size {
        return false;
    }
    let mut climb = Climb { at: index, last: size - 1 };
    let mut hash = *leaf;
    for sibling in proof {
        hash = match climb.step() {
            Some(Side::Left) => parent(sibling, &hash),
            Some(Side::Right) => parent(&hash, sibling),
            None => return false,
        };
    }
    climb.is_done() && hash == *root
}

/// Whether `proof` shows that the tree under `new_root` begins with the tree under `old_root` (RFC 9162 §2.1.4.2).
/// Every tree begins with the empty one. Sizes and roots come from heads.
pub fn verify_consistency(old_size: u64, old_root: &Hash, new_size: u64, new_root: &Hash, proof: &[Hash]) -> bool {
    if old_size > new_size || (old_size == 0 && *old_root != empty_root()) {
        return false;
    }
    if old_size == new_size {
        return proof.is_empty() && old_root == new_root;
    }
    if old_size == 0 {
        return proof.is_empty();
    }
    let mut climb = Climb { at: old_size - 1, last: new_size - 1 };
    climb.skip_complete();
    let (first, rest) = if old_size.is_power_of_two() {
        // The old tree is one node of the new one, which the proof leaves out.
        if proof.is_empty() {
            return false;
        }
        (old_root, proof)
    } else {
        match proof.split_first() {
            Some(parts) => parts,
            None => return false,
        }
    };
    let (mut old, mut new) = (*first, *first);
    for sibling in rest {
        match climb.step() {
            Some(Side::Left) => (old, new) = (parent(sibling, &old), parent(sibling, &new)),
            Some(Side::Right) => new = parent(&new, sibling),
            None => return false,
        }
    }
    climb.is_done() && old == *old_root && new == *new_root
}

/// A tree that grows leaf by leaf and keeps only what its next root needs: one hash per complete subtree, at most 64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    /// The roots of the complete subtrees, largest first.
    complete: Vec<Hash>,
}

impl Frontier {
    /// Appends a leaf hash ([`leaf_hash`]).
    pub fn push(&mut self, leaf: Hash) {
        let mut hash = leaf;
        // Each trailing one of the size is a subtree that the new leaf completes.
        for _ in 0..self.size.trailing_ones() {
            if let Some(left) = self.complete.pop() {
                hash = parent(&left, &hash);
            }
        }
        self.complete.push(hash);
        self.size = self.size.saturating_add(1);
    }

    /// The root over all leaves so far.
    pub fn root(&self) -> Hash {
        let mut smallest_first = self.complete.iter().rev();
        match smallest_first.next() {
            Some(smallest) => smallest_first.fold(*smallest, |right, left| parent(left, &right)),
            None => empty_root(),
        }
    }

    /// How many leaves there are.
    pub fn size(&self) -> u64 {
        self.size
    }
}

/// Which side of the current node the next hash of a proof belongs on.
enum Side {
    Left,
    Right,
}

/// A verifier's way from a node to the root: its place in the current level, and that of the level's last node.
struct Climb {
    at: u64,
    last: u64,
}

impl Climb {
    /// Goes one node up; `None` when the proof is longer than the way.
    fn step(&mut self) -> Option<Side> {
        if self.is_done() {
            return None;
        }
        let side = if self.at & 1 == 1 || self.at == self.last {
            // The last node of a level may be alone there: it rises until it is a right child.
            while self.at & 1 == 0 && self.at != 0 {
                self.rise();
            }
            Side::Left
        } else {
            Side::Right
        };
        self.rise();
        Some(side)
    }

    /// Goes up while the node is a right child: the old tree is complete that far.
    fn skip_complete(&mut self) {
        while self.at & 1 == 1 {
            self.rise();
        }
    }

    fn rise(&mut self) {
        self.at >>= 1;
        self.last >>= 1;
    }

    fn is_done(&self) -> bool {
        self.last == 0
    }
}

/// The root over the leaves from `start` up to `end`, where `start` is 0 or comes from [`split`]: at most one read for
/// each one in the binary form of the count, from the smallest complete subtree on the right to the largest.
fn range<N: Nodes>(nodes: &N, start: u64, end: u64) -> Result<Hash, MerkleError<N::Error>> {
    let (mut rest, mut stop) = (end - start, end);
    let mut hash = None;
    while rest != 0 {
        let mut level = 0u8;
        while (rest >> level) & 1 == 0 {
            level += 1;
        }
        let count = 1 << level;
        rest -= count;
        stop -= count;
        let left = read(nodes, level, stop >> level)?;
        hash = Some(hash.map_or(left, |right| parent(&left, &right)));
    }
    Ok(hash.unwrap_or_else(empty_root))
}

/// Where the leaves from `start` up to `end`, two or more, divide: the left part is the largest power of two that
/// leaves something on the right.
fn split(start: u64, end: u64) -> u64 {
    start + (1 << (end - start - 1).ilog2())
}

fn read<N: Nodes>(nodes: &N, level: u8, index: u64) -> Result<Hash, MerkleError<N::Error>> {
    let found = if level == 0 { nodes.leaf(index) } else { nodes.node(level, index) };
    found.map_err(|source| MerkleError::Read { source })?.ok_or(MerkleError::Missing { level, index })
}

fn parent(left: &Hash, right: &Hash) -> Hash {
    tagged(NODE_TAG, &[left, right])
}

fn tagged(tag: &[u8], parts: &[&Hash]) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(tag);
    for part in parts {
        hasher.update(&part.0);
    }
    Hash(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests;
