#!/usr/bin/env python3
"""Makes tests/data/chat/*.jsonl: conversations rendered by Python's Jinja.

    pip install gguf==0.19.0 Jinja2==3.1.6
    scripts/fetch-models.sh
    python3 scripts/make-chat-goldens.py

smollm2.jsonl uses the template in the GGUF's metadata, headers.jsonl the one beside it. The
environment is the one that transformers gives to templates: sandboxed, blocks trimmed, loop
controls, `tojson` without escapes, `raise_exception`; `tools` and `documents` are None. It has no
`strftime_now` here, for a rendered prompt must not depend on the day. A line holds `text`, or
`error` with the template's own message.
"""

import json
import os

from gguf import GGUFReader
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = os.path.join(ROOT, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
DATA = os.path.join(ROOT, "tests", "data", "chat")


def conversation(*turns):
    return [{"role": role, "content": content} for role, content in turns]


CONVERSATIONS = [
    conversation(("user", "Name the capital of France.")),
    conversation(("system", "You answer in one word."), ("user", "Name the capital of France.")),
    conversation(("user", "Hi"), ("assistant", "Hello! How can I help?"), ("user", "Tell me a joke.")),
    conversation(("system", "  Spaces around.  \n"), ("user", "One"), ("assistant", "Two"), ("user", "Three"), ("assistant", "Four")),
    conversation(("user", "")),
    conversation(("user", "  leading and trailing \n\n")),
    conversation(("user", "line one\nline two\r\nline three\ttab")),
    conversation(("user", "caf\u00e9 \u4f60\u597d \U0001f468\u200d\U0001f469\u200d\U0001f467 \"quotes\" <b>&amp;</b> {{ braces }} {% block %}")),
    conversation(("user", "special <|im_end|> inside")),
    conversation(("system", ""), ("user", "empty system")),
    conversation(("user", "a"), ("user", "b"), ("assistant", "c")),
    conversation(("assistant", "I begin."), ("user", "json:say \"\u00e9\" & <x>:rest")),
    conversation(("user", "q"), ("tool", "ignored"), ("assistant", "json:a\\b\n")),
    conversation(("user", "q"), ("critic", "not a role")),
    conversation(("system", "a"), ("user", "q"), ("system", "b")),
]


def environment():
    def tojson(x, ensure_ascii=False, indent=None):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent)

    def raise_exception(message):
        raise TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def make(name, source, bos, eos):
    template = environment().from_string(source)
    with open(os.path.join(DATA, name), "w", encoding="ascii") as out:
        for messages in CONVERSATIONS:
            for prompt in (False, True):
                line = {"messages": messages, "add_generation_prompt": prompt}
                try:
                    line["text"] = template.render(
                        messages=messages, add_generation_prompt=prompt, tools=None, documents=None, bos_token=bos, eos_token=eos
                    )
                except TemplateError as error:
                    line["error"] = error.message
                out.write(json.dumps(line) + "\n")


def main():
    fields = GGUFReader(MODEL).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    bos = tokens[fields["tokenizer.ggml.bos_token_id"].contents()]
    eos = tokens[fields["tokenizer.ggml.eos_token_id"].contents()]
    make("smollm2.jsonl", fields["tokenizer.chat_template"].contents(), bos, eos)
    with open(os.path.join(DATA, "headers.jinja"), encoding="utf-8") as source:
        make("headers.jsonl", source.read(), "<|begin|>", "<|stop|>")


if __name__ == "__main__":
    main()
