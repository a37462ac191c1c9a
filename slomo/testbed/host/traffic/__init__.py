"""Traffic generators: one interface for replayed captures, testpmd, Pktgen and TRex, on this machine or another."""
