//! The tree against a naive one that follows the definitions of RFC 6962 §2.1 word by word, the figure of that RFC,
//! and every single change that a proof must not survive.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::convert::Infallible;

use super::*;

/// Sizes for which every question is asked; beyond two full levels on either side of 64.
const SIZE_MAX: u64 = 130;

/// Sizes for which every pair is asked.
const PAIR_MAX: u64 = 70;

#[derive(Default)]
struct MemNodes {
    leaves: Vec<Hash>,
    nodes: BTreeMap<(u8, u64), Hash>,
    reads: Cell<u64>,
}

impl MemNodes {
    fn of(size: u64) -> Self {
        let mut tree = Self::default();
        for leaf in leaves(size) {
            tree.push(leaf, true);
        }
        tree.reads.set(0);
        tree
    }

    fn push(&mut self, leaf: Hash, hand_over: bool) -> usize {
        let index = self.leaves.len() as u64;
        let before = self.leaves.last().copied().filter(|_| hand_over);
        let complete = appended(self, index, leaf, before).unwrap();
        let count = complete.len();
        for (at, hash) in complete {
            assert_eq!(self.nodes.insert(at, hash), None, "a complete node never changes: {at:?}");
        }
        self.leaves.push(leaf);
        count
    }
}

impl Nodes for MemNodes {
    type Error = Infallible;

    fn leaf(&self, index: u64) -> Result<Option<Hash>, Infallible> {
        self.reads.update(|reads| reads + 1);
        Ok(self.leaves.get(index as usize).copied())
    }

    fn node(&self, level: u8, index: u64) -> Result<Option<Hash>, Infallible> {
        assert_ne!(level, 0, "the leaf level is not stored");
        self.reads.update(|reads| reads + 1);
        Ok(self.nodes.get(&(level, index)).copied())
    }
}

fn chain_hash(index: u64) -> Hash {
    Hash::of(&index.to_be_bytes())
}

fn leaves(size: u64) -> Vec<Hash> {
    (0..size).map(|index| leaf_hash(&chain_hash(index))).collect()
}

fn join(left: Hash, right: Hash) -> Hash {
    Hash::of(&[&[1u8][..], &left.0[..], &right.0[..]].concat())
}

/// The largest power of two smaller than `n`.
fn k(n: usize) -> usize {
    let mut k = 1;
    while k * 2 < n {
        k *= 2;
    }
    k
}

/// MTH of RFC 6962 §2.1.
fn mth(d: &[Hash]) -> Hash {
    match d {
        [] => Hash::of(b""),
        [leaf] => *leaf,
        _ => join(mth(&d[..k(d.len())]), mth(&d[k(d.len())..])),
    }
}

/// PATH of RFC 6962 §2.1.1.
fn path(m: usize, d: &[Hash]) -> Vec<Hash> {
    if d.len() == 1 {
        return vec![];
    }
    let (left, right) = d.split_at(k(d.len()));
    let (mut proof, sibling) =
        if m < left.len() { (path(m, left), mth(right)) } else { (path(m - left.len(), right), mth(left)) };
    proof.push(sibling);
    proof
}

/// SUBPROOF of RFC 6962 §2.1.2.
fn subproof(m: usize, d: &[Hash], whole: bool) -> Vec<Hash> {
    if m == d.len() {
        return if whole { vec![] } else { vec![mth(d)] };
    }
    let (left, right) = d.split_at(k(d.len()));
    let (mut proof, sibling) = if m <= left.len() {
        (subproof(m, left, whole), mth(right))
    } else {
        (subproof(m - left.len(), right, false), mth(left))
    };
    proof.push(sibling);
    proof
}

/// Every proof that differs from `proof` in one place: a changed bit, a hash too few, too many, or two exchanged.
fn spoiled(proof: &[Hash]) -> Vec<Vec<Hash>> {
    let mut all = vec![[proof, &[chain_hash(9)]].concat(), [&[chain_hash(9)], proof].concat()];
    for at in 0..proof.len() {
        for byte in [0, 13, 31] {
            let mut changed = proof.to_vec();
            changed[at].0[byte] ^= 1 << (at % 8);
            all.push(changed);
        }
        let mut shorter = proof.to_vec();
        shorter.remove(at);
        all.push(shorter);
        if at > 0 && proof[at] != proof[at - 1] {
            let mut exchanged = proof.to_vec();
            exchanged.swap(at, at - 1);
            all.push(exchanged);
        }
    }
    all
}

fn spoil(hash: Hash) -> Hash {
    let mut bytes = hash.0;
    bytes[7] ^= 16;
    Hash(bytes)
}

