// IPsec gateway: ESP tunnel, AES and HMAC-SHA1. Keys are 16 raw characters.
//
// click --dpdk -l CORE -n 1 --in-memory -m 400 --no-pci --file-prefix=NAME \
//   --vdev 'net_pcap0,rx_pcap=FILE,infinite_rx=1' -- ipsec.click [CS=PORT]
// Throughput: handler c.count on the control socket (difference over your own clock), or DPDK telemetry.

define($CS 7001)
DPDKInfo(NB_MBUF 131071, MBUF_CACHE_SIZE 512)  // infinite_rx needs more buffers than the capture has frames
ControlSocket(TCP, $CS)
fd :: FromDPDKDevice(0, BURST 32, PROMISC true)
td :: ToDPDKDevice(0, BLOCKING false)
c  :: AverageCounter

rt :: RadixIPsecLookup(192.168.0.1/32 0,
	0.0.0.0/0 192.168.0.2 1 234 0123456789abcdef fedcba9876543210 300 64);

fd -> c -> Strip(14) -> CheckIPHeader(CHECKSUM false) -> GetIPAddress(16) -> rt;
rt[0] -> Discard;
rt[1] -> IPsecESPEncap -> IPsecAuthHMACSHA1(0) -> IPsecAES(1) -> IPsecEncap(50)
	-> EtherEncap(0x0800, 02:00:00:00:00:01, 02:00:00:00:00:02) -> td
