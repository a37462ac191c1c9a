"""Traffic generators: one interface to replayed captures, testpmd, Pktgen and TRex, local or remote."""
