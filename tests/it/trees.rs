//! Trees of the model drafter in the whole engine.

use std::sync::Arc;

use eyrie::{
    TokenId,
    draft::{ModelDrafter, Pick, Shape},
    report::RoundTrace,
    request::Request,
    sample::derive_line,
};

use crate::{
    engine::Faulty,
    support::{Lab, Run, drawn, prompts, say, td_target, tt_target},
};

/// Children a row, levels, nodes.
const SIZES: [(usize, usize, usize); 3] = [(2, 2, 3), (4, 5, 24), (8, 3, 16)];

fn lab((_, depth, nodes): (usize, usize, usize), batch: usize) -> Lab {
    Lab::new(tt_target()).with(|lab| {
        (lab.options.depth, lab.options.nodes) = (depth, Some(nodes));
        lab.options.max_batch = batch;
    })
}

/// One request for each of the first prompts.
fn requests(count: usize, temperature: f64) -> Vec<Request> {
    let one = |(prompt, i): (&Vec<TokenId>, u64)| Request {
        id: i.to_string(),
        ..drawn(prompt, temperature, derive_line(8, i))
    };
    prompts(64)[..count].iter().zip(0..).map(one).collect()
}

/// Nodes and tokens a round.
fn rates(run: &Run) -> (f64, f64) {
    let rounds = run.choices.iter().flat_map(|choice| &choice.rounds);
    let (mut count, mut drafted, mut emitted) = (0, 0, 0);
    for round in rounds {
        count += 1;
        drafted += round.drafted;
        emitted += round.emitted;
    }
    let float = |n: usize| f64::from(u32::try_from(n).expect("a small number"));
    (float(drafted) / float(count), float(emitted) / float(count))
}

#[test]
fn twenty_prompts_give_the_plain_tokens() {
    for temperature in [0.0, 1.0] {
        let requests = requests(20, temperature);
        let plain = Lab::new(tt_target()).base(&requests);
        for size in SIZES {
            for batch in [1, 5] {
                for (name, model) in [("td", td_target()), ("self", tt_target())] {
                    for pick in [Pick::Coupled, Pick::Greedy] {
                        let lab = lab(size, batch);
                        let run = lab.run(lab.tree_drafter(model.clone(), pick, size.0), &requests);
                        assert_eq!(run.tokens(), plain, "{size:?} {name} {pick:?}");
                        let (nodes, tokens) = rates(&run);
                        if batch == 5 {
                            say(&format!(
                                "{size:?} {name} {pick:?} at {temperature}: {nodes:.1} nodes and {tokens:.2} tokens a round"
                            ));
                        }
                    }
                }
            }
        }
    }
}

/// The nodes of an accepted path: each is the one child of the one before that has the token.
fn accepted_to_a_leaf(trace: &RoundTrace, tokens: &[TokenId]) -> bool {
    let mut above = -1;
    for token in &tokens[trace.position + 1..][..trace.accepted] {
        let mut nodes = (0i64..).zip(trace.drafted.iter().zip(&trace.parents));
        let child = nodes.find(|(_, (t, parent))| *t == token && **parent == above);
        above = child.expect("an accepted token is a node").0;
    }
    trace.parents.iter().all(|parent| *parent != above)
}

/// With equal laws the target follows a coupled tree down to a leaf, at every temperature: the best
/// child of a row is the target's token, and where any child got into the tree, the best one did.
#[test]
fn the_targets_own_trees_are_accepted_to_a_leaf() {
    for temperature in [0.0, 0.5, 1.0, 2.0] {
        for size in SIZES {
            let requests = requests(10, temperature);
            let lab = lab(size, 5);
            let model = Arc::clone(&lab.target);
            let run = lab.run(lab.tree_drafter(model, Pick::Coupled, size.0), &requests);
            let mut whole = 0;
            for trace in &run.traces {
                let i: usize = trace.request.parse().expect("a number");
                let all = [requests[i].prompt.as_slice(), &run.choices[i].tokens].concat();
                // The last round of a request is cut by its end.
                if trace.position + trace.accepted + 2 < all.len() {
                    whole += 1;
                    assert!(accepted_to_a_leaf(trace, &all), "{trace:?}");
                }
            }
            assert!(whole > 20, "{whole} rounds");
        }
    }
}

