#!/usr/bin/env bash
# Guess: a chat template that cannot take a system message behind other messages refuses it, so that the server answers with an
# error; all others keep it in its place.
# Seen with the 70 templates in the source package llama-cpp-python 0.3.36 (vendor/llama.cpp/models/templates) and Jinja2 3.1.6: of
# the 59 that can be rendered so, 37 keep it, 5 refuse it, and 17 say nothing: 8 leave it out (gpt-oss, MiniMax M1 to M3, SmolLM3
# and others), 6 move it to the front (DeepSeek V3.1 and later), and with 3 it takes the place of the prompt. In the role of the
# user, 56 keep it, and the 3 others refuse only that two messages of the user follow each other.
# Output seen:
#   system {'at the front': 6, 'dropped': 8, 'in place': 37, 'not rendered': 11, 'refused': 5, 'replaces the prompt': 3}
#   user {'in place': 56, 'not rendered': 11, 'refused': 3}
#   joined {'in place': 59, 'not rendered': 11}
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q jinja2==3.1.6
"$folder/venv/bin/pip" download -q --no-deps --no-binary llama-cpp-python -d "$folder" llama-cpp-python==0.3.36
tar xzf "$folder"/llama_cpp_python-0.3.36.tar.gz -C "$folder" --wildcards '*/models/templates/*.jinja'
cat >"$folder/render.py" <<'PY'
import collections, datetime, json, pathlib, sys
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

CALL = {"id": "call00001", "type": "function", "function": {"name": "clock", "arguments": {"zone": "UTC"}}}
ZONE = {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}
TOOLS = [{"type": "function", "function": {"name": "clock", "description": "the time", "parameters": ZONE}}]


def refuse(message):
    raise ValueError(message)


def as_json(value, ensure_ascii=False, **options):
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
environment.filters["tojson"] = as_json
environment.globals.update(raise_exception=refuse, strftime_now=datetime.datetime(2026, 11, 29).strftime)


def history(later):
    behind = [{"role": later, "content": "LATER"}] if later in ("system", "user") else []
    return [
        {"role": "system", "content": "PROMPT"},
        {"role": "user", "content": "QUESTION"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call00001", "name": "clock", "content": "RESULT"},
        {"role": "assistant", "content": "ANSWER"},
        *behind,
        {"role": "user", "content": "LATER NEXT" if later == "joined" else "NEXT"},
    ]


def render(template, later):
    names = {"tools": TOOLS, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"}
    return environment.from_string(template).render(messages=history(later), **names)


def what(template, later):
    try:
        render(template, None)
    except Exception:  # it needs other names, another dialect, or takes no system message at all
        return "not rendered"
    try:
        text = render(template, later)
    except Exception:
        return "refused"
    if "LATER" not in text:
        return "dropped"
    if "PROMPT" not in text:
        return "replaces the prompt"
    return "at the front" if text.index("LATER") < text.index("QUESTION") else "in place"


templates = [path.read_text() for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.jinja"))]
for later in ("system", "user", "joined"):
    seen = collections.Counter(what(template, later) for template in templates)
    print(later, dict(sorted(seen.items())))
PY
"$folder/venv/bin/python" "$folder/render.py" "$folder" | tee "$folder/seen"
diff "$folder/seen" - <<'SEEN'
system {'at the front': 6, 'dropped': 8, 'in place': 37, 'not rendered': 11, 'refused': 5, 'replaces the prompt': 3}
user {'in place': 56, 'not rendered': 11, 'refused': 3}
joined {'in place': 59, 'not rendered': 11}
SEEN
