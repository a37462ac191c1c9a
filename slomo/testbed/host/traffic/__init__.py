"""Where packets come from: one interface to replayed captures, testpmd, Pktgen and TRex, here or on another machine."""
