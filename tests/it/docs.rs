//! What the documents claim.

use std::path::{Path, PathBuf};

use clap::Parser;
use eyrie::cli::Cli;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    let path = root().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The commands of the README's fenced `sh` blocks, split at `&&`.
fn commands() -> Vec<String> {
    let text = read("README.md");
    let blocks = text.split("```sh\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().expect("a block has an end"));
    let lines = blocks
        .flat_map(str::lines)
        .flat_map(|line| line.split(" && "));
    lines.map(|line| line.trim().to_owned()).collect()
}

/// Words of a shell command in which only double quotes are special.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in command.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().expect("there is a word").push(c),
        }
    }
    words
}

/// The server is built in another workspace: of its flags, those that are not `generate`'s have to be
/// in its source.
fn serves(command: &str, args: &[&str]) {
    assert!(read("xtask/src/host/mod.rs").contains("    Serve("));
    let server = read("host/mistralrs/src/bin/eyrie-serve.rs");
    let mut shared = vec!["eyrie", "generate", "--prompt", "x"];
    for pair in args.chunks(2) {
        let own = pair[0].strip_prefix("--").expect("a flag and its value");
        if !server.contains(&format!("    {own}: ")) {
            shared.extend(pair);
        }
    }
    Cli::try_parse_from(shared).unwrap_or_else(|error| panic!("{command}: {error}"));
}

/// The example is compiled with the host's tests.
#[test]
fn the_application_in_the_mistralrs_document_is_the_example() {
    let text = read("docs/MISTRALRS.md");
    let block = text.split("```rust\n").nth(1).expect("a block of Rust");
    let block = block.split("```").next().expect("a block has an end");
    assert_eq!(block, read("host/mistralrs/examples/embed.rs"));
}

/// Every file that the insertions touch or add is in the document's table, and the version.
#[test]
fn the_mistralrs_document_explains_every_insertion() {
    let text = read("docs/MISTRALRS.md");
    let list = read("host/mistralrs/patch/insertions.toml");
    let named = |key: &str| {
        let key = format!("{key} = \"");
        let lines = list.lines().filter_map(|line| line.strip_prefix(&key));
        lines
            .map(|rest| rest.trim_end_matches('"').to_owned())
            .collect::<Vec<_>>()
    };
    let paths = named("path");
    assert!(paths.len() >= 10, "{paths:?}");
    for path in paths {
        assert!(text.contains(&format!("`{path}`")), "{path}");
    }
    assert!(text.contains(&format!("`={}`", named("version")[0])));
}

/// Every counter of the server and every field of its usage is in the document.
#[test]
fn the_mistralrs_document_has_every_counter() {
    let text = read("docs/MISTRALRS.md");
    let metrics = read("host/mistralrs/src/metrics.rs");
    let counters: Vec<_> = metrics
        .split("family!(")
        .skip(1)
        .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
        .collect();
    assert!(counters.len() >= 8, "{counters:?}");
    for counter in counters {
        assert!(
            text.contains(&format!("`eyrie_{counter}_total`")),
            "{counter}"
        );
    }
    let usage = read("host/mistralrs/patch/response.rs");
    let mut told = 0;
    for line in usage.lines() {
        if let Some(field) = line.strip_prefix("    pub ") {
            let name = field.split(':').next().expect("a name");
            assert!(text.contains(&format!("`{name}`")), "{name}");
            told += 1;
        }
    }
    assert!(told >= 10, "{told}");
}

#[test]
fn the_readmes_commands_exist_and_their_flags_parse() {
    let commands = commands();
    assert!(commands.len() >= 5, "{commands:?}");
    assert_eq!(
        commands[..2],
        ["cargo run --release", "cargo test --workspace"]
    );
    let mut programs = 0;
    for command in &commands {
        let words = words(command);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let args = match words[..] {
            ["cargo", "run", "--release"] => &[],
            ["cargo", "run", "--release", "--", ref args @ ..] | ["eyrie", ref args @ ..] => args,
            ["cargo", "test", "--workspace"] => continue,
            ["cargo", "xtask", "host", "serve", ref args @ ..] => {
                serves(command, args);
                continue;
            }
            [script] if script.starts_with("scripts/") => {
                assert!(root().join(script).is_file(), "{script}");
                continue;
            }
            _ => panic!("{command}: not a known kind of command"),
        };
        let given = ["eyrie"].iter().chain(args);
        Cli::try_parse_from(given).unwrap_or_else(|error| panic!("{command}: {error}"));
        programs += 1;
    }
    assert!(programs >= 4, "{commands:?}");
}

