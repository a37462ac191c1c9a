"""Making the runs: in order, stored, resumed."""
