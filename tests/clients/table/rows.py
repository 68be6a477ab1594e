"""The rows of the table of clients: what is installed for each, the script that judges it, and the cells that it cannot have.

A new client is a line here, a script beside this file, and a section with its lines in docs/guide/clients.md.
"""

import dataclasses
import json
import pathlib
import re

from gate.install import ANTHROPIC, LANGCHAIN, OPENAI

HERE = pathlib.Path(__file__).resolve().parent
# Judged with the rehearsal behind the daemon, and with a model that says what it got (model.py).
REHEARSED, RECORDED = ("hello", "stream", "tools", "structured", "stop", "error"), ("models", "images", "files")
COLUMNS = REHEARSED + RECORDED
# Below build/: what the gate does not install.
FOLDER = "client-table"
# Each has an environment of its own, since instructor and LlamaIndex take older versions of openai.
INSTRUCTOR = "instructor==1.17.0"
LLAMA_INDEX = "llama-index-llms-openai-like==0.8.1 llama-index-core==0.14.25"
SMOLAGENTS = "smolagents[openai]==1.26.0"
LLM = "llm==0.36"
AIDER = "aider-chat==0.86.2"
GRADIO = "gradio==6.31.0 openai==3.57.0 playwright==1.65.2"
NPM = json.loads((HERE / "package.json").read_bytes())["dependencies"]
BOTH_FACES = ("chat", "responses")


@dataclasses.dataclass(frozen=True)
class Row:
    """A client with one face of the API."""

    # The mark of its lines in the guide. A client with two faces has two rows with one mark.
    mark: str
    # `chat`, `responses`, `both` in one row, or `messages`.
    face: str
    # As people name it.
    client: str
    # The packages whose versions are shown.
    packages: tuple
    # The script beside this file. It is for Node if it ends so.
    script: str
    # For Python: requirements of pip, and their folder below build/.
    requirements: str
    folder: str
    # Column → why it cannot work, in a few words for people. The script does not judge it.
    cannot: dict = dataclasses.field(default_factory=dict)
    # Column → which part of the column's meaning the client does not have. The script judges the rest of it.
    partly: dict = dataclasses.field(default_factory=dict)
    # The script runs the lines of the guide by itself, because they serve a page, and opens that in Chromium.
    serves: bool = False
    # The argument of the script, if it is not the face.
    argument: str = ""

    @property
    def version(self):
        pins = NPM if self.script.endswith(".mjs") else dict(re.findall(r"([\w.-]+)(?:\[\w+\])?==(\S+)", self.requirements))
        return " + ".join(pins[package] for package in self.packages)


def python(mark, faces, packages, script, requirements, folder="", client="", **more):
    """The rows of a client of Python, one for each face."""
    place = folder or f"{FOLDER}/{mark}"
    return [Row(mark, face, client or " + ".join(packages), packages, script, requirements, place, **more) for face in faces]


def node(mark, faces, packages, script, **more):
    return [Row(mark, face, f"{' + '.join(packages)} (npm)", packages, script, "", "", **more) for face in faces]


NO_LIST = {"models": "it does not ask a server for its models"}
NO_SERVER_LIST = {"models": "it lists the models that it knows, and not those of its server"}
NO_TOOLS_IN_A_FORM = {**NO_LIST, "tools": "its one function is the form of the answer", "stop": "a structured answer comes in one piece"}
NO_FILES = {"files": "it has a form for pictures alone"}
TEXT_ALONE = {"tools": "it sends none", "structured": "it asks for none"}
REPEATS = {"error": "the words are shown, but it repeats each error of a stream, so its failed run is done again"}
READS_ON = {"stop": "its stop button hides the rest of an answer, and the stream is read to its end"}

ROWS = (
    *python("openai", BOTH_FACES, ("openai",), "with_openai.py", OPENAI, "clients", "openai (Python)"),
    *node("openai-npm", BOTH_FACES, ("openai",), "with_openai.mjs"),
    *python("anthropic", ("messages",), ("anthropic",), "with_anthropic.py", ANTHROPIC, "anthropic", "anthropic (Python)"),
    *python("openai-agents", BOTH_FACES, ("openai-agents",), "with_agents.py", OPENAI, "clients", cannot=NO_LIST),
    *node("ai", BOTH_FACES, ("ai", "@ai-sdk/openai"), "with_ai.mjs", cannot=NO_LIST),
    *node("ai-compatible", ("chat",), ("ai", "@ai-sdk/openai-compatible"), "with_ai.mjs", argument="compatible", cannot=NO_LIST),
    *python("langchain", BOTH_FACES, ("langchain", "langchain-openai"), "with_langchain.py", LANGCHAIN, "langchain", cannot=NO_LIST),
    *node("langchain-npm", BOTH_FACES, ("langchain", "@langchain/openai"), "with_langchain.mjs", cannot=NO_LIST),
    *python("pydantic-ai", BOTH_FACES, ("pydantic-ai-slim",), "with_pydantic_ai.py", OPENAI, "clients", cannot=NO_LIST),
    *python("instructor", ("both",), ("instructor",), "with_instructor.py", INSTRUCTOR, cannot=NO_TOOLS_IN_A_FORM),
    *python("llama-index", ("chat",), ("llama-index-llms-openai-like",), "with_llama_index.py", LLAMA_INDEX, cannot=NO_LIST),
    *python("smolagents", ("chat",), ("smolagents",), "with_smolagents.py", SMOLAGENTS, cannot={**NO_LIST, **NO_FILES}),
    *python("llm", ("chat",), ("llm",), "with_llm.py", LLM),
    *python("aider", ("chat",), ("aider-chat",), "with_aider.py", AIDER, cannot={**NO_SERVER_LIST, **TEXT_ALONE}, partly=REPEATS),
    *python("gradio", ("chat",), ("gradio",), "with_gradio.py", GRADIO, cannot={**NO_LIST, **TEXT_ALONE, **READS_ON}, serves=True),
)