/// A request's trees are the same beside others.
#[test]
fn neighbours_do_not_change_a_tree() {
    for pick in [Pick::Coupled, Pick::Greedy] {
        let requests = requests(5, 1.0);
        let lab = lab(SIZES[1], 5);
        let grown = |requests: &[Request]| -> Vec<(String, Vec<TokenId>, String)> {
            let run = lab.run(lab.tree_drafter(td_target(), pick, 4), requests);
            let shape = |t: &RoundTrace| format!("{} {:?} {}", t.position, t.parents, t.accepted);
            let mut rounds: Vec<_> = run.traces.iter().collect();
            rounds.sort_by_key(|trace| (trace.request.clone(), trace.round));
            let told = |t: &&RoundTrace| (t.request.clone(), t.drafted.clone(), shape(t));
            rounds.iter().map(told).collect()
        };
        let together = grown(&requests);
        let alone = requests.iter().flat_map(|r| grown(std::slice::from_ref(r)));
        assert_eq!(together, alone.collect::<Vec<_>>());
    }
}

/// A drafter whose cache has exactly what one request and its trees need drafts in every round: what
/// was taken for a tree is given back, also if a pass failed in the middle of one.
#[test]
fn rows_of_trees_are_given_back() {
    let size = (3, 4, 10);
    let lab = lab(size, 1);
    let asked = Request {
        max_tokens: 40,
        ..drawn(&[1, 2, 3], 0.8, 5)
    };
    let plain = lab.base(std::slice::from_ref(&asked));
    let shape = Shape {
        pick: Pick::Coupled,
        topk: size.0,
    };
    let slots = 3 + 40 + shape.rows(size.1, size.2);
    let drafts = |slots, passes| {
        let model = Faulty::new(passes, None);
        let drafter = ModelDrafter::new(model, Pick::Coupled, slots, 64).branching(size.0);
        let run = lab.run(Box::new(drafter), std::slice::from_ref(&asked));
        assert_eq!(run.tokens(), plain);
        let rounds = &run.choices[0].rounds;
        let without = rounds.iter().filter(|round| round.drafted == 0).count();
        (without, rounds.last().map_or(0, |round| round.drafted))
    };
    let healthy = drafts(slots, usize::MAX);
    assert_eq!(
        healthy.0,
        usize::from(healthy.1 == 0),
        "every round has drafts"
    );
    for passes in 1..12 {
        // The error may be in the first pass of a round, and then there is nothing yet.
        let (without, _) = drafts(slots, passes);
        assert!(without <= healthy.0 + 1, "{without} rounds without drafts");
    }
    assert!(
        drafts(3 + 8, usize::MAX).0 > 2,
        "there was no room for trees"
    );
}

/// Trees are cut to the tokens that are left, and to what the target's cache holds.
#[test]
fn trees_are_cut_by_budget_and_room() {
    let size = SIZES[1];
    let mut requests = requests(8, 1.0);
    for (request, tokens) in requests.iter_mut().zip(1..) {
        request.max_tokens = tokens;
    }
    let plain = Lab::new(tt_target()).base(&requests);
    let longest = requests.iter().map(|r| r.prompt.len() + r.max_tokens);
    for room in [longest.max().unwrap_or(0), 60, 4096] {
        let lab = lab(size, 8).with(|lab| lab.options.kv_tokens = room);
        let drafter = ModelDrafter::new(td_target(), Pick::Coupled, 4096, 64).branching(size.0);
        let run = lab.run(Box::new(drafter), &requests);
        assert_eq!(run.tokens(), plain, "{room} tokens");
        let rounds = run.choices.iter().flat_map(|choice| &choice.rounds);
        for round in rounds {
            assert!(round.drafted <= size.2, "{round:?}");
            assert_eq!(
                round.emitted,
                round.accepted + 1,
                "drafts beyond the budget"
            );
        }
        assert!(run.drafted_accepted().0 > 0);
    }
}
