//! What holds for every source file.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// Folders (and single files) of `src`, and what each may import. `types` and `error` serve
/// everyone; `error` itself names every area's own error and is not listed.
const IMPORTS: [(&str, &[&str]); 24] = [
    ("json", &[]),
    ("sample", &[]),
    ("tree", &["sample"]),
    ("cache", &[]),
    ("kernels", &[]),
    ("model", &["json", "cache", "kernels"]),
    ("text", &["model"]),
    ("request", &["json", "sample", "text"]),
    ("report", &["sample", "tree"]),
    ("accept", &["sample", "tree"]),
    ("ending", &["sample", "text", "request", "report"]),
    ("sequence", &["sample", "request", "report", "ending"]),
    (
        "draft",
        &["sample", "tree", "model", "cache", "kernels", "sequence"],
    ),
    (
        "verify",
        &[
            "sample", "tree", "model", "cache", "accept", "report", "sequence",
        ],
    ),
    ("mutant", &["sample", "tree", "accept", "draft"]),
    ("commit", &["tree", "accept", "report", "sequence"]),
    (
        "round",
        &[
            "tree", "cache", "model", "sequence", "draft", "verify", "accept", "commit", "report",
        ],
    ),
    (
        "schedule",
        &[
            "sample", "cache", "model", "text", "request", "report", "accept", "sequence", "draft",
            "commit", "round", "ending",
        ],
    ),
    (
        "judge",
        &[
            "sample", "tree", "accept", "draft", "model", "cache", "report", "request", "schedule",
            "mutant",
        ],
    ),
    ("check", &["model", "cache", "draft"]),
    (
        "train",
        &[
            "json", "sample", "tree", "model", "cache", "kernels", "draft",
        ],
    ),
    (
        "cli",
        &[
            "judge", "check", "train", "mutant", "sample", "kernels", "model", "text", "request",
            "report", "accept", "draft", "schedule",
        ],
    ),
    ("types", &[]),
    ("lib", &["error", "types"]),
];

/// Files in which `unsafe` may be written.
const UNSAFE: [&str; 0] = [];

/// Of a source file, tests too.
const MOST_LINES: usize = 700;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files of the repository with one of these endings, by path from the root.
fn files(endings: &[&str]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders: Vec<PathBuf> = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder can be listed") {
            let path = entry.expect("an entry").path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .expect("a name in UTF-8");
            let hidden = name.starts_with('.') && ![".ci", ".github", ".cargo"].contains(&name);
            let built = [
                "target",
                "models",
                "shared",
                "corpus",
                "generated",
                "artifacts",
                "coverage",
            ]
            .contains(&name);
            if path.is_dir() && !hidden && !built {
                folders.push(path);
            } else if path.is_file() && endings.iter().any(|ending| name.ends_with(ending)) {
                let text = std::fs::read_to_string(&path).expect("text");
                let short = path.strip_prefix(root()).expect("below the root");
                found.insert(short.display().to_string().replace('\\', "/"), text);
            }
        }
    }
    assert!(!found.is_empty(), "no file ends with {endings:?}");
    found
}

/// The text without comments and without the tests at its end.
fn code(text: &str) -> String {
    let text = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or(text);
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// First names of the paths behind `crate::`: modules, not types.
fn imports(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let group = rest
            .strip_prefix('{')
            .map_or_else(|| vec![rest], first_level);
        for item in group {
            let name: String = item
                .trim_start()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            if name.starts_with(|c: char| c.is_lowercase()) {
                names.insert(name);
            }
        }
    }
    names
}

/// The items of a group behind its opening brace.
fn first_level(group: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut items) = (1, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && c == ',') {
            items.push(&group[begin..at]);
            begin = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    items
}

#[test]
fn groups_of_imports_are_read() {
    let code =
        "use crate::{\n    TokenId,\n    a::{B, c::D},\n    e,\n};\nfn f() { crate::g::h() }";
    let expected = ["a", "e", "g"].map(str::to_owned);
    assert_eq!(imports(code), expected.into());
}

/// Module names found in `src`, with what each imports.
fn graph() -> BTreeMap<String, BTreeSet<String>> {
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in files(&[".rs"]) {
        let Some(path) = path.strip_prefix("src/") else {
            continue;
        };
        let top = path
            .split('/')
            .next()
            .expect("a name")
            .trim_end_matches(".rs");
        if path.ends_with("/tests.rs") || ["main", "error"].contains(&top) {
            continue;
        }
        graph
            .entry(top.to_owned())
            .or_default()
            .extend(imports(&code(&text)));
    }
    graph
}

