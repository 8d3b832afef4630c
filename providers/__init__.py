"""The clouds, one folder each, behind `broker.core.ports.Provider`. Imports `broker.core` and nothing else of ours."""
