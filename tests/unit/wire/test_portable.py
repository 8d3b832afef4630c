"""What runs on a node: the standard library, and no syntax that Python 3.9 lacks."""

import ast
import sys
from pathlib import Path

import pytest

import broker.wire

FILES = sorted(Path(broker.wire.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_speaks_python_3_9(path):
    ast.parse(path.read_text(), feature_version=(3, 9))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_imports_the_standard_library_and_itself(path):
    for node in ast.walk(ast.parse(path.read_text())):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        for module in modules:
            assert module.split(".")[0] in sys.stdlib_module_names or module.startswith("broker.wire"), module
