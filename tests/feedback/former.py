"""The feedback of a strike as it was before it named evidence and gave advice by kind."""

# The figures that it named in these environments.
COUNTS = {
    "same_call": 5, "varied_arguments": 8, "cycle": 4, "guessing": 4, "edit_run": 5, "debugger": 4, "dead_environment": 4,
    "growing_arguments": 12, "polling": 24, "oscillating_writes": 4,
}


def sentence(world, quote):
    """The text for the model."""
    quoted = f" (“{quote}”)"
    return (
        f"Notice: this run seems to be in a loop: tool loop{quoted}, {COUNTS[world]} times. Review what you have achieved, what "
        "blocks you, and what else could work. Do not repeat an action that gave no new result. Take a different approach, or give "
        "your final answer now with what you have and state what is missing. If this happens again, the run ends."
    )
