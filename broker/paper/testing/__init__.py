"""Tests of policies: ``*.test.yaml`` files, read, played and judged."""
