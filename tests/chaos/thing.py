"""The grandchild of every run: it stands for the real thing that a target is, and notes when it is worked on.

It runs alone (`python -I -S thing.py FOLDER TARGET RUN SECONDS STATE`) and knows nothing of the product. Each line is
one write with O_APPEND, so the order of the lines is the order of what happened. It holds a lock of its own on the
thing, which the kernel gives back at its death and not a moment earlier: who finds it held says so (`clash`).
"""

import fcntl
import os
import sys
import time

BEAT_SECONDS = 0.05


def main(folder: str, target: str, run: str, seconds: float, state: str) -> None:
    log = os.open(f"{folder}/runs.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(word: str, more: str = "") -> None:
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        os.write(log, f"{word} {target} {run} {os.getpid()} {now}{more}\n".encode())

    note("start")
    thing = os.open(f"{folder}/things/{target.replace('/', '-')}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(thing, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note("clash")
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, BEAT_SECONDS))
        note("beat")
    before = os.pread(thing, 4096, 0).decode()
    if before != state:
        os.ftruncate(thing, 0)
        os.pwrite(thing, state.encode(), 0)
    note("stop", f" {state}")
    sys.stdout.write("unchanged\n" if before == state else "changed\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), sys.argv[5])
