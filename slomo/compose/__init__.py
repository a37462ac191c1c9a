"""Combine the counters of several competitors, and the throughput that several resources allow."""
