"""Deterministic simulation: the real core and shell on real SQLite, in virtual time, against a world that lies and breaks.

One seed is one history; `docs/internals/migration.md` says what is proven by it, and what is not.
"""
