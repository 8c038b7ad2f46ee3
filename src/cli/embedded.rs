//! The model and the head that the program carries: what `tiny` and `embedded` mean where a path is asked
//! for.

use std::path::Path;

use crate::model::load::Files;

/// The model's name. A folder of this name is `./tiny`.
pub(super) const MODEL: &str = "tiny";
/// Its head's name.
pub(super) const HEAD: &str = "embedded";

type File = (&'static str, &'static [u8]);

const TARGET_FILES: [File; 4] = [
    (
        "config.json",
        include_bytes!("../../assets/tiny/target/config.json"),
    ),
    (
        "generation_config.json",
        include_bytes!("../../assets/tiny/target/generation_config.json"),
    ),
    (
        "model.safetensors",
        include_bytes!("../../assets/tiny/target/model.safetensors"),
    ),
    (
        "tokenizer.json",
        include_bytes!("../../assets/tiny/target/tokenizer.json"),
    ),
];

const HEAD_FILES: [File; 2] = [
    (
        "config.json",
        include_bytes!("../../assets/tiny/head/config.json"),
    ),
    (
        "model.safetensors",
        include_bytes!("../../assets/tiny/head/model.safetensors"),
    ),
];

/// What `path` names: the embedded model or head, or what is on disk.
pub(super) fn files(path: &Path) -> Files {
    if path == Path::new(MODEL) {
        Files::held(MODEL, TARGET_FILES)
    } else if path == Path::new(HEAD) {
        Files::held(HEAD, HEAD_FILES)
    } else {
        Files::from(path)
    }
}

/// What is to be said if there is something on disk of the name of what is embedded.
pub(super) fn warning(path: &Path) -> Option<String> {
    let files = files(path);
    (files.in_memory().is_some() && path.exists()).then(|| {
        let name = path.display();
        format!("{name}: what is embedded is meant; what is here of that name is ./{name}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        draft::eagle::{Head, HeadCheckpoint, HeadOptions, TargetFacts},
        model::{Llama, LoadOptions, Target, load::Checkpoint},
        text::Tokenizer,
    };
    use std::sync::Arc;

    /// `files` with other bytes in the one called `name`.
    fn with(files: &[File], name: &str, bytes: &'static [u8]) -> Files {
        let other = |file: &File| match file.0 == name {
            true => (file.0, bytes),
            false => *file,
        };
        Files::held("mangled", files.iter().map(other))
    }

    fn model(files: &Files) -> Result<(), String> {
        let checkpoint = Checkpoint::open(files.clone()).map_err(|error| error.to_string())?;
        let options = LoadOptions::default();
        Llama::load(&checkpoint, &options).map_err(|error| error.to_string())?;
        let tokenizer = Tokenizer::from_dir(files.clone()).map_err(|error| error.to_string())?;
        tokenizer
            .map(|_| ())
            .ok_or_else(|| "no tokenizer".to_owned())
    }

    fn head(files: Files) -> Result<(), String> {
        let checkpoint = Checkpoint::open(self::files(Path::new(MODEL))).expect("the model opens");
        let facts = TargetFacts::from(checkpoint.config());
        let opened = HeadCheckpoint::open(files, &facts, &HeadOptions::default());
        let opened = opened.map_err(|error| error.to_string())?;
        let options = LoadOptions::default();
        let target: Arc<dyn Target> = Arc::new(Llama::load(&checkpoint, &options).expect("loads"));
        let loaded = Head::load(&opened, target, &options);
        loaded.map(|_| ()).map_err(|error| error.to_string())
    }

    #[test]
    fn both_load_and_fit_each_other() {
        assert_eq!(model(&files(Path::new(MODEL))), Ok(()));
        assert_eq!(head(files(Path::new(HEAD))), Ok(()));
        assert!(!files(Path::new("./no-such-folder")).exists());
    }

    /// Every file cut at many places is an error that names it.
    #[test]
    fn a_mangled_file_is_an_error() {
        let cuts =
            |len: usize| [0, 1, 7, 8, 9, len / 3, len / 2, len - 2].map(|at| at.min(len - 1));
        for file in &TARGET_FILES {
            for cut in cuts(file.1.len()) {
                let error = model(&with(&TARGET_FILES, file.0, &file.1[..cut])).expect_err(file.0);
                assert!(
                    error.contains(&format!("mangled/{}", file.0)),
                    "{cut}: {error}"
                );
            }
        }
        for file in &HEAD_FILES {
            for cut in cuts(file.1.len()) {
                let error = head(with(&HEAD_FILES, file.0, &file.1[..cut])).expect_err(file.0);
                assert!(
                    error.contains(&format!("mangled/{}", file.0)),
                    "{cut}: {error}"
                );
            }
        }
    }

    #[test]
    fn a_missing_file_is_an_error() {
        for file in TARGET_FILES
            .iter()
            .filter(|file| file.0 != "generation_config.json")
        {
            let rest = TARGET_FILES.iter().filter(|other| other.0 != file.0);
            model(&Files::held("cut", rest.copied())).expect_err(file.0);
        }
        for file in &HEAD_FILES {
            let rest = HEAD_FILES.iter().filter(|other| other.0 != file.0);
            head(Files::held("cut", rest.copied())).expect_err(file.0);
        }
    }
}