#[test]
fn hashes_are_tagged() {
    let chain = chain_hash(0);
    assert_eq!(leaf_hash(&chain), Hash::of(&[&[0u8][..], &chain.0[..]].concat()));
    assert_eq!(parent(&chain, &spoil(chain)), join(chain, spoil(chain)));
    assert_eq!(empty_root().to_string(), "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
}

#[test]
fn roots_agree_with_the_definition() {
    let all = leaves(SIZE_MAX);
    let tree = MemNodes::of(SIZE_MAX);
    let mut frontier = Frontier::default();
    for size in 0..=SIZE_MAX {
        let expected = mth(&all[..size as usize]);
        // The large tree answers for every smaller size.
        assert_eq!(root(&tree, size), Ok(expected), "{size}");
        assert_eq!(root(&MemNodes::of(size), size), Ok(expected), "{size}");
        assert_eq!((frontier.size(), frontier.root()), (size, expected));
        if let Some(leaf) = all.get(size as usize) {
            frontier.push(*leaf);
        }
    }
}

#[test]
fn stored_nodes_are_the_complete_ones() {
    let all = leaves(SIZE_MAX);
    for size in 0..=SIZE_MAX {
        let mut expected = BTreeMap::new();
        for level in 1..8u8 {
            for (index, part) in all[..size as usize].chunks_exact(1 << level).enumerate() {
                expected.insert((level, index as u64), mth(part));
            }
        }
        assert_eq!(MemNodes::of(size).nodes, expected, "{size}");
    }
}

#[test]
fn appending_reads_little() {
    for (hand_over, reads_max) in [(true, 512), (false, 1024)] {
        let mut tree = MemNodes::default();
        for (index, leaf) in leaves(1024).into_iter().enumerate() {
            let before = tree.reads.get();
            let complete = tree.push(leaf, hand_over);
            assert_eq!(complete, index.trailing_ones() as usize, "{index}");
            assert!(tree.reads.get() - before <= 10);
        }
        assert!(tree.reads.get() < reads_max, "{} reads", tree.reads.get());
        assert_eq!(tree.nodes.len(), 1023);
    }
}

#[test]
fn inclusion_holds_for_every_leaf_and_nothing_else() {
    let all = leaves(SIZE_MAX);
    let tree = MemNodes::of(SIZE_MAX);
    for size in 1..=SIZE_MAX {
        let top = mth(&all[..size as usize]);
        for index in 0..size {
            let leaf = all[index as usize];
            tree.reads.set(0);
            let proof = inclusion(&tree, index, size).unwrap();
            assert!(tree.reads.get() <= 16, "{} reads", tree.reads.get());
            assert_eq!(proof, path(index as usize, &all[..size as usize]), "{index} of {size}");
            assert!(verify_inclusion(&leaf, index, size, &proof, &top), "{index} of {size}");
            assert!(!verify_inclusion(&spoil(leaf), index, size, &proof, &top));
            assert!(!verify_inclusion(&leaf, index, size, &proof, &spoil(top)));
            for other in (0..size + 2).filter(|other| *other != index) {
                assert!(!verify_inclusion(&leaf, other, size, &proof, &top), "{index} as {other} of {size}");
            }
        }
    }
}

#[test]
fn a_spoiled_inclusion_proof_fails() {
    let all = leaves(SIZE_MAX);
    for size in (1..=40).chain([63, 64, 65, 127, 128, 129, SIZE_MAX]) {
        let top = mth(&all[..size as usize]);
        for index in 0..size {
            for proof in spoiled(&path(index as usize, &all[..size as usize])) {
                assert!(!verify_inclusion(&all[index as usize], index, size, &proof, &top), "{index} of {size}");
            }
        }
    }
}

#[test]
fn consistency_holds_for_every_pair_and_nothing_else() {
    let all = leaves(PAIR_MAX);
    let tree = MemNodes::of(PAIR_MAX);
    let roots: Vec<Hash> = (0..=PAIR_MAX).map(|size| mth(&all[..size as usize])).collect();
    for new in 0..=PAIR_MAX {
        for old in 0..=new {
            let (old_root, new_root) = (roots[old as usize], roots[new as usize]);
            tree.reads.set(0);
            let proof = consistency(&tree, old, new).unwrap();
            assert!(tree.reads.get() <= 14, "{} reads", tree.reads.get());
            if old > 0 {
                assert_eq!(proof, subproof(old as usize, &all[..new as usize], true), "{old} in {new}");
            }
            assert!(verify_consistency(old, &old_root, new, &new_root, &proof), "{old} in {new}");
            assert!(!verify_consistency(old, &spoil(old_root), new, &new_root, &proof), "{old} in {new}");
            if old > 0 {
                assert!(!verify_consistency(old, &old_root, new, &spoil(new_root), &proof), "{old} in {new}");
            }
            if old < new {
                assert!(!verify_consistency(new, &new_root, old, &old_root, &proof), "{new} in {old}");
            }
            for spoiled in spoiled(&proof) {
                assert!(!verify_consistency(old, &old_root, new, &new_root, &spoiled), "{old} in {new}");
            }
            for other in (0..=new).filter(|other| *other != old) {
                assert!(!verify_consistency(other, &old_root, new, &new_root, &proof), "{old} as {other} in {new}");
            }
        }
    }
}

/// A history that was rewritten cannot be shown to continue the old one: no proof of the new tree fits the old root.
#[test]
fn a_rewritten_history_is_found_out() {
    let honest = leaves(20);
    for changed in 0..11usize {
        let mut rewritten = honest.clone();
        rewritten[changed] = spoil(rewritten[changed]);
        let (old_root, new_root) = (mth(&honest[..11]), mth(&rewritten));
        for proof in [subproof(11, &honest, true), subproof(11, &rewritten, true)] {
            assert!(!verify_consistency(11, &old_root, 20, &new_root, &proof), "{changed}");
        }
    }
}

/// The tree of seven leaves in RFC 6962 §2.1.3, with the names that the figure gives to its nodes.
#[test]
fn the_figure_of_the_rfc() {
    let tree = MemNodes::of(7);
    let d = leaves(7);
    let (a, b, c, e, f, j) = (d[0], d[1], d[2], d[4], d[5], d[6]);
    let d3 = d[3];
    let (g, h, i) = (join(a, b), join(c, d3), join(e, f));
    let (k, l) = (join(g, h), join(i, j));
    assert_eq!(root(&tree, 7), Ok(join(k, l)));
    assert_eq!(tree.nodes, BTreeMap::from([((1, 0), g), ((1, 1), h), ((1, 2), i), ((2, 0), k)]));

    for (index, proof) in [(0, vec![b, h, l]), (3, vec![c, g, l]), (4, vec![f, j, k]), (6, vec![i, k])] {
        assert_eq!(inclusion(&tree, index, 7), Ok(proof), "{index}");
    }
    // In the figure: the roots over three, four and six leaves, and what leads from each to the root over seven.
    assert_eq!(root(&tree, 3), Ok(join(g, c)));
    assert_eq!(root(&tree, 4), Ok(k));
    assert_eq!(root(&tree, 6), Ok(join(k, i)));
    for (old, proof) in [(3, vec![c, d3, g, l]), (4, vec![l]), (6, vec![i, j, k])] {
        assert_eq!(consistency(&tree, old, 7), Ok(proof), "{old}");
    }
}

/// These bytes are never edited: a head that was signed once must verify for good.
#[test]
fn golden_root() {
    assert_eq!(
        root(&MemNodes::of(7), 7).unwrap().to_string(),
        "5b842134c59965fc29592f22474aa6f63ec16b154167b0b9d6e3a046b1f21f46"
    );
}

#[test]
fn questions_beyond_the_tree_are_errors() {
    let tree = MemNodes::of(5);
    assert_eq!(inclusion(&tree, 5, 5), Err(MerkleError::Beyond { asked: 5, size: 5 }));
    assert_eq!(inclusion(&tree, 0, 0), Err(MerkleError::Beyond { asked: 0, size: 0 }));
    assert_eq!(consistency(&tree, 6, 5), Err(MerkleError::Beyond { asked: 6, size: 5 }));
    assert_eq!(root(&tree, 6), Err(MerkleError::Missing { level: 1, index: 2 }));
    assert_eq!(appended(&tree, 7, chain_hash(7), None), Err(MerkleError::Missing { level: 0, index: 6 }));
    let last = u64::MAX;
    assert_eq!(appended(&tree, last, chain_hash(7), None), Err(MerkleError::Beyond { asked: last, size: last }));
}

/// A missing node is an error wherever it is missing, and the largest numbers are only numbers.
#[test]
fn gaps_and_extremes_never_panic() {
    let whole = MemNodes::of(21);
    for gap in whole.nodes.keys() {
        let mut tree = MemNodes::of(21);
        tree.nodes.remove(gap);
        let missing = MerkleError::Missing { level: gap.0, index: gap.1 };
        for size in 0..=21 {
            let answers = (0..size).map(|index| inclusion(&tree, index, size).map(|_| ()));
            let answers = answers.chain((0..size).map(|old| consistency(&tree, old, size).map(|_| ())));
            let answers = answers.chain([root(&tree, size).map(|_| ())]);
            for answer in answers {
                assert!(answer.is_ok() || answer.as_ref() == Err(&missing), "{gap:?}: {answer:?}");
            }
        }
    }
    let hash = chain_hash(0);
    let long = vec![hash; 200];
    let extremes = [0, 1, 2, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, u64::MAX - 1, u64::MAX];
    for a in extremes {
        let _ = appended(&whole, a, hash, Some(hash));
        let _ = root(&whole, a);
        for b in extremes {
            let _ = (inclusion(&whole, a, b), consistency(&whole, a, b));
            for length in [0, 1, 2, 62, 63, 64, 65, 200] {
                assert!(!verify_inclusion(&hash, a, b, &long[..length], &spoil(hash)));
                assert!(!verify_consistency(a, &hash, b, &spoil(hash), &long[..length]));
            }
        }
    }
}

/// Reads that fail come back as they are.
#[test]
fn a_failed_read_is_handed_on() {
    struct Broken;
    impl Nodes for Broken {
        type Error = std::fmt::Error;
        fn leaf(&self, _: u64) -> Result<Option<Hash>, std::fmt::Error> {
            Err(std::fmt::Error)
        }
        fn node(&self, _: u8, _: u64) -> Result<Option<Hash>, std::fmt::Error> {
            Err(std::fmt::Error)
        }
    }
    assert_eq!(root(&Broken, 3), Err(MerkleError::Read { source: std::fmt::Error }));
    assert_eq!(root(&Broken, 0), Ok(empty_root()));
}
