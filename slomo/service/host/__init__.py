"""Changes that the service may make on its own machine: settings, control loops, RMD's pools."""
