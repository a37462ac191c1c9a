// IP router by a radix tree; the table is an example: `python make.py router_radix --entries 20000` prints a large one.
//
// click --dpdk -l CORE -n 1 --in-memory -m 400 --no-pci --file-prefix=NAME \
//   --vdev 'net_pcap0,rx_pcap=FILE,infinite_rx=1' -- router_radix.click [CS=PORT]
// Throughput: handler c.count on the control socket (difference over your own clock), or DPDK telemetry.

define($CS 7001)
DPDKInfo(NB_MBUF 131071, MBUF_CACHE_SIZE 512)  // infinite_rx needs more buffers than the capture has frames
ControlSocket(TCP, $CS)
fd :: FromDPDKDevice(0, BURST 32, PROMISC true)
td :: ToDPDKDevice(0, BLOCKING false)
c  :: AverageCounter

// table begin
rt :: RadixIPLookup(
	0.0.0.0/0 0,
	10.0.0.0/8 0,
	192.0.2.0/24 0,
	198.51.100.0/25 0);
// table end

fd -> c -> Strip(14) -> CheckIPHeader(CHECKSUM false) -> GetIPAddress(16) -> rt;
rt[0] -> DecIPTTL -> EtherEncap(0x0800, 02:00:00:00:00:01, 02:00:00:00:00:02) -> td
