// Stateless firewall. These rules are an example: `python make.py firewall --entries 500` prints a long list.
//
// click --dpdk -l CORE -n 1 --in-memory -m 400 --no-pci --file-prefix=NAME \
//   --vdev 'net_pcap0,rx_pcap=FILE,infinite_rx=1' -- firewall.click [CS=PORT]
// Throughput: handler c.count on the control socket (difference over your own clock), or DPDK telemetry.

define($CS 7001)
DPDKInfo(NB_MBUF 131071, MBUF_CACHE_SIZE 512)  // infinite_rx needs more buffers than the capture has frames
ControlSocket(TCP, $CS)
fd :: FromDPDKDevice(0, BURST 32, PROMISC true)
td :: ToDPDKDevice(0, BLOCKING false)
c  :: AverageCounter

// table begin
fw :: IPFilter(
	deny src net 203.0.113.0/24 && dst port 53,
	deny src net 198.51.100.0/24 && dst port 80,
	allow all);
// table end

fd -> c -> MarkIPHeader(14) -> Strip(14) -> CheckIPHeader(CHECKSUM false) -> fw -> Unstrip(14) -> td
