"""How large the builds are."""
