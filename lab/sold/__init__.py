"""What each of the lab's clouds sells: real instance types, zones and the prices they start with, one file a cloud.

Each file has ``TYPES``, ``ZONES`` and ``listings()``; `lab.catalog` puts them together.
"""
