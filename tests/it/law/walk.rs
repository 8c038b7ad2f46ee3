//! Every branch of a whole round, as the judge walks it, and the setting of broken variants.

pub(super) use eyrie::judge::{
    exact::{Decide, Planned, Setting, by as rule},
    settings::{chain_of, chains, settings, trees, warm},
};

use eyrie::judge::exact::Model;

/// A target and a drafter of one law each, whatever the prefix: for broken variants.
pub(super) fn hard(nodes: Vec<Planned>) -> Setting {
    let model = |seed| Model::new(4, seed, 3.0, warm(|_| {})).unwrap();
    Setting {
        target: model(11),
        drafter: model(29),
        nodes,
    }
}

#[test]
fn settings_differ_between_target_and_drafter() {
    let setting = hard(chain_of(1, |_| true));
    let (p, q) = (setting.p(&[]), setting.q(&[]));
    let shared: f64 = (0..4).map(|id| p.p(id).min(q.p(id))).sum();
    assert!(shared < 0.8, "{shared} accepted");
    assert_ne!(setting.p(&[0]), setting.p(&[1]));
}
