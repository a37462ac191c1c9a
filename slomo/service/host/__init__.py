"""The host a service runs on, where it may be acted upon: enforcement, control, RMD's pools."""
