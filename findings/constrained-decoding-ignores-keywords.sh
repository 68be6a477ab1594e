#!/usr/bin/env bash
# Guess: a library that holds a model to a JSON Schema lets through only what the schema allows, and refuses a schema with a keyword that
# it cannot enforce; so what comes out needs no check, or the mistake is seen at the start.
# Seen with outlines-core 0.2.14, lm-format-enforcer 0.11.3 and llguidance 1.9.1 for Python: only llguidance does so. The two others ignore
# what they do not know, without an error or a warning: `minimum` of an integer, `uniqueItems`, `not`, `if` and more. outlines-core takes
# `allOf` as a sequence: it lets through two objects in a row, which is no JSON, and stops the one object that fits. So the arguments of a
# tool have to be checked by the schema behind the decoder too.
# Output seen (Python 3.11), for a text that the schema forbids:
#   minimum: outlines-core lets it through, lm-format-enforcer lets it through, llguidance stops it
#   multipleOf: outlines-core lets it through, lm-format-enforcer lets it through, llguidance stops it
#   minLength: outlines-core stops it, lm-format-enforcer stops it, llguidance stops it
#   uniqueItems: outlines-core lets it through, lm-format-enforcer lets it through, llguidance refuses the schema
#   contains: outlines-core lets it through, lm-format-enforcer lets it through, llguidance refuses the schema
#   not: outlines-core lets it through, lm-format-enforcer lets it through, llguidance refuses the schema
#   propertyNames: outlines-core lets it through, lm-format-enforcer lets it through, llguidance refuses the schema
#   dependentRequired: outlines-core lets it through, lm-format-enforcer lets it through, llguidance refuses the schema
#   if: outlines-core lets it through, lm-format-enforcer lets it through, llguidance refuses the schema
#   allOf: outlines-core lets it through, lm-format-enforcer stops it, llguidance stops it
#   allOf, for a text that fits: outlines-core stops it, lm-format-enforcer lets it through, llguidance lets it through
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check outlines-core==0.2.14 lm-format-enforcer==0.11.3 llguidance==1.9.1 \
    jsonschema==4.26.0 2>log || { cat log; exit 1; }
cat >keywords.py <<'PY'
import json, logging, re
import jsonschema, llguidance, outlines_core
from llguidance import LLMatcher, LLTokenizer

logging.disable()  # lm-format-enforcer says that numpy is missing
import lmformatenforcer

NUMBER = {"type": "integer"}
NUMBERS = {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}}
CASES = {  # a schema, and a text that it forbids
    "minimum": ({"type": "integer", "minimum": 0}, "-3"),
    "multipleOf": ({"type": "integer", "multipleOf": 5}, "7"),
    "minLength": ({"type": "string", "minLength": 2}, '"a"'),
    "uniqueItems": ({"type": "array", "items": NUMBER, "uniqueItems": True}, "[1,1]"),
    "contains": ({"type": "array", "items": NUMBER, "contains": {"const": 1}}, "[2]"),
    "not": ({"type": "string", "not": {"const": "x"}}, '"x"'),
    "propertyNames": ({"type": "object", "propertyNames": {"pattern": "^x"}, "additionalProperties": NUMBER}, '{"y":1}'),
    "dependentRequired": ({**NUMBERS, "dependentRequired": {"a": ["b"]}}, '{"a":1}'),
    "if": ({**NUMBERS, "if": {"required": ["a"]}, "then": {"required": ["b"]}}, '{"a":1}'),
    "allOf": ({"allOf": [{**NUMBERS, "required": ["a"]}, {**NUMBERS, "required": ["b"]}]}, '{"a":1,"b":2}{"a":1,"b":2}'),
}


def with_outlines(schema):
    pattern = re.compile(outlines_core.json_schema.build_regex_from_schema(json.dumps(schema)))
    return lambda text: pattern.fullmatch(text) is not None


def with_lm_format_enforcer(schema):
    start = lmformatenforcer.JsonSchemaParser(schema)

    def takes(text):
        parser = start
        for character in text:
            if character not in parser.get_allowed_characters():
                return False
            parser = parser.add_character(character)
        return parser.can_end()

    return takes


def with_llguidance(schema):
    tokens = LLTokenizer("byte")
    grammar = LLMatcher.grammar_from_json_schema(schema)
    if error := LLMatcher.validate_grammar(grammar, tokens):
        raise ValueError(error)

    def takes(text):
        matcher = LLMatcher(tokens, grammar)
        wanted = list(text.encode())
        return matcher.validate_tokens(wanted) == len(wanted) and matcher.consume_tokens(wanted) and matcher.is_accepting()

    return takes


def outcome(library, schema, text):
    try:
        takes = library(schema)
    except Exception:
        return "refuses the schema"
    try:
        return "lets it through" if takes(text) else "stops it"
    except Exception:
        return "fails at the text"


def forbidden(schema, text):
    try:
        return not jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))
    except json.JSONDecodeError:
        return True


libraries = {"outlines-core": with_outlines, "lm-format-enforcer": with_lm_format_enforcer, "llguidance": with_llguidance}


def show(name, schema, text):
    print(f"{name}:", ", ".join(f"{library} {outcome(check, schema, text)}" for library, check in libraries.items()))


for library in libraries.values():  # each can tell a number from a text
    assert [outcome(library, NUMBER, text) for text in ("12", '"a"')] == ["lets it through", "stops it"]
for keyword, (schema, text) in CASES.items():
    jsonschema.Draft202012Validator.check_schema(schema)
    assert forbidden(schema, text)
    show(keyword, schema, text)
show("allOf, for a text that fits", CASES["allOf"][0], '{"a":1,"b":2}')
PY
v/bin/python keywords.py | tee seen
diff seen - <<'TEXT'
minimum: outlines-core lets it through, lm-format-enforcer lets it through, llguidance stops it
multipleOf: outlines-core lets it through, lm-format-enforcer lets it through, llguidance stops it
minLength: outlines-core stops it, lm-format-enforcer stops it, llguidance stops it
uniqueItems: outlines-core lets it through, lm-format-enforcer lets it through, llguidance refuses the schema
contains: outlines-core lets it through, lm-format-enforcer lets it through, llguidance refuses the schema
not: outlines-core lets it through, lm-format-enforcer lets it through, llguidance refuses the schema
propertyNames: outlines-core lets it through, lm-format-enforcer lets it through, llguidance refuses the schema
dependentRequired: outlines-core lets it through, lm-format-enforcer lets it through, llguidance refuses the schema
if: outlines-core lets it through, lm-format-enforcer lets it through, llguidance refuses the schema
allOf: outlines-core lets it through, lm-format-enforcer stops it, llguidance stops it
allOf, for a text that fits: outlines-core stops it, lm-format-enforcer lets it through, llguidance lets it through
TEXT
