"""The table of clients: see run.py."""
