// A competitor of stock elements only: net_pcap copies large frames through a first-in first-out pool of buffers.
//
// click --dpdk -l CORE -n 1 --in-memory -m 400 --no-pci --file-prefix=NAME \
//   --vdev 'net_pcap0,rx_pcap=FILE_OF_1500_B_FRAMES,infinite_rx=1' -- copier.click [B=49151] [CS=PORT]
//
// Its knobs are the number of frames in the capture, their size, and B, the number of buffers (packet_buffers).
// MBUF_CACHE_SIZE 0 makes all buffers take turns; with a cache the few that were freed last are used again.

define($CS 7001, $B 49151)
DPDKInfo(NB_MBUF $B, MBUF_CACHE_SIZE 0)
ControlSocket(TCP, $CS)
fd :: FromDPDKDevice(0, BURST 32, PROMISC true)
td :: ToDPDKDevice(0, BLOCKING false)
c  :: AverageCounter

fd -> c -> td
