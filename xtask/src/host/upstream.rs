//! Where cargo put the published crate.

use std::{path::Path, path::PathBuf, process::Command};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The folder of `name` `version`, which cargo downloads if it has to, as the workspace in `workspace`
/// locks it: cargo checks the archive against the lock's checksum.
///
/// # Errors
/// If cargo cannot get it, or the workspace locks another version.
pub(super) fn locate(workspace: &Path, name: &str, version: &str) -> Result<PathBuf> {
    let manifest = workspace.join("Cargo.toml");
    let out = Command::new("cargo")
        .args(["metadata", "--locked", "--format-version", "1"])
        .arg("--manifest-path")
        .arg(&manifest)
        .output()
        .context("cargo metadata")?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        bail!("cargo metadata of {}: {}", manifest.display(), said.trim());
    }
    let metadata: Value = serde_json::from_slice(&out.stdout).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut found = Vec::new();
    for package in packages.filter(|package| package["name"] == name) {
        if package["version"] == version {
            let manifest = package["manifest_path"].as_str();
            let folder = manifest.and_then(|path| Path::new(path).parent());
            return Ok(folder.context("manifest_path")?.to_owned());
        }
        found.push(package["version"].to_string());
    }
    bail!(
        "{}: {name} {}; the insertions are for {version}",
        workspace.join("Cargo.lock").display(),
        if found.is_empty() {
            "is not there".to_owned()
        } else {
            found.join(", ")
        }
    )
}
