"""Checks an OpenAI server of mistral.rs on Eyrie's pipeline with the openai client.

    openai-client.py spell-json DIR          gives the tokenizer of the tiny model braces and brackets
    openai-client.py tiny --model DIR --url URL   all checks, on the tiny model
    openai-client.py chat --name NAME --url URL   a few, on a model that can chat

scripts/openai-client.sh calls it. The server has a `--seed`, so that sampled texts can be compared.
"""

import argparse
import concurrent.futures
import inspect
import json
import math
import pathlib
import sys
import traceback
import urllib.request

import jinja2
import openai
import tokenizers

JSON_CHARACTERS = "{}[]"


def spell_json(folder: pathlib.Path) -> None:
    """The tiny model has four rows beyond its tokenizer: they become these characters."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocab = tokenizer["model"]["vocab"]
    free = range(max(vocab.values()) + 1, json.loads((folder / "config.json").read_text())["vocab_size"])
    assert len(free) >= len(JSON_CHARACTERS), free
    vocab.update(zip(JSON_CHARACTERS, free))
    path.write_text(json.dumps(tokenizer))


class Checks:
    """Every method whose name begins with an underscore is a helper; the others are checks."""

    greedy = {"temperature": 0, "max_tokens": 40}

    def __init__(self, url: str, model: str):
        self.client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=300)
        self.metrics_url = url.removesuffix("/v1") + "/metrics"
        self.model = model

    def _chat(self, content="tell me a tale", **parameters):
        given = {"model": self.model, **self.greedy, **parameters}
        return self.client.chat.completions.create(messages=[{"role": "user", "content": content}], **given)

    def _text(self, *args, **parameters) -> str:
        return self._chat(*args, **parameters).choices[0].message.content

    def _streamed(self, *args, **parameters):
        """The chunks, and the text of their deltas."""
        chunks = list(self._chat(*args, stream=True, **parameters))
        deltas = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
        return chunks, "".join(deltas)

    def _metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(self.metrics_url) as answer:
            lines = answer.read().decode().splitlines()
        samples = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        return {name: float(value) for name, value in samples}

    def models_are_listed(self):
        names = {model.id for model in self.client.models.list()}
        assert {self.model, f"{self.model}-plain"} <= names, names

    def streamed_deltas_joined_are_the_text(self):
        whole = self._chat()
        chunks, text = self._streamed()
        assert text == whole.choices[0].message.content, (text, whole)
        assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
        usage, same = chunks[-1].usage, whole.usage
        assert usage is not None, "the last chunk has the usage"
        assert (usage.prompt_tokens, usage.completion_tokens) == (same.prompt_tokens, same.completion_tokens)
        assert all(chunk.usage is None for chunk in chunks[:-1])

    def the_plain_model_says_the_same(self):
        for parameters in [{}, {"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.9}]:
            fast = self._chat(**parameters)
            plain = self._chat(model=f"{self.model}-plain", **parameters)
            assert fast.choices[0].message.content == plain.choices[0].message.content, (fast, plain)
            assert plain.usage.model_extra["speculative"]["drafted"] == 0, plain.usage

    def neighbours_change_nothing(self):
        prompts = ["a", "a tale of two", "count: 1, 2, 3", "the end is near and here", "no", "why?"]
        alone = [self._text(prompt) for prompt in prompts]
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            together = list(pool.map(self._text, prompts))
        assert alone == together, (alone, together)

    def max_tokens_is_the_number_of_tokens(self):
        for count in (1, 2, 7):
            answer = self._chat(max_tokens=count)
            assert answer.usage.completion_tokens == count, answer
            assert answer.choices[0].finish_reason == "length", answer

    def usage_adds_up(self):
        usage = self._chat().usage
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, usage
        counted = usage.model_extra["speculative"]
        assert 0 <= counted["accepted"] <= counted["drafted"], counted
        assert sum(counted["accepted_by_position"]) == counted["accepted"], counted
        assert sum(counted["drafted_by_position"]) == counted["drafted"], counted
        # The prompt's token, then one of the model's own a round; the last round may be cut.
        own = 1 + counted["rounds"]
        assert 0 <= own + counted["accepted"] - usage.completion_tokens <= 1, usage
        assert isinstance(counted["seed"], int), counted

    def metrics_count_what_usage_counts(self):
        before = self._metrics()
        usage = self._chat("again and again and again").usage
        after = self._metrics()
        label = f'{{model="{self.model}"}}'

        def more(name):
            return after[f"eyrie_{name}_total{label}"] - before.get(f"eyrie_{name}_total{label}", 0)

        counted = usage.model_extra["speculative"]
        assert more("choices") == 1
        assert more("tokens") == usage.completion_tokens
        assert more("rounds") == counted["rounds"]
        assert more("drafted_tokens") == counted["drafted"]
        assert more("accepted_tokens") == counted["accepted"]
        assert after['eyrie_stage_seconds_total{stage="verify"}'] > 0


class Chat(Checks):
    """On a model that can chat."""

    def paris(self):
        text = self._text("What is the capital of France?")
        assert "Paris" in text, text

    def a_schema_of_an_object_is_kept(self):
        properties = {"city": {"enum": ["Paris", "Lyon"]}, "river": {"type": "string", "maxLength": 12}}
        schema = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        form = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}
        text = self._text("Name a city of France and its river as JSON.", response_format=form, max_tokens=80)
        answer = json.loads(text)
        assert answer.keys() == properties.keys() and answer["city"] in ("Paris", "Lyon"), text
        assert len(answer["river"]) <= 12, text


class Tiny(Checks):
    """On the tiny random model, whose tokenizer and template lie in `folder`.

    Its four special tokens have no text, and one of them ends a choice: they are left out.
    """

    special = range(4)
    greedy = {**Checks.greedy, "logit_bias": {str(token): -100 for token in special}}

    def __init__(self, url: str, model: str, folder: pathlib.Path):
        super().__init__(url, model)
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        config = json.loads((folder / "tokenizer_config.json").read_text())
        self.template = jinja2.Environment().from_string(config["chat_template"])

    def _complete(self, prompt="once upon a time", **parameters):
        given = {"model": self.model, **self.greedy, **parameters}
        return self.client.completions.create(prompt=prompt, **given)

    def prompt_tokens_are_the_tokenizers(self):
        for content in ["a", "tell me another tale", "the theory, then: 1 2 3"]:
            messages = [{"role": "user", "content": content}]
            text = self.template.render(messages=messages, add_generation_prompt=True)
            expected = len(self.tokenizer.encode(text).ids)
            assert self._chat(content).usage.prompt_tokens == expected, (content, expected)
            expected = len(self.tokenizer.encode(content).ids)
            assert self._complete(content).usage.prompt_tokens == expected, (content, expected)

    def logprobs_are_natural_and_complete(self):
        answer = self._chat(logprobs=True, top_logprobs=5)
        entries = answer.choices[0].logprobs.content
        assert len(entries) == answer.usage.completion_tokens, answer
        assert "".join(entry.token for entry in entries) == answer.choices[0].message.content, answer
        for entry in entries:
            tops = [top.logprob for top in entry.top_logprobs]
            assert len(tops) == 5 and tops == sorted(tops, reverse=True), entry
            assert sum(map(math.exp, tops)) <= 1 + 1e-5, entry
            # Greedy: the token is the likeliest. The host lists the others by number; `bytes` is their text.
            assert entry.logprob == tops[0] and entry.token == entry.top_logprobs[0].bytes, entry

    def logprobs_of_all_tokens_sum_to_one(self):
        answer = self._chat(logprobs=True, top_logprobs=20, temperature=1.0, extra_body={"top_k": 20})
        for entry in answer.choices[0].logprobs.content:
            kept = [top.logprob for top in entry.top_logprobs]
            assert abs(sum(map(math.exp, kept)) - 1) < 1e-4, entry
            assert any(abs(entry.logprob - logprob) < 1e-6 for logprob in kept), entry

    def streamed_logprobs_are_the_same(self):
        whole = self._chat(logprobs=True, top_logprobs=2).choices[0].logprobs.content
        chunks, _ = self._streamed(logprobs=True, top_logprobs=2)
        # The host's chunks have one record each, not a list of them.
        records = [choice.logprobs.model_extra for chunk in chunks for choice in chunk.choices if choice.logprobs]
        assert [record["logprob"] for record in records] == [entry.logprob for entry in whole], (records, whole)

    def a_stop_string_ends_the_text(self):
        text = self._text()
        for begin in range(3, 12):
            stop = text[begin : begin + 3]
            answer = self._chat(stop=[stop])
            assert answer.choices[0].message.content == text[: text.find(stop)], (stop, answer, text)
            assert answer.choices[0].finish_reason == "stop", answer
            assert answer.usage.completion_tokens < 40, answer

    def n_gives_choices_that_differ(self):
        answer = self._chat(n=2, temperature=1.0, logprobs=True)
        assert [choice.index for choice in answer.choices] == [0, 1], answer
        first, second = (choice.message.content for choice in answer.choices)
        assert first != second, answer
        assert first == self._text(temperature=1.0), "the first is that of the seed itself"
        tokens = sum(len(choice.logprobs.content) for choice in answer.choices)
        assert answer.usage.completion_tokens == tokens, answer

    def _object(self, schema):
        """The text that a schema allows, without spaces, which the model would never stop to write."""
        schema = {**schema, "x-guidance": {"whitespace_flexible": False}}
        form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        return self._chat(response_format=form, max_tokens=120)

    def a_schema_is_kept(self):
        properties = {
            "kind": {"enum": ["short", "long"]},
            "count": {"type": "integer", "minimum": 0, "maximum": 99},
            "words": {"type": "array", "items": {"enum": ["a", "the", "of"]}, "minItems": 2, "maxItems": 2},
        }
        schema = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        answer = self._object(schema)
        assert answer.choices[0].finish_reason == "stop", answer
        value = json.loads(answer.choices[0].message.content)
        assert list(value) == list(properties), value
        assert value["kind"] in ("short", "long") and 0 <= value["count"] <= 99, value
        assert len(value["words"]) == 2 and set(value["words"]) <= {"a", "the", "of"}, value

    def a_schema_is_kept_when_sampled_and_streamed(self):
        schema = {"enum": ["a tale", "the end", "another one"], "x-guidance": {"whitespace_flexible": False}}
        form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        given = {"response_format": form, "temperature": 1.0}
        _, text = self._streamed(**given)
        assert json.loads(text) in schema["enum"], text
        assert text == self._text(model=f"{self.model}-plain", **given)

    def completions_stream_too(self):
        whole = self._complete()
        streamed = "".join(chunk.choices[0].text for chunk in self._complete(stream=True))
        assert streamed == whole.choices[0].text, (streamed, whole)
        assert whole.usage.completion_tokens == 40, whole

    def logit_bias_is_honoured_and_what_repeats_is_drafted(self):
        wanted = self.tokenizer.token_to_id("q")
        answer = self._chat(logit_bias={str(wanted): 100}, max_tokens=30)
        assert answer.choices[0].message.content == "q" * 30, answer
        counted = answer.usage.model_extra["speculative"]
        assert counted["accepted"] > 15 and counted["rounds"] < 15, counted

    def what_is_wrong_is_an_error_and_the_server_lives(self):
        before = self._text()
        for parameters, word in [
            ({"n": 0}, "choices"),
            ({"logit_bias": {"9999": 5}}, "logit_bias 9999"),
            ({"extra_body": {"repetition_penalty": 0}}, "repetition_penalty 0"),
            ({"content": "a" * 1000}, "256"),
            ({"model": "nothing"}, "nothing"),
        ]:
            try:
                answer = self._chat(**parameters)
            except openai.APIStatusError as error:
                assert word in str(error), (parameters, error)
            else:
                raise AssertionError(f"{parameters} was answered: {answer}")
        assert self._text() == before


def run(checks: Checks) -> int:
    methods = inspect.getmembers(checks, inspect.ismethod)
    names = [name for name, _ in methods if not name.startswith("_")]
    failed = 0
    for name in names:
        try:
            getattr(checks, name)()
            print(f"ok      {name}")
        except Exception:
            failed += 1
            print(f"FAILED  {name}")
            traceback.print_exc(file=sys.stdout)
    print(f"{len(names) - failed} of {len(names)} checks passed (openai {openai.__version__})")
    return int(failed > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs = parser.add_subparsers(dest="job", required=True)
    jobs.add_parser("spell-json").add_argument("folder", type=pathlib.Path)
    tiny = jobs.add_parser("tiny")
    tiny.add_argument("--model", type=pathlib.Path, required=True)
    chat = jobs.add_parser("chat")
    chat.add_argument("--name", required=True)
    for job in (tiny, chat):
        job.add_argument("--url", required=True)
    args = parser.parse_args()
    match args.job:
        case "spell-json":
            spell_json(args.folder)
            return 0
        case "tiny":
            return run(Tiny(args.url, "tiny", args.model))
        case _:
            return run(Chat(args.url, args.name))


if __name__ == "__main__":
    sys.exit(main())
