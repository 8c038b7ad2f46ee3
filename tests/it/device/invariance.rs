//! What is said about row invariance is what is the case.

use candle_core::Device;
use eyrie::{
    Matrix, TokenId,
    cache::{KvCache, Txn},
    error::Result,
    model::{Forward, Llama, RowInvariance, Rows, Target, Wanted},
};
use eyrie_fixtures::{Fixture, tt};

use super::{on_device, pair, pass, seq, test_device, tokens};

test_device!(
    a_chain_has_the_bits_that_were_promised,
    the_slice_decoder_is_found_invariant,
    a_target_that_is_not_invariant_is_found_out,
    a_context_of_few_positions_is_measured_too,
);

/// If invariance was found, the rows of a chain are those of one row at a time.
fn a_chain_has_the_bits_that_were_promised(device: &Device) {
    let model = on_device(&tt(), device);
    assert!(model.describe().contains(", row_invariant: "));
    assert_eq!(model.row_invariant(), model.invariance().holds());
    let prompt = tokens(7, 8);
    let run = |size: usize| -> Vec<u32> {
        let mut cache = model.new_cache(8);
        let mut bits = Vec::new();
        for (i, chunk) in prompt.chunks(size).enumerate() {
            let mut rows = Rows::new();
            rows.chain(seq(1), i * size, chunk, Wanted::All).unwrap();
            let keep: Vec<usize> = (0..chunk.len()).collect();
            let out = pass(&model, &mut cache, &rows, &[], &[&keep]);
            bits.extend(out.logits.as_slice().iter().map(|x| x.to_bits()));
        }
        bits
    };
    crate::support::say(&model.describe());
    let same = run(1) == run(8);
    assert!(same || !model.row_invariant(), "promised, and not so");
}

fn the_slice_decoder_is_found_invariant(device: &Device) {
    let (_, slices) = pair(&tt(), device);
    let found = RowInvariance::measure(&slices).unwrap();
    assert_eq!(found.measured(), [(2, true), (8, true), (33, true)]);
    assert_eq!((found.holds(), found.to_string()), (true, "yes".to_owned()));
}

fn a_context_of_few_positions_is_measured_too(device: &Device) {
    for max_position in [1, 2, 5] {
        let short = Fixture {
            max_position,
            ..tt()
        };
        let (tensors, slices) = pair(&short, device);
        assert!(RowInvariance::measure(&slices).unwrap().holds());
        assert_eq!(tensors.invariance().measured().len(), 3);
    }
}

/// Adds a last bit to the logits of passes of more than a number of rows.
#[derive(Debug)]
struct Drifting(Llama, usize);

impl Target for Drifting {
    fn vocab(&self) -> usize {
        self.0.vocab()
    }

    fn context(&self) -> usize {
        self.0.context()
    }

    fn layers(&self) -> usize {
        self.0.layers()
    }

    fn hidden(&self) -> usize {
        self.0.hidden()
    }

    fn new_cache(&self, slots: usize) -> KvCache {
        self.0.new_cache(slots)
    }

    fn embed(&self, tokens: &[TokenId]) -> Matrix {
        self.0.embed(tokens)
    }

    fn final_norm(&self, x: &mut Matrix) {
        self.0.final_norm(x);
    }

    fn head(&self, normed: &Matrix) -> Matrix {
        self.0.head(normed)
    }

    fn forward(&self, rows: &Rows, txn: &mut Txn<'_>, taps: &[usize]) -> Result<Forward> {
        let mut out = self.0.forward(rows, txn, taps)?;
        if rows.len() > self.1 {
            let last = out.logits.rows() - 1;
            let logit = &mut out.logits.row_mut(last)[5];
            *logit = f32::from_bits(logit.to_bits() ^ 1);
        }
        Ok(out)
    }
}

fn a_target_that_is_not_invariant_is_found_out(device: &Device) {
    for (most, expected) in [
        (1, "no (other bits among 2, 8, 33 rows)"),
        (2, "no (other bits among 8, 33 rows)"),
        (8, "no (other bits among 33 rows)"),
        (33, "yes"),
    ] {
        let (_, slices) = pair(&tt(), device);
        let found = RowInvariance::measure(&Drifting(slices, most)).unwrap();
        assert_eq!(found.to_string(), expected);
    }
}
