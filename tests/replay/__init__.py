"""Prices of the past through the real market and the real decisions: what is believed, and what moves."""
