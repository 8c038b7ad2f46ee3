//! Which residual streams a head taps, when files number them in two ways.

use super::super::config::TapsConvention;
use crate::model::load::Problem;

/// Where the ids of taps stand.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Listed {
    /// At top level: by the layer entered, for every engine that reads them there.
    pub(super) top: Option<Vec<usize>>,
    /// What the file calls that list, if not as most do.
    pub(super) called: Option<&'static str>,
    /// In `eagle_config`, where engines disagree.
    pub(super) nested: Option<Vec<usize>>,
}

/// Taps, canonical, and how the file numbers them.
pub(super) type Taps = (Vec<usize>, TapsConvention);

/// What `fc.weight` says of the taps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fused {
    /// How many there are.
    pub(super) taps: usize,
    /// The width of each, which is the target's.
    pub(super) width: usize,
}

impl std::fmt::Display for Fused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { taps, width } = self;
        write!(f, "fc.weight is as wide as {taps} taps of {width}")
    }
}

const TOP: &str = "eagle_aux_hidden_state_layer_ids";
const NESTED: &str = "eagle_config.eagle_aux_hidden_state_layer_ids";

/// The taps of a target of `layers` layers; `asked` is the user's answer.
pub(super) fn decide(
    listed: &Listed,
    layers: usize,
    fused: Fused,
    asked: Option<TapsConvention>,
    warnings: &mut Vec<String>,
) -> Result<Taps, Problem> {
    let top = listed.called.unwrap_or(TOP);
    let (key, ids) = match (&listed.top, &listed.nested) {
        (Some(ids), _) => (top, ids),
        (None, Some(ids)) => (NESTED, ids),
        (None, None) => return default(top, layers, fused, asked),
    };
    if ids.len() != fused.taps {
        return Err(Problem::contradiction(
            format!("{key} is {ids:?}"),
            fused.to_string(),
            &format!("a list of {}", fused.taps),
        ));
    }
    if ids.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(Problem::key(
            key,
            format!("{ids:?}"),
            "different layers in ascending order",
        ));
    }
    let convention = match (asked, &listed.top) {
        (Some(asked), _) => asked,
        (None, Some(_)) => TapsConvention::Input,
        _ => match ruled(ids, layers) {
            Some(convention) => convention,
            None => {
                return Err(Problem::key(
                    key,
                    format!("{ids:?}, which engines read in two ways"),
                    "--taps-convention input (layers that the taps enter, as vLLM reads it) or output (layers that they leave, as SGLang reads it)",
                ));
            }
        },
    };
    let shift = usize::from(convention == TapsConvention::Output);
    let taps: Vec<usize> = ids.iter().map(|id| id.saturating_add(shift)).collect();
    if let Some(beyond) = taps.iter().find(|tap| **tap > layers) {
        let accepted = format!(
            "layers up to {} (by {}s, of a target of {layers} layers)",
            layers - shift,
            convention.name()
        );
        return Err(Problem::key(
            key,
            format!("{ids:?}, with {}", beyond - shift),
            &accepted,
        ));
    }
    if let (Some(_), Some(nested)) = (&listed.top, &listed.nested) {
        let left: Vec<usize> = nested.iter().map(|id| id.saturating_add(1)).collect();
        if *nested != taps && left != taps {
            return Err(Problem::contradiction(
                format!("{TOP} is {ids:?}"),
                format!("{NESTED} is {nested:?}"),
                "the same layers, by input or by output",
            ));
        }
    }
    warnings.push(format!(
        "{key} {ids:?} numbers layers by their {}s: taps {taps:?}",
        convention.name()
    ));
    Ok((taps, convention))
}

/// What the ids themselves say of their numbering: the last boundary exists by inputs only, a first
/// id of 1 is the output numbering of the usual first tap, and the usual taps are themselves.
fn ruled(ids: &[usize], layers: usize) -> Option<TapsConvention> {
    let usual = usual(layers).map(|taps| taps.to_vec());
    if ids.last() == Some(&layers) {
        Some(TapsConvention::Input)
    } else if ids.first() == Some(&1) {
        Some(TapsConvention::Output)
    } else if usual.as_deref() == Some(ids) {
        Some(TapsConvention::Input)
    } else {
        None
    }
}

/// The taps of a head that names none, if they are three.
pub(in crate::draft::eagle) fn usual(layers: usize) -> Option<[usize; 3]> {
    let mut taps = [2, layers / 2, layers.checked_sub(3)?];
    taps.sort_unstable();
    (taps[0] < taps[1] && taps[1] < taps[2]).then_some(taps)
}

fn default(
    key: &str,
    layers: usize,
    fused: Fused,
    asked: Option<TapsConvention>,
) -> Result<Taps, Problem> {
    if let Some(asked) = asked {
        return Err(Problem::key(
            "--taps-convention",
            asked.name(),
            "no such flag: the head lists no taps",
        ));
    }
    if fused.taps != 3 {
        let accepted = format!("a list of {} layers ({fused})", fused.taps);
        return Err(Problem::missing(key, &accepted));
    }
    match usual(layers) {
        Some(taps) => Ok((taps.to_vec(), TapsConvention::Default)),
        None => Err(Problem::missing(
            key,
            &format!(
                "a list of 3 layers: by default they are [2, {}, {}] for a target of {layers} layers, which are not three",
                layers / 2,
                i64::try_from(layers).map_or(i64::MAX, |layers| layers - 3),
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(taps: usize) -> Fused {
        Fused { taps, width: 64 }
    }

    fn nested(
        ids: &[usize],
        layers: usize,
        asked: Option<TapsConvention>,
    ) -> Result<Taps, Problem> {
        let nested = Some(ids.to_vec());
        decide(
            &Listed {
                nested,
                ..Listed::default()
            },
            layers,
            of(ids.len()),
            asked,
            &mut Vec::new(),
        )
    }

    #[test]
    fn ids_of_the_wild() {
        use TapsConvention::{Input, Output};
        for (ids, layers, taps, convention) in [
            ([1, 29, 57], 61, [2, 30, 58], Output),
            ([1, 17, 33], 36, [2, 18, 34], Output),
            ([24, 30, 36], 36, [24, 30, 36], Input),
            ([2, 18, 33], 36, [2, 18, 33], Input),
        ] {
            assert_eq!(
                nested(&ids, layers, None).unwrap(),
                (taps.to_vec(), convention)
            );
        }
        let error = nested(&[2, 30, 50], 61, None).unwrap_err().to_string();
        assert!(error.contains("--taps-convention input"), "{error}");
        let (taps, _) = nested(&[2, 30, 50], 61, Some(Output)).unwrap();
        assert_eq!(taps, [3, 31, 51]);
        let error = nested(&[1, 5, 61], 60, None).unwrap_err().to_string();
        assert!(
            error.contains("61") && error.contains("60 layers"),
            "{error}"
        );
    }

    #[test]
    fn defaults_are_three_layers_or_an_error() {
        for layers in 0..9 {
            let taps = decide(&Listed::default(), layers, of(3), None, &mut Vec::new());
            assert_eq!(taps.is_ok(), layers == 3 || layers >= 7, "{layers}");
        }
        let (taps, _) = decide(&Listed::default(), 3, of(3), None, &mut Vec::new()).unwrap();
        assert_eq!(taps, [0, 1, 2]);
    }
}
