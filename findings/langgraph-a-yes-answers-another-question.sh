#!/usr/bin/env bash
# Guess: a run of LangGraph that waits for an answer (`interrupt`) keeps its question until somebody answers it. New
# input for that thread is an error, or it waits. An answer to a question that is no longer open, or to a thread that
# has none, is an error.
# Seen with langgraph 1.2.24 for Python and @langchain/langgraph 1.7.3 for Node: new input begins the graph anew, and
# its question replaces the open one. A "yes" that was meant for the first question then answers the second one. With
# the id of the first question the "yes" is dropped, and the answer of the call shows the second question. An answer
# behind the end, and one for a thread that nobody has begun, are no errors either. For the latter, Python begins the
# graph without input and asks about nothing. A program must compare the id of the question that a person saw with the
# id of the open one.
# Output seen (Python 3.11, Node 20.20.2), open questions and what is done, after each call:
#   Python: tea: asks "order tea?", done none
#   Python: car: asks "order car?", done none
#   Python: "yes" with the id of the first question: asks "order car?", done none
#   Python: "yes" without an id: asks nothing, done car: yes
#   Python: "no" behind the end: asks nothing, done car: yes
#   Python: "yes" to a thread that is not there: asks "order nothing?", done none
#   Node: tea: asks "order tea?", done none
#   Node: car: asks "order car?", done none
#   Node: "yes" with the id of the first question: asks "order car?", done none
#   Node: "yes" without an id: asks nothing, done car: yes
#   Node: "no" behind the end: asks nothing, done car: yes
#   Node: "yes" to a thread that is not there: asks nothing, done none
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts @langchain/langgraph@1.7.3 @langchain/core@1.4.0 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check langgraph==1.2.24
cat >ask.py <<'PY'
import operator
from typing import Annotated, TypedDict
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt


class State(TypedDict):
    wishes: Annotated[list, operator.add]
    done: Annotated[list, operator.add]


def order(state):
    wish = state["wishes"][-1] if state["wishes"] else "nothing"
    return {"done": [f"{wish}: {interrupt(f'order {wish}?')}"]}


graph = StateGraph(State).add_node("order", order).add_edge(START, "order").compile(checkpointer=InMemorySaver())


def show(name, given, thread="1"):
    state = graph.invoke(given, {"configurable": {"thread_id": thread}})
    questions = state.get("__interrupt__", [])
    asked = ", ".join(f'"{question.value}"' for question in questions) or "nothing"
    print(f"Python: {name}: asks {asked}, done {', '.join(state.get('done', [])) or 'none'}")
    return questions


first = show("tea", {"wishes": ["tea"]})[0].id
second = show("car", {"wishes": ["car"]})[0].id
assert first != second
show('"yes" with the id of the first question', Command(resume={first: "yes"}))
show('"yes" without an id', Command(resume="yes"))
show('"no" behind the end', Command(resume="no"))
show('"yes" to a thread that is not there', Command(resume="yes"), "2")
PY
cat >ask.js <<'JS'
import { Annotation, Command, interrupt, MemorySaver, START, StateGraph } from '@langchain/langgraph';

const list = () => Annotation({ reducer: (old, more) => old.concat(more), default: () => [] });
const order = ({ wishes }) => {
  const wish = wishes.at(-1) ?? 'nothing';
  return { done: [`${wish}: ${interrupt(`order ${wish}?`)}`] };
};
const graph = new StateGraph(Annotation.Root({ wishes: list(), done: list() }))
  .addNode('order', order)
  .addEdge(START, 'order')
  .compile({ checkpointer: new MemorySaver() });
const show = async (name, given, thread = '1') => {
  const { __interrupt__: questions = [], done = [] } = await graph.invoke(given, { configurable: { thread_id: thread } });
  const asked = questions.map(({ value }) => `"${value}"`).join(', ') || 'nothing';
  console.log(`Node: ${name}: asks ${asked}, done ${done.join(', ') || 'none'}`);
  return questions;
};
const [first] = await show('tea', { wishes: ['tea'] });
const [second] = await show('car', { wishes: ['car'] });
if (first.id === second.id) throw new Error('the questions have one id');
await show('"yes" with the id of the first question', new Command({ resume: { [first.id]: 'yes' } }));
await show('"yes" without an id', new Command({ resume: 'yes' }));
await show('"no" behind the end', new Command({ resume: 'no' }));
await show('"yes" to a thread that is not there', new Command({ resume: 'yes' }), '2');
JS
{ v/bin/python ask.py; node ask.js; } | tee seen
diff seen - <<'TEXT'
Python: tea: asks "order tea?", done none
Python: car: asks "order car?", done none
Python: "yes" with the id of the first question: asks "order car?", done none
Python: "yes" without an id: asks nothing, done car: yes
Python: "no" behind the end: asks nothing, done car: yes
Python: "yes" to a thread that is not there: asks "order nothing?", done none
Node: tea: asks "order tea?", done none
Node: car: asks "order car?", done none
Node: "yes" with the id of the first question: asks "order car?", done none
Node: "yes" without an id: asks nothing, done car: yes
Node: "no" behind the end: asks nothing, done car: yes
Node: "yes" to a thread that is not there: asks nothing, done none
TEXT
