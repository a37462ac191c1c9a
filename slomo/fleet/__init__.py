"""Many hosts and many servers: mixes in bulk, models shared by many, campaigns over hosts; the engines are others'."""
