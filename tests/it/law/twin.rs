//! The chain again, slow and by the letter: dense, normalised after every filter, sorted in full.

use eyrie::{
    TokenId,
    sample::{Fault, RawParams},
};

/// A row with everything before it.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) logits: Vec<f32>,
    pub(super) prompt: Vec<TokenId>,
    pub(super) output: Vec<TokenId>,
    pub(super) path: Vec<TokenId>,
    pub(super) valid: usize,
    pub(super) ends: Vec<TokenId>,
}

/// Probabilities by id; `None` is outside of the support.
pub(super) fn law(raw: &RawParams, row: &Row) -> Result<Vec<Option<f64>>, Fault> {
    if row.logits.iter().any(|x| x.is_nan() || x.is_infinite()) {
        return Err(Fault::NonFinite);
    }
    let generated = [row.output.as_slice(), &row.path].concat();
    let everything = [row.prompt.as_slice(), &generated].concat();
    let mut z = Vec::new();
    for (id, &logit) in (0..).zip(&row.logits) {
        let mut x = f64::from(logit) + raw.logit_bias.get(&id).unwrap_or(&0.0);
        if everything.contains(&id) {
            x = if x > 0.0 {
                x / raw.repetition_penalty
            } else {
                x * raw.repetition_penalty
            };
        }
        for (i, _) in generated
            .iter()
            .enumerate()
            .filter(|(_, token)| **token == id)
        {
            x -= raw.frequency_penalty;
            if !generated[..i].contains(&id) {
                x -= raw.presence_penalty;
            }
        }
        let held = generated.len() < raw.min_tokens && row.ends.contains(&id);
        let masked = id as usize >= row.valid || held || x == f64::NEG_INFINITY;
        z.push(if masked { None } else { Some(x) });
    }
    let ranked = |z: &[Option<f64>]| {
        let mut order: Vec<usize> = (0..z.len()).filter(|i| z[*i].is_some()).collect();
        order.sort_by(|a, b| z[*b].partial_cmp(&z[*a]).unwrap()); // stable: ties by the lower id
        order
    };
    let Some(&best) = ranked(&z).first() else {
        return Err(Fault::Masked);
    };
    if raw.temperature < 1e-5 {
        return Ok((0..z.len()).map(|i| (i == best).then_some(1.0)).collect());
    }
    for x in z.iter_mut().flatten() {
        *x /= raw.temperature;
    }
    let peak = z[best].unwrap();
    let mut p: Vec<_> = z.iter().map(|x| x.map(|x| (x - peak).exp())).collect();
    normalise(&mut p);
    if raw.top_k > 0 {
        // By score, not by probability: two tokens too rare to have one still have an order.
        for id in ranked(&z).into_iter().skip(raw.top_k) {
            p[id] = None;
        }
        normalise(&mut p);
    }
    let mut mass = 0.0;
    for id in ranked(&z) {
        let before = mass;
        mass += p[id].unwrap_or(0.0);
        if raw.top_p < 1.0 && before >= raw.top_p {
            p[id] = None;
        }
    }
    normalise(&mut p);
    let most = p[best].unwrap();
    for x in &mut p {
        *x = x.filter(|x| *x >= raw.min_p * most);
    }
    normalise(&mut p);
    Ok(p)
}

fn normalise(p: &mut [Option<f64>]) {
    let sum: f64 = p.iter().flatten().sum();
    p.iter_mut().flatten().for_each(|x| *x /= sum);
}
