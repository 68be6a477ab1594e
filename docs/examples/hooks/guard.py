#!/usr/bin/env python3
"""Looks at tool calls before they are made, and answers on its standard output.

    [[hooks]]
    name = "guard"
    on = "before_tool_call"
    command = ["python3", "/etc/belay/hooks/guard.py"]
    tools = ["write_file", "run_*"]

A file outside of drafts/ is not written; a command gets a time limit unless it has one; everything else goes on.
"""

import json
import sys

LONGEST_S = 60

event = json.load(sys.stdin)
tool = event["data"]["tool"]
arguments = event["data"]["arguments"]

if tool == "write_file" and not str(arguments.get("path", "")).startswith("drafts/"):
    answer = {"refuse": "files are written in drafts/ only; choose a path there"}
elif tool == "run_command" and "timeout_s" not in arguments:
    answer = {"change": {"arguments": {**arguments, "timeout_s": LONGEST_S}}}
else:
    answer = {"continue": True}

json.dump(answer, sys.stdout)
