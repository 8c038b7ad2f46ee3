//! What the README says is so.

use std::{
    fs,
    io::{ErrorKind, Write},
    process::Command,
};

use eyrie_verifier::power::{PIT, PIT_ROWS, rows_needed};
use tempfile::TempDir;

const README: &str = include_str!("../README.md");

/// The fenced blocks of a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let ends = README.split(&fence).skip(1);
    ends.map(|rest| rest.split("```").next().unwrap()).collect()
}

/// The example as it stands, sampler and commands; only the binary is where the test has it.
#[test]
fn the_example_gives_the_verdicts_that_it_says() {
    match Command::new("python3").arg("--version").output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            writeln!(std::io::stderr(), "skipped: there is no python3").unwrap();
            return;
        }
        other => assert!(other.unwrap().status.success()),
    }
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("sampler.py"), blocks("python")[0]).unwrap();
    let mut verdicts = Vec::new();
    let lines = [blocks("sh")[0], blocks("sh")[1]].map(str::lines);
    for line in lines.into_iter().flatten() {
        let line = line.replace("eyrie-verifier", env!("CARGO_BIN_EXE_eyrie-verifier"));
        let mut shell = Command::new("sh");
        let seen = shell
            .args(["-c", &line])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let out = String::from_utf8(seen.stdout).unwrap();
        assert!(
            seen.stderr.is_empty(),
            "{line}: {}",
            String::from_utf8_lossy(&seen.stderr)
        );
        let last = out
            .lines()
            .last()
            .map(|l| l.split(' ').next().unwrap().to_owned());
        verdicts.extend(last);
    }
    assert_eq!(verdicts, ["PASS", "FAIL", "FAIL"]);
}

#[test]
fn the_power_table_is_the_one_of_the_code() {
    let header: Vec<String> = PIT_ROWS
        .iter()
        .map(|n| format!("{} rows", thousands(*n)))
        .collect();
    assert!(
        README.contains(&format!("| broken | {} |\n", header.join(" | "))),
        "{header:?}"
    );
    for row in PIT {
        let cells: Vec<String> = row.rejected.iter().map(|x| format!("{x:.3}")).collect();
        let line = format!("| {} | {} |\n", row.broken, cells.join(" | "));
        assert!(README.contains(&line), "{line}");
    }
    let needed = thousands(rows_needed(1e-6).unwrap());
    assert!(README.contains(&format!("needs {needed} rows")), "{needed}");
}

fn thousands(n: usize) -> String {
    if n < 1_000 {
        n.to_string()
    } else {
        format!("{},{:03}", n / 1_000, n % 1_000)
    }
}
