// Nothing but receiving and sending: what the other configurations are compared with.
//
// click --dpdk -l CORE -n 1 --in-memory -m 400 --no-pci --file-prefix=NAME \
//   --vdev 'net_pcap0,rx_pcap=FILE,infinite_rx=1' -- forward.click [CS=PORT]
// Throughput: handler c.count on the control socket (difference over your own clock), or DPDK telemetry.

define($CS 7001)
DPDKInfo(NB_MBUF 131071, MBUF_CACHE_SIZE 512)  // infinite_rx needs more buffers than the capture has frames
ControlSocket(TCP, $CS)
fd :: FromDPDKDevice(0, BURST 32, PROMISC true)
td :: ToDPDKDevice(0, BLOCKING false)
c  :: AverageCounter

fd -> c -> td
