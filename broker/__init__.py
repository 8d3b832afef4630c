"""GPU capacity broker: rents GPU capacity where it is cheapest and obtainable, and moves jobs there."""

__version__ = "0.1.0"
