"""python -m conr: the program, as the command `conr` is."""
from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Becomes the program: of the package, else of the checkout."""
    here = Path(__file__).resolve().parent
    places = [here / "bin" / "conr", here.parents[1] / "build" / "conr"]
    for program in places:
        if program.is_file():
            os.execv(program, [os.fspath(program), *sys.argv[1:]])
    sys.exit(f"conr: {places[0]}: not found; pip install the package again, or run make")


if __name__ == "__main__":
    main()
