"""Machines that you own: nodes are processes on this host."""
