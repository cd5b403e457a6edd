"""python -m nstf runs the program."""

import os
import subprocess
import sys

from ._program import program

if os.name == "posix":
    os.execv(program(), [program(), *sys.argv[1:]])
sys.exit(subprocess.call([program(), *sys.argv[1:]]))
