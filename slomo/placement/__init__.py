"""Placement: from predictions to a cluster that keeps its SLOs, without a rack."""
