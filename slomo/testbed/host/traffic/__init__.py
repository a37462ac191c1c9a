"""Control traffic generators (replayed captures, testpmd, Pktgen, TRex), on this machine or another."""
