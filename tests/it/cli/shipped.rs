//! The heads that lie under `assets/`, with their targets.

use std::{fs, path::PathBuf};

use crate::support::{say, smollm2};

/// A head that is shipped, and the target that it is for.
#[derive(Debug)]
pub(super) struct Shipped {
    pub(super) head: PathBuf,
    pub(super) target: PathBuf,
    /// Whether the target is the real model, which takes its time.
    pub(super) large: bool,
}

/// All heads under `assets/` whose target is there: `NAME/head` beside `NAME/target`, and `NAME` itself,
/// for SmolLM2.
pub(super) fn shipped() -> Vec<Shipped> {
    let assets = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("assets");
    let folders = fs::read_dir(assets).expect("assets").flatten();
    let mut folders: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
    folders.sort();
    let is_model = |folder: &PathBuf| folder.join("model.safetensors").exists();
    let mut all = Vec::new();
    for folder in folders {
        let (head, target) = (folder.join("head"), folder.join("target"));
        if is_model(&head) {
            let large = false;
            all.push(Shipped {
                head,
                target,
                large,
            });
        } else if is_model(&folder) {
            let shipped = smollm2().map(|target| Shipped {
                head: folder,
                target,
                large: true,
            });
            all.extend(shipped);
        }
    }
    if all.is_empty() {
        say("assets has no head yet whose target is there");
    }
    all
}
