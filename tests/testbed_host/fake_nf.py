"""A stand-in for a network function: prints statistics, and misbehaves on request. It uses hardly any CPU."""

import json
import os
import signal
import subprocess
import sys
import time

RATE_MPPS = 5.0


def say(**fields: object) -> None:
    """Print one JSON line."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def serve(mode: str) -> None:
    """Print statistics for ever, or until the misbehaviour begins."""
    started = last = time.monotonic()
    packets = 0.0
    while True:
        time.sleep(0.01)
        now = time.monotonic()
        packets, last = packets + RATE_MPPS * 1e6 * (now - last), now
        say(event="interval", time_s=now - started, packets=round(packets), latency={"p50": 2000, "p99": 9000})
        if mode == "flood":
            sys.stderr.write("x" * 100 + "\n")
            sys.stdout.write(("y" * 1000 + "\n") * 300)
        if mode == "dies" and now - started > 0.4:
            sys.exit(7)
        if mode == "goes-silent" and now - started > 0.3:
            time.sleep(3600)


def speak_garbage() -> None:
    """Print what looks like statistics and is none."""
    os.write(1, bytes(range(256)) * 40 + b"\n{not json\n[1]\n")
    say(event="ready")
    while True:
        time.sleep(0.01)
        sys.stdout.write('{"event":"interval","packets":"many"}\n{"event":"interval"}\n\\x00\n')
        sys.stdout.flush()


def main(mode: str) -> None:
    """Behave as `mode` says."""
    if mode == "crash":
        sys.exit("no memory for my tables")
    if mode in ("stubborn", "stays"):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    if mode == "escapes":
        subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(3600)"], start_new_session=True)
    if mode == "hang":
        time.sleep(3600)
    if mode == "garbage":
        speak_garbage()
    say(event="ready")
    if mode == "stays":  # whoever prints ends when nobody reads any more
        time.sleep(3600)
    serve(mode)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "good")
