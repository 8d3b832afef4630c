"""The clouds, one folder each, behind `broker.core.ports.Provider`. Imports of ours only `broker.core` and `broker.textfile`."""
