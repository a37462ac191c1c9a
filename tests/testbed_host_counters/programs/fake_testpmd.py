"""Stands in for `dpdk-testpmd`: prints its statistics again and again, or says why it cannot."""

# ruff: noqa: T201
import os
import sys
import time

BLOCK = """
Port statistics ====================================
  ######################## NIC statistics for port {port}  ########################
  RX-packets: {received}     RX-missed: 0          RX-bytes:  0
  RX-errors: 0
  RX-nombuf:  0
  TX-packets: {sent}   TX-errors: 0          TX-bytes:  0

  Throughput (since last show)
  Rx-pps:      2000000          Rx-bps:            0
  Tx-pps:      3000000          Tx-bps:            0
  ############################################################################"""


def main() -> int:
    """Run."""
    if os.environ.get("FAKE_MODE") == "broken":
        sys.stderr.write("EAL: Unable to parse device 'net_nonsense0'\nEAL: Error - exiting with code: 1\n")
        return 1
    for number in range(10_000):
        for port in (0, 1):
            print(BLOCK.format(port=port, received=100 * port + number, sent=200 * port + number), flush=True)
        time.sleep(0.02)
    return 0


if __name__ == "__main__":
    sys.exit(main())
