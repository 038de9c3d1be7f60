"""Sweeps with faults at random moments: `python -m tests.chaos --runs 30`."""
