"""Report the state of a control loop to systemd (sd_notify(3)): ready, alive or stopping."""

import os
import socket


def notify(state: str) -> bool:
    """Send a state, such as ``"READY=1"``, to the service manager of this process; return False if there is none."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        try:
            channel.sendto(state.encode("ascii"), f"\0{address[1:]}" if address[0] == "@" else address)
        except OSError:
            return False
    return True
