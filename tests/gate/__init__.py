"""The parts of tests/run.py: what it installs, what it builds, its suites, how it counts, and how it runs a failed test again."""
