"""What the service may change on its own machine: settings, control loops, RMD's pools."""
