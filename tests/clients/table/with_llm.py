"""The command llm, which the lines of the guide have configured."""

from columns import CALL, FAIL, FORECAST, SUM, column, holds, report, told_once
from commands import printed, stops, streams

LLM = ["llm", "-m", "belay"]
FUNCTIONS = 'def get_weather(city: str) -> str:\n    "The weather in a city."\n    return "rain in " + city\n'


@column
def tools():
    holds(printed([*LLM, "--functions", FUNCTIONS, CALL]), FORECAST)


@column
def structured():
    holds(printed([*LLM, "--schema", "answer str", SUM]), '391"}')


@column
def error():
    told_once(printed([*LLM, FAIL]))


@column
def stop():
    stops(LLM)


@column
def stream():
    streams(LLM)


report()
