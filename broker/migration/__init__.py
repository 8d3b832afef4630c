"""Carrying decisions out: land, verify, hand over, release. Level-triggered over rows; no workflow engine."""