#[test]
fn there_is_one_test_command_and_ci_reads_it() {
    let readme = read("README.md");
    let lines: Vec<_> = readme
        .lines()
        .filter(|line| line.starts_with("cargo test"))
        .collect();
    assert_eq!(lines, ["cargo test --workspace"]);
    assert!(read(".ci/run").contains("grep -m 1 '^cargo test' README.md"));
}

/// `| promise | command |` with commands of the form `cargo test --test it NAME`.
#[test]
fn every_promise_names_tests_that_exist() {
    let readme = read("README.md");
    let modules = read("tests/it/main.rs");
    let mut promises = 0;
    for row in readme.lines().filter(|line| line.starts_with("| **")) {
        let command = row
            .rsplit('`')
            .nth(1)
            .unwrap_or_else(|| panic!("{row}: no command"));
        let name = command
            .strip_prefix("cargo test --test it ")
            .unwrap_or_else(|| panic!("{command}: not a command that runs tests"));
        assert!(
            modules.contains(&format!("mod {name};")),
            "{row}: no tests {name}"
        );
        promises += 1;
    }
    assert!(promises >= 5);
}

#[test]
fn the_readmes_links_lead_somewhere() {
    let readme = read("README.md");
    let mut links = 0;
    for rest in readme.split("](").skip(1) {
        let link = rest.split(')').next().expect("a link has an end");
        assert!(root().join(link).exists(), "{link}");
        links += 1;
    }
    assert!(links >= 4);
}

#[test]
fn the_changelog_has_this_version() {
    let heading = format!("## [{}]", env!("CARGO_PKG_VERSION"));
    let changelog = read("CHANGELOG.md");
    assert!(
        changelog.lines().any(|line| line.starts_with(&heading)),
        "{heading} is missing"
    );
}

#[test]
fn licences_are_those_of_the_manifest() {
    assert!(read("Cargo.toml").contains("license = \"MIT OR Apache-2.0\""));
    assert!(read("LICENSE-MIT").starts_with("MIT License"));
    assert!(
        read("LICENSE-APACHE").contains("Apache License") && read("LICENSE-APACHE").len() > 10_000
    );
}

/// The workflow runs steps of `.ci/run` and nothing else, and every step in some job.
#[test]
fn the_workflow_runs_the_steps_of_ci() {
    let script = read(".ci/run");
    let steps = script
        .lines()
        .find_map(|line| line.strip_prefix("steps=(")?.strip_suffix(')'));
    let steps: Vec<&str> = steps.expect("a list of steps").split(' ').collect();
    let workflow = read(".github/workflows/ci.yml");
    let runs = workflow
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- run: "));
    let mut run: Vec<&str> = Vec::new();
    for command in runs {
        let named = command
            .strip_prefix(".ci/run ")
            .unwrap_or_else(|| panic!("{command}"));
        run.extend(named.split(' '));
    }
    assert!(
        run.iter().all(|step| steps.contains(step)),
        "{run:?} against {steps:?}"
    );
    assert!(
        steps.iter().all(|step| run.contains(step)),
        "{run:?} against {steps:?}"
    );
    for step in steps {
        assert!(
            script.contains(&format!("\n{step}() {{")),
            "no function {step}"
        );
    }
}

#[test]
fn ci_is_a_script_that_can_run() {
    for script in [
        ".ci/run",
        "scripts/fetch-models.sh",
        "scripts/openai-client.sh",
    ] {
        let path: PathBuf = root().join(script);
        let checked = std::process::Command::new("bash")
            .arg("-n")
            .arg(&path)
            .status();
        assert!(checked.expect("bash runs").success(), "{script}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(&path)
                .expect("the script is there")
                .permissions()
                .mode();
            assert_eq!(mode & 0o111, 0o111, "{script} is executable");
        }
        assert!(read(script).contains("set -euo pipefail"), "{script}");
    }
}
