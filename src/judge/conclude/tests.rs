use super::*;

fn fact(samples: usize, holds: bool) -> Evidence {
    Evidence::fact(Section::Exact, String::new(), samples, holds)
}

fn tested(p_values: &[f64], powerful: bool) -> Evidence {
    let mut evidence = fact(9, true).powerful(powerful);
    evidence.p_values = p_values.to_vec();
    evidence
}

fn verdict(evidence: Vec<Evidence>) -> Verdict {
    conclude(evidence, &Settings::default()).verdict
}

#[test]
fn one_correction_is_made_for_the_whole_table() {
    let settings = Settings {
        alpha: 0.01,
        ..Settings::default()
    };
    let least = |evidence: Vec<Evidence>| {
        let findings = conclude(evidence, &settings).findings;
        (findings[0].p_value, findings[0].verdict)
    };
    let alone = least(vec![tested(&[0.004], true)]);
    assert_eq!(alone, (Some(0.004), Verdict::Fail));
    let among = least(vec![tested(&[0.5, 0.004], true), tested(&[0.5, 0.9], true)]);
    assert_eq!(among, (Some(0.016), Verdict::Pass));
}

#[test]
fn the_worst_finding_decides() {
    let fine = || tested(&[0.5], true);
    assert_eq!(verdict(vec![fact(1, true), fine()]), Verdict::Pass);
    assert_eq!(
        verdict(vec![tested(&[0.5], false), fine()]),
        Verdict::Undecided
    );
    assert_eq!(verdict(vec![fact(0, true), fine()]), Verdict::Undecided);
    assert_eq!(verdict(Vec::new()), Verdict::Undecided);
    // A test that rejects needs no power, and what failed stays failed.
    assert_eq!(verdict(vec![tested(&[0.0], false), fine()]), Verdict::Fail);
    assert_eq!(
        verdict(vec![fact(1, false), tested(&[0.5], false)]),
        Verdict::Fail
    );
    assert_eq!(verdict(vec![fine().failed("it did")]), Verdict::Fail);
}

/// Whatever Holm makes of the tests of all findings, the power that a finding claims is that of a level
/// at which its tests reject.
#[test]
fn the_level_of_a_finding_is_one_that_holm_grants() {
    let settings = Settings::default();
    let tests = f64::from(u32::try_from(settings.tests()).unwrap());
    for tests_of_a_finding in [3.0, 4.0] {
        let level = asked(&settings).alpha / tests_of_a_finding;
        assert!(level <= settings.alpha / (4.0 * tests) * (1.0 + 1e-12));
    }
}
