// The tunable competitor on FastClick's stock element WorkPackage.
//
// click --dpdk -l CORE -n 1 --in-memory -m 400 --no-pci --file-prefix=NAME \
//   --vdev 'net_null0,size=64,copy=0' -- competitor.click S=64 N=4 [W=1] [CS=PORT]
//
// S  data_size_mib          whole MB; below 0.25 MB the element aborts; its start takes 0.3 s per MB
// N  reads_per_packet       dependent 4-byte reads; more of them mean less memory-level parallelism, so less pressure
// W  random numbers drawn   at least 1: with 0 every packet repeats the same N addresses, which stay in L1
//
// It reads only and reaches at most 1 GB/s: slomo-nf's sequential pattern presses ten times harder.

define($CS 7001, $S 64, $N 4, $W 1)
ControlSocket(TCP, $CS)
fd :: FromDPDKDevice(0, BURST 32, PROMISC true)
td :: ToDPDKDevice(0, BLOCKING false)
c  :: AverageCounter

fd -> WorkPackage(S $S, N $N, W $W) -> c -> td
