use super::*;

const LIST: &str = r#"
name = "toy"
version = "1.0.0"

[[new]]
path = "src/more.rs"
from = "more.rs"

[[file]]
path = "src/lib.rs"
sha256 = "HASH"

[[file.insert]]
after = "mod a;"
lines = '''
mod more;
'''
"#;

const LIB: &str = "mod a;\nmod b;\n";

struct Toy {
    dir: tempfile::TempDir,
}

impl Toy {
    /// A published crate and its insertions; `edit` changes the list.
    fn new(lib: &str, edit: impl Fn(String) -> String) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        for folder in ["from/src", "patch"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        let hash: String = Sha256::digest(LIB)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        fs::write(at("from/src/lib.rs"), lib).unwrap();
        fs::write(at("from/src/a.rs"), "// a\n").unwrap();
        fs::write(at("from/.cargo-ok"), "").unwrap();
        fs::write(at("patch/more.rs"), "// more\n").unwrap();
        fs::write(
            at("patch/insertions.toml"),
            edit(LIST.replace("HASH", &hash)),
        )
        .unwrap();
        Self { dir }
    }

    fn apply(&self) -> Result<Applied> {
        let at = |path: &str| self.dir.path().join(path);
        Patch::read(&at("patch"))?.apply(&at("from"), &at("to"))
    }

    fn made(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.dir.path().join("to").join(path)).ok()
    }

    fn refusal(&self) -> PatchError {
        let error = self.apply().unwrap_err().downcast::<PatchError>().unwrap();
        assert!(
            !self.dir.path().join("to").exists(),
            "something was written"
        );
        error
    }
}

#[test]
fn inserts_copies_and_leaves_cargos_files() {
    let toy = Toy::new(LIB, |list| list);
    let done = toy.apply().unwrap();
    assert_eq!((done.files, done.written, done.lines), (3, 3, 1));
    assert_eq!(
        toy.made("src/lib.rs").unwrap(),
        "mod a;\nmod more;\nmod b;\n"
    );
    assert_eq!(toy.made("src/more.rs").unwrap(), "// more\n");
    assert_eq!(toy.made("src/a.rs").unwrap(), "// a\n");
    assert_eq!(toy.made(".cargo-ok"), None);
}

#[test]
fn a_second_run_writes_nothing_and_mends_what_was_changed_by_hand() {
    let toy = Toy::new(LIB, |list| list);
    toy.apply().unwrap();
    assert_eq!(toy.apply().unwrap().written, 0);
    let to = toy.dir.path().join("to/src");
    fs::write(to.join("a.rs"), "by hand").unwrap();
    fs::write(to.join("stray.rs"), "stray").unwrap();
    assert_eq!(toy.apply().unwrap().written, 2);
    assert_eq!(toy.made("src/a.rs").unwrap(), "// a\n");
    assert_eq!(toy.made("src/stray.rs"), None);
}

#[test]
fn other_bytes_are_refused_by_name() {
    let error = Toy::new("mod a;\n", |list| list).refusal();
    assert!(matches!(&error, PatchError::Hash { path, .. } if path.ends_with("src/lib.rs")));
    assert!(
        error.to_string().contains("the insertions are for"),
        "{error}"
    );
}

#[test]
fn an_anchor_must_be_there_once() {
    let gone = Toy::new(LIB, |list| list.replace("mod a;", "mod z;")).refusal();
    assert!(
        matches!(gone, PatchError::Anchor { found: 0, .. }),
        "{gone}"
    );
}

#[test]
fn a_new_file_replaces_none() {
    let error = Toy::new(LIB, |list| list.replace("src/more.rs", "src/a.rs")).refusal();
    assert!(matches!(error, PatchError::Exists { .. }), "{error}");
}

#[test]
fn a_misspelt_key_is_refused() {
    let toy = Toy::new(LIB, |list| list.replace("after", "before"));
    assert!(format!("{:#}", toy.apply().unwrap_err()).contains("before"));
}

/// The list of this repository: what it inserts can only be compiled with the feature.
#[test]
fn every_insertion_is_behind_the_feature() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/mistralrs/patch");
    let patch = Patch::read(&folder).unwrap();
    for file in &patch.list.file {
        for insert in &file.insert {
            if file.path == Path::new("Cargo.toml") {
                assert_eq!(insert.lines, "speculative = []\n");
                continue;
            }
            let (mut guarded, mut depth) = (false, 0);
            for line in insert.lines.lines().map(str::trim) {
                let prose =
                    line.is_empty() || line.starts_with("///") || line.starts_with("#[serde");
                if depth == 0 && line == r#"#[cfg(feature = "speculative")]"# {
                    guarded = true;
                } else if depth > 0 || !prose {
                    assert!(guarded, "{}: {line}", file.path.display());
                    depth += nesting(line);
                    guarded = depth > 0;
                }
            }
            assert_eq!(depth, 0, "{}: {}", file.path.display(), insert.lines);
        }
    }
}

/// How many brackets a line opens more than it closes.
fn nesting(line: &str) -> i32 {
    line.chars().fold(0, |depth, c| match c {
        '{' | '(' | '[' => depth + 1,
        '}' | ')' | ']' => depth - 1,
        _ => depth,
    })
}
