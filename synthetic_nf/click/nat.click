// Source NAT of UDP flows with a port per flow.
//
// click --dpdk -l CORE -n 1 --in-memory -m 400 --no-pci --file-prefix=NAME \
//   --vdev 'net_pcap0,rx_pcap=FILE,infinite_rx=1' -- nat.click [CS=PORT]
// Throughput: handler c.count on the control socket (difference over your own clock), or DPDK telemetry.

define($CS 7001)
DPDKInfo(NB_MBUF 131071, MBUF_CACHE_SIZE 512)  // infinite_rx needs more buffers than the capture has frames
ControlSocket(TCP, $CS)
fd :: FromDPDKDevice(0, BURST 32, PROMISC true)
td :: ToDPDKDevice(0, BLOCKING false)
c  :: AverageCounter

rw :: UDPRewriter(pattern 192.0.2.1-192.0.2.8 1024-65535# - - 0 0,
	CAPACITY 1000000, MAPPING_CAPACITY 1000000, TIMEOUT 3600, GUARANTEE 3600);

fd -> c -> Strip(14) -> CheckIPHeader(CHECKSUM false) -> rw;
rw[0] -> EtherEncap(0x0800, 02:00:00:00:00:01, 02:00:00:00:00:02) -> td
