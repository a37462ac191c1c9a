"""Commands that list, show and convert machines, network functions, datasets, models, plug-ins and schemas."""
