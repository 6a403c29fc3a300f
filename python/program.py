#!/usr/bin/env python3
"""The command `conr` of the Python package: becomes the program at once, so that flags, exit codes
and signals are the program's own.  The package is found, not imported: that would load NumPy."""
import importlib.util
import os
import sys

spec = importlib.util.find_spec("conr")
if spec is None or not spec.submodule_search_locations:
    sys.exit("conr: the package conr: is not installed for this Python; pip install it again")
program = os.path.join(list(spec.submodule_search_locations)[0], "bin", "conr")
try:
    os.execv(program, [program] + sys.argv[1:])
except OSError as e:
    sys.exit(f"conr: {program}: {e.strerror}; pip install the package again")
