"""Access to the service's host, where allowed: enforcement, control loops, RMD's pools."""