#[test]
fn folders_import_only_what_they_may() {
    let allowed: BTreeMap<&str, &[&str]> = IMPORTS.into();
    let graph = graph();
    for (module, imports) in &graph {
        let allowed = allowed.get(module.as_str());
        let allowed = allowed.unwrap_or_else(|| panic!("src/{module} is not in the table"));
        for import in imports {
            let free = ["types", "error", module.as_str()].contains(&import.as_str());
            assert!(
                free || allowed.contains(&import.as_str()),
                "src/{module} imports {import}"
            );
        }
    }
    let listed: Vec<_> = allowed
        .keys()
        .filter(|module| !graph.contains_key(**module))
        .collect();
    assert!(
        listed.is_empty(),
        "{listed:?} are in the table and not in src"
    );
}

#[test]
fn the_table_of_imports_has_no_cycle() {
    let mut left: BTreeMap<&str, Vec<&str>> = IMPORTS
        .iter()
        .map(|(module, imports)| {
            let imports = imports.iter().copied();
            (
                *module,
                imports.filter(|i| *i != "error").collect::<Vec<_>>(),
            )
        })
        .collect();
    while !left.is_empty() {
        let ready = |imports: &Vec<&str>| imports.iter().all(|import| !left.contains_key(import));
        let done: Vec<&str> = left
            .iter()
            .filter(|(_, i)| ready(i))
            .map(|(module, _)| *module)
            .collect();
        assert!(!done.is_empty(), "a cycle among {:?}", left.keys());
        left.retain(|module, _| !done.contains(module));
    }
}

#[test]
fn nothing_below_the_command_line_prints_or_reads_the_environment() {
    for (path, text) in files(&[".rs"]) {
        let below =
            path.starts_with("src/") && !path.starts_with("src/cli/") && path != "src/main.rs";
        if !below {
            continue;
        }
        let code = code(&text);
        for word in [
            "println!",
            "eprintln!",
            "print!(",
            "std::env::",
            "env::var",
            "process::exit",
        ] {
            assert!(!code.contains(word), "{path}: {word}");
        }
    }
}

#[test]
fn accept_tree_and_sample_never_see_a_tensor() {
    for (path, text) in files(&[".rs"]) {
        let pure = ["src/accept/", "src/tree/", "src/sample/"];
        if pure.iter().any(|folder| path.starts_with(folder)) {
            let code = code(&text);
            for word in ["candle", "Matrix", "std::fs", "Instant", "rand::"] {
                assert!(!code.contains(word), "{path}: {word}");
            }
        }
    }
}

#[test]
fn files_are_small_documented_and_finished() {
    for (path, text) in files(&[".rs"]) {
        let lines = text.lines().count();
        assert!(
            lines <= MOST_LINES,
            "{path} has {lines} lines, more than {MOST_LINES}"
        );
        let test_sibling = path.ends_with("/tests.rs");
        assert!(
            test_sibling || text.starts_with("//!") || text.starts_with("#!["),
            "{path}: no module docs"
        );
        if path == "tests/it/tidy.rs" {
            continue;
        }
        for word in [
            "todo!",
            "unimplemented!",
            "dbg!(",
            "FIXME",
            "XXX",
            "#[allow(",
            "#![allow(",
        ] {
            assert!(!text.contains(word), "{path}: {word}");
        }
        let allowed = UNSAFE.contains(&path.as_str());
        assert!(
            allowed || !code(&text).contains("unsafe "),
            "{path}: unsafe"
        );
    }
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    let paths = ["/home/", "/Users/"];
    for (path, text) in files(&[".rs", ".toml", ".md", ".sh", ".py", ".yml", "run"]) {
        if path == "tests/it/tidy.rs" {
            continue;
        }
        for word in paths {
            assert!(!text.contains(word), "{path}: {word}");
        }
    }
}

#[test]
fn ignore_rules_are_anchored_and_keep_build_folders_out() {
    let rules = std::fs::read_to_string(root().join(".gitignore")).expect(".gitignore");
    let rules: Vec<_> = rules
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    assert!(
        rules.contains(&"/target") && rules.contains(&"/models"),
        "{rules:?}"
    );
    let loose: Vec<_> = rules.iter().filter(|rule| !rule.starts_with('/')).collect();
    assert!(loose.is_empty(), "{loose:?} would hide files in any folder");
}

#[test]
fn lints_and_the_oldest_compiler_are_stated_once() {
    let manifests = files(&["Cargo.toml"]);
    let stated: Vec<_> = manifests
        .iter()
        .filter(|(_, text)| text.contains("rust-version = "))
        .collect();
    assert_eq!(
        stated.len(),
        1,
        "{:?}",
        stated.iter().map(|(path, _)| path).collect::<Vec<_>>()
    );
    let root = &manifests["Cargo.toml"];
    for lint in [
        "unsafe_code = \"deny\"",
        "missing_docs = ",
        "print_stdout = ",
        "unnameable_types = \"deny\"",
    ] {
        assert!(root.contains(lint), "{lint}");
    }
    for (path, text) in &manifests {
        if !path.starts_with("fuzz/") && !path.starts_with("host/") {
            assert!(
                text.contains("[lints]\nworkspace = true"),
                "{path} has no lints"
            );
        }
    }
}
