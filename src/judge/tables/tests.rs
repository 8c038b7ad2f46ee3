use super::*;
use crate::{
    SeqId,
    sample::{Keyed, SamplingParams},
    tree::Law,
};

fn tree(pick: Pick, ids: Option<Arc<[TokenId]>>, seed: u64) -> DraftTree {
    let params = SamplingParams::new(warm(|_| ())).unwrap();
    let chain = Chain::new(params, VOCAB, VOCAB, Vec::new()).unwrap();
    let mut drafter = TableDrafter {
        table: Table::hard().opposite(),
        pick,
        widths: vec![2, 2],
        ids,
    };
    let mut tree = DraftTree::new();
    let anchor = Anchor {
        seq: SeqId(0),
        tokens: &[5],
        round: 0,
        depth: 2,
        nodes: usize::MAX,
        chain: &chain,
        counts: &Counts::new(&[5]),
        draws: &mut Keyed::new(seed),
    };
    let trees = std::slice::from_mut(&mut tree);
    drafter.propose(&mut [anchor], trees).unwrap();
    tree
}

#[test]
fn drawn_siblings_are_all_kept_and_may_be_equal() {
    let mut equal = 0;
    for seed in 0..200 {
        let tree = tree(Pick::Drawn, None, seed);
        assert_eq!(tree.len(), 6);
        let drawn = |node| matches!(tree.law(node), Law::Drawn(q) if q.len() == VOCAB);
        assert!(tree.nodes().all(drawn), "{tree:?}");
        equal += usize::from(tree.token(Node(0)) == tree.token(Node(1)));
    }
    assert!((4..60).contains(&equal), "{equal} of 200 pairs are equal");
}

#[test]
fn coupled_siblings_differ() {
    for seed in 0..50 {
        let tree = tree(Pick::Coupled, None, seed);
        assert_eq!(tree.len(), 6);
        for pair in [[0, 1], [2, 3], [4, 5]] {
            let [a, b] = pair.map(|node| tree.token(Node(node)));
            assert_ne!(a, b, "{tree:?}");
        }
    }
}

#[test]
fn a_reduced_vocabulary_is_what_is_drafted_from() {
    let ids: Arc<[TokenId]> = Arc::from([3, 7, 8]);
    for seed in 0..50 {
        let tree = tree(Pick::Drawn, Some(Arc::clone(&ids)), seed);
        assert!(tree.nodes().all(|node| ids.contains(&tree.token(node))));
    }
}

/// Every filter leaves tokens that target and drafter share, or nothing could be accepted.
#[test]
fn the_laws_overlap_under_every_processing() {
    let target = Table::hard();
    let drafter = target.opposite();
    for case in cases() {
        let params = SamplingParams::new(case.raw).unwrap();
        let chain = Chain::new(params, VOCAB, VOCAB, Vec::new()).unwrap();
        for last in 0..16 {
            let law = |table: &Table| {
                let counts = &Counts::new(&[last]);
                let history = History {
                    counts,
                    tokens: &[last],
                    path: &[],
                };
                chain.law(table.row(&[last], &[]), &history).unwrap()
            };
            let (p, q) = (law(&target), law(&drafter));
            let overlap: f64 = p.iter().map(|(id, ln_p)| ln_p.exp().min(q.p(id))).sum();
            assert!(overlap > 0.02, "{}, after {last}: {overlap}", case.name);
        }
    }
}
