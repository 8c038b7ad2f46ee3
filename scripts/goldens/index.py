"""tests/data/heads/index.json, the target's files, and equal files stored once."""

import hashlib
import importlib.metadata
import json
import os

from safetensors.torch import save_file

from model import TARGET_EPS
from options import TARGET_LAYERS, VOCAB

GOLDEN = "golden.safetensors"


def write_target(heads, width, supplied):
    folder = os.path.join(heads, f"target-{width}")
    os.makedirs(folder, exist_ok=True)
    save_file(supplied, os.path.join(folder, "target.safetensors"))


def entry(case, seen, wrong):
    o = case.options
    least = min(wrong, key=wrong.get)
    options = {name: value for name, value in vars(o).items() if name not in ("version", "d2t")}
    return {
        "format": f"eagle{o.version}",
        "source": case.source,
        "note": case.note,
        "target": f"target-{o.target_hidden}",
        "dtype": case.dtype,
        "options": options | {"taps": list(o.taps)},
        "differences": {name: float(f"{x:.1e}") for name, x in seen.items()},
        "least_effect": {least: float(f"{wrong[least]:.1e}")},
    }


def without_code(folder):
    """The package copies its own Python files beside a head; they are no part of it."""
    for file in os.listdir(folder):
        if file.endswith(".py"):
            os.remove(os.path.join(folder, file))


def versions():
    packages = ("torch", "transformers", "speculators", "safetensors", "gguf", "numpy")
    found = {}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def sha256(path):
    with open(path, "rb") as data:
        return hashlib.sha256(data.read()).hexdigest()


def stored_once(heads, names):
    """Files of each head: hash, and where another head's equal file stands in for it."""
    first, files = {}, {}
    for name in names:
        folder = os.path.join(heads, name)
        files[name] = {}
        for file in sorted(os.listdir(folder)):
            path = os.path.join(folder, file)
            hash = sha256(path)
            at = first.setdefault(hash, f"{name}/{file}") if file.endswith((".bin", ".gguf", ".safetensors")) else f"{name}/{file}"
            files[name][file] = {"sha256": hash, "at": at, "bytes": os.path.getsize(path)}
            if at != f"{name}/{file}":
                os.remove(path)
    return files


def update(heads, entries, eagle1):
    path = os.path.join(heads, "index.json")
    kept = {"heads": {}}
    if eagle1:
        with open(path) as data:
            kept = json.load(data)
    files = stored_once(heads, entries)
    for name, found in entries.items():
        kept["heads"][name] = found | {"files": files[name]}
    kept["versions_eagle1" if eagle1 else "versions"] = versions()
    kept["target"] = {"layers": TARGET_LAYERS, "vocab": VOCAB, "eps": TARGET_EPS}
    targets = sorted(name for name in os.listdir(heads) if name.startswith("target-"))
    kept["target"]["files"] = {name: sha256(os.path.join(heads, name, "target.safetensors")) for name in targets}
    with open(path, "w") as out:
        json.dump(kept, out, indent=1)
        out.write("\n")
