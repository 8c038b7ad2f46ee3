#!/usr/bin/env python3
"""Makes tests/data/heads: tiny EAGLE heads in every public format, and what each must compute.

    python3 -m venv A && A/bin/pip install -r scripts/goldens/requirements.txt
    python3 -m venv B && B/bin/pip install -r scripts/goldens/requirements-eagle1.txt
    A/bin/python scripts/goldens/eagle.py
    B/bin/python scripts/goldens/eagle.py --eagle1

The second command adds the EAGLE-1 heads of speculators 0.2, which cannot be installed beside 0.9.
tests/data/heads/README.md says what the files hold.
"""

import argparse
import importlib.metadata
import os
import shutil

import torch
from safetensors.torch import save_file

import golden
import index
from cases import EAGLE1, FORMATS, GGUF, OPTIONS, SPECULATORS, SPECULATORS1
from doubt import doubts
from model import Plain
from weights import head, ids, target
from write_files import DTYPES

HEADS = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "data", "heads")
CLOSE = 1e-5  # between forwards in f32 and f64, where values are below 1


def write(folder, case, weights, supplied):
    """Writes the head; gives its tensors as stored, and its run by the package that wrote it."""
    o = case.options
    if case.source == "gguf":
        import write_gguf

        return write_gguf.write(folder, case, weights), None
    if case.source != "speculators":
        import write_files

        return write_files.write(folder, case, weights), None
    if o.version == 1:
        import speculators1

        kept = speculators1.save(folder, speculators1.build(o, weights, supplied), DTYPES[case.dtype])
        return kept, speculators1.run(speculators1.build(o, kept, supplied), o, supplied)
    import speculators3

    kept = speculators3.save(folder, speculators3.build(o, weights, supplied), DTYPES[case.dtype])
    if case.config.get("differences_only"):
        speculators3.keep_differences(folder)
    tensors = {name: tensor for name, tensor in kept.items() if name not in ("d2t", "t2d")}
    return tensors, speculators3.run(speculators3.build(o, tensors, supplied), o, ids(o), supplied)


def independent(o, tensors, supplied, by_class):
    """Largest differences between the plain forward and those of packages, by name of the latter."""
    plain = golden.run(Plain(o, tensors, supplied), o, ids(o), supplied)
    seen = {}

    def compare(name, other):
        names = [n for n in other if not n.endswith("tokens")]
        if o.window:
            # The package's window stays where the last true row put it.
            names = [n for n in names if by_class is not other or n.startswith("extend")]
        seen[name] = golden.difference(plain, other, names)
        assert seen[name] < CLOSE * max(1.0, float(plain["extend.hidden"].abs().max())), (name, seen)

    if o.version == 3 or by_class is None:
        import parts
        import speculators3

        compare("layers of transformers and speculators", golden.run(parts.Parts(o, tensors, supplied), o, ids(o), supplied))
        if by_class is None and speculators3.fits(o):
            by_class = speculators3.run(speculators3.build(o, tensors, supplied), o, ids(o), supplied)
    if by_class is not None:
        compare(f"speculators {importlib.metadata.version('speculators')}", by_class)
    return plain, seen


def make(case, targets):
    o = case.options
    folder = os.path.join(HEADS, case.name)
    os.makedirs(folder)
    supplied = targets[o.target_hidden]
    tensors, by_class = write(folder, case, head(o), supplied)
    values, seen = independent(o, tensors, supplied, by_class)
    assert golden.margin(values) > 1e-3, (case.name, golden.margin(values))
    if case.source == "speculators" and o.version == 3:
        # The right values are the package's where it computes them.
        names = [n for n in by_class if n.startswith("extend") or not o.window]
        values |= {name: by_class[name] for name in names}
    wrong = doubts(o, tensors, supplied, values)
    values["ids"] = ids(o)
    held = {n: t.to(torch.int64 if n.endswith(("tokens", "ids")) else torch.float32).contiguous() for n, t in values.items()}
    save_file(held, os.path.join(folder, "golden.safetensors"))
    print(f"{case.name:36} {max(seen.values()):.1e}  least effect of an error {min(wrong.values()):.1e} ({min(wrong, key=wrong.get)})")
    return index.entry(case, seen, wrong)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--eagle1", action="store_true", help="the heads that need speculators 0.2")
    eagle1 = arguments.parse_args().eagle1
    torch.set_num_threads(1)
    targets = {width: target(width) for width in (64, 48)}
    if not eagle1:
        for name in os.listdir(HEADS):
            if os.path.isdir(os.path.join(HEADS, name)):
                shutil.rmtree(os.path.join(HEADS, name))
        for width, supplied in targets.items():
            index.write_target(HEADS, width, supplied)
    cases = SPECULATORS1 if eagle1 else EAGLE1 + FORMATS + OPTIONS + GGUF + SPECULATORS
    index.update(HEADS, {case.name: make(case, targets) for case in cases}, eagle1)


if __name__ == "__main__":
    main()
