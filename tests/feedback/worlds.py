"""Ten small environments in which an agent is in a loop, one for each kind, each with a way out.

A world has tools, a script that loops, and a goal: the call that leads out of the loop. The script plays the model until a stop
rule strikes; the local model plays on from there.
"""

import json


def tool(name, description, **parameters):
    """A tool with parameters that are short texts."""
    texts = {key: {"type": "string", "maxLength": 120, "description": about} for key, about in parameters.items()}
    schema = {"type": "object", "properties": texts, "required": list(texts), "additionalProperties": False}
    return {"name": name, "description": description, "inputSchema": schema}


class World:
    """One environment. `loop` gives the n-th call of the script, `answers` the result of each call and whether it is an error."""

    def __init__(self, name, task, tools, loop, answers, goal):
        self.name, self.task, self.tools, self.loop, self.answer, self.goal = name, task, tools, loop, answers, goal
        self.reset()

    def reset(self):
        self.calls = []

    def call(self, name, arguments):
        """Carries out a call. Returns its text and whether it failed."""
        text, failed = self.answer(len(self.calls), name, arguments)
        self.calls.append((name, json.dumps(arguments, sort_keys=True), text))
        return text, failed

    def looping(self):
        """The results that the loop has given until now."""
        return {text for _, _, text in self.calls}


def ok(text):
    return text, False


def by_name(**texts):
    """The result of each tool, whatever its arguments. A text that begins with "!" is an error."""
    return lambda n, name, arguments: (texts[name].lstrip("!"), texts[name].startswith("!"))


def alternate(*calls):
    return lambda n: calls[n % len(calls)]


def dump(n):
    return "\n".join(f"case {k}: expected {k * 3}, got 0" for k in range(6))


WORDS = "harbour anchor lantern compass sailor captain treasure island dolphin lighthouse".split()


def guess(n, name, arguments):
    if name == "read_rules":
        return ok("The code is the name of the first ship: aurora.")
    right = arguments.get("code", "").lower() == "aurora"
    return ok("The safe is open.") if right else ok("Access denied: the code is wrong.")


def cycle(n, name, arguments):
    return ok({"read_order": "order 7: waiting for stock", "read_stock": "stock of item 3: 0", "order_stock": "5 items ordered"}[name])


def solve(n, name, arguments):
    return ok({"edit_file": "edited lib/solve.py", "run_solver": dump(n), "find_running_file": "The solver runs build/solve.py."}[name])


def oscillate(n, name, arguments):
    return ok("written") if name == "write_setting" else ok("The test needs mode=b, the server needs mode=a: use mode=both.")


WORLDS = [
    World(
        "same_call", "Find out why the build fails.",
        [tool("read_summary", "Reads the summary of the build."), tool("read_compiler_output", "Reads the output of the compiler.")],
        lambda n: ("read_summary", {}),
        by_name(read_summary="Build started.\nBuild failed. See the output of the compiler.", read_compiler_output="main.c:3: missing semicolon"),
        "read_compiler_output",
    ),
    World(
        "varied_arguments", "Find the table that holds the customers.",
        [tool("search_tables", "Searches tables by a word.", word="the word"), tool("list_all_tables", "Lists every table.")],
        lambda n: ("search_tables", {"word": "customers " + "abcdefghijklmnopqrstuvwxyz"[n % 26]}),
        by_name(search_tables="no tables", list_all_tables="t_0017 (persons who buy), t_0018 (invoices)"),
        "list_all_tables",
    ),
    World(
        "cycle", "Get order 7 shipped.",
        [tool("read_order", "Reads the order."), tool("read_stock", "Reads the stock."), tool("order_stock", "Orders new stock.")],
        alternate(("read_order", {}), ("read_stock", {})),
        cycle, "order_stock",
    ),
    World(
        "guessing", "Open the safe.",
        [tool("open_safe", "Tries a code word.", code="the word"), tool("read_rules", "Reads the rules of the codes.")],
        lambda n: ("open_safe", {"code": WORDS[n % len(WORDS)]}),
        guess, "read_rules",
    ),
    World(
        "edit_run", "Make the solver print the expected numbers.",
        [
            tool("edit_file", "Replaces a line in lib/solve.py.", line="the new line"), tool("run_solver", "Runs the solver."),
            tool("find_running_file", "Shows which file the solver runs."),
        ],
        alternate(("edit_file", {"line": "x = a + 3"}), ("run_solver", {})),
        solve, "find_running_file",
    ),
    World(
        "debugger", "Find out why the program crashes.",
        [tool("debugger_run", "Runs the program in the debugger."), tool("debugger_backtrace", "Shows the stack."), tool("read_source", "Reads the source code.")],
        alternate(("debugger_run", {}), ("debugger_backtrace", {})),
        by_name(debugger_run="SIGSEGV in main", debugger_backtrace="#0 main ()", read_source="3: char *p = 0; 4: *p = 1;"),
        "read_source",
    ),
    World(
        "dead_environment", "List the files of the project.",
        [tool("run_command", "Runs a command in the container.", command="the command"), tool("start_container", "Starts the container.")],
        lambda n: ("run_command", {"command": ["ls", "pwd", "ls -l", "ls /work", "find .", "ls -a", "tree", "dir"][n % 8]}),
        by_name(run_command="Error: the container is not running", start_container="The container runs."),
        "start_container",
    ),
    World(
        "growing_arguments", "Find the notes about the harbour.",
        [tool("search_notes", "Searches notes by words.", query="the words"), tool("list_notes", "Lists every note.")],
        lambda n: ("search_notes", {"query": " ".join("harbour notes plan map ship crane dock tide rope sail quay pier buoy".split()[: n + 2])}),
        by_name(search_notes="no results", list_notes="1: port of Hamburg, 2: garden"),
        "list_notes",
    ),
    World(
        "polling", "Get the report of job 7.",
        [tool("get_job_status", "Reads the state of job 7."), tool("start_worker", "Starts a worker for the queue.")],
        lambda n: ("get_job_status", {}),
        by_name(get_job_status="queued, no worker", start_worker="The worker has finished job 7."),
        "start_worker",
    ),
    World(
        "oscillating_writes", "Set the mode so that the test and the server work.",
        [tool("write_setting", "Writes the mode.", mode="the mode"), tool("read_requirements", "Reads what the test and the server need.")],
        lambda n: ("write_setting", {"mode": "ab"[n % 2]}),
        oscillate, "read_requirements",
    ),
]
