"""Plays a policy over time without renting anything: prices and stock as series, a job on paper, one loop."""
