"""The service's host, if it may be acted upon: enforcement, control loops, RMD's pools."""
