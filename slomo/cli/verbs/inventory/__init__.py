"""Commands that list, show and convert what there is: machines, network functions, datasets, plug-ins, this host."""
