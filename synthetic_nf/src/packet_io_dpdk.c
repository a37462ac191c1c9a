/* Packets by DPDK: any Ethernet port it knows, or preloaded frames copied into mbufs where there is no port. */
#include "message.h"
#include "packet_io.h"
#include "pcap_file.h"

#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DESCRIPTORS 1024
#define PORTS_MOST 2

struct packet_io {
	struct rte_mempool *pool;
	uint16_t ports[PORTS_MOST];
	unsigned port_count; /* 0: preloaded frames */
	unsigned turn;       /* port to ask next */
	struct traffic traffic;
	uint32_t next_frame;
	uint64_t limit;
	FILE *capture;
	char source[RTE_ETH_NAME_MAX_LEN * PORTS_MOST];
};

/* Buffers come back last, are used last (ring, no cache): the pool's size is the footprint, as in ResQ (NSDI'18). */
static void create_pool(struct packet_io *io, const struct options *options, unsigned number, uint32_t held)
{
	char name[RTE_MEMPOOL_NAMESIZE];
	uint32_t buffers = (uint32_t)knob_integer(options, KNOB_PACKET_BUFFERS), burst = (uint32_t)knob_integer(options, KNOB_BURST);

	buffers = held + (buffers < burst ? burst : buffers);

	snprintf(name, sizeof(name), "buffers%u", number);
	io->pool = rte_pktmbuf_pool_create_by_ops(name, buffers, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY, "ring_sp_sc");
	if (!io->pool)
		fail(EXIT_TESTBED, "raise --memory-mib or lower --packet-buffers", "no memory for %u packet buffers: %s",
		     buffers, rte_strerror(rte_errno));
}

/* The descriptors of a real port hold buffers too: a quarter of them each way at most. */
static uint16_t descriptors(const struct options *options)
{
	uint64_t quarter = knob_integer(options, KNOB_PACKET_BUFFERS) / 4;

	return (uint16_t)(quarter < DESCRIPTORS ? quarter : DESCRIPTORS);
}

static void start_port(struct packet_io *io, const struct options *options, uint16_t port)
{
	struct rte_eth_conf configuration = { 0 };
	struct rte_eth_dev_info about;
	uint16_t receive = descriptors(options), send = descriptors(options);
	int result = rte_eth_dev_info_get(port, &about);

	if (result == 0)
		configuration.txmode.offloads = about.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
	if (result == 0)
		result = rte_eth_dev_configure(port, 1, 1, &configuration);
	if (result == 0)
		result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &receive, &send);
	if (result == 0)
		result = rte_eth_rx_queue_setup(port, 0, receive, (unsigned)rte_eth_dev_socket_id(port), NULL, io->pool);
	if (result == 0)
		result = rte_eth_tx_queue_setup(port, 0, send, (unsigned)rte_eth_dev_socket_id(port), NULL);
	if (result == 0)
		result = rte_eth_dev_start(port);
	if (result != 0)
		fail(EXIT_TESTBED, "a capture in --vdev needs more --packet-buffers than it has frames; --pcap sees to that",
		     "DPDK port %u does not start: %s", port, rte_strerror(-result));
	rte_eth_promiscuous_enable(port); /* not every port can, and none of ours needs it */
}

/* One port per instance; a single instance may join two ports. */
static void choose_ports(struct packet_io *io, const struct options *options, unsigned number)
{
	unsigned total = rte_eth_dev_count_avail(), instances = (unsigned)knob_integer(options, KNOB_INSTANCES);
	uint16_t port;

	if (total > 0 && total < instances)
		fail(EXIT_USAGE, "give one --vdev per instance", "%u instances share %u ports", instances, total);
	RTE_ETH_FOREACH_DEV(port)
		if ((instances == 1 && io->port_count < PORTS_MOST) || port == number)
			io->ports[io->port_count++] = port;
}

static void load_frames(struct packet_io *io, const struct options *options, unsigned number)
{
	uint32_t room = RTE_MBUF_DEFAULT_BUF_SIZE - RTE_PKTMBUF_HEADROOM;

	if (options->pcap)
		io->traffic = pcap_read(options->pcap);
	else
		io->traffic = traffic_generate((uint32_t)options->flows, (uint32_t)knob_integer(options, KNOB_PACKET_SIZE_B),
					       (uint64_t)options->seed + number);
	for (uint32_t i = 0; i < io->traffic.count; i++)
		if (io->traffic.frames[i].length > room)
			io->traffic.frames[i].length = room;
	if (options->tx_pcap)
		io->capture = pcap_create(options->tx_pcap);
	snprintf(io->source, sizeof(io->source), "preloaded");
}

static uint32_t receive_preloaded(struct packet_io *io, struct rte_mbuf **mbufs, uint32_t most)
{
	if (rte_pktmbuf_alloc_bulk(io->pool, mbufs, most) != 0)
		return 0;
	for (uint32_t i = 0; i < most; i++) {
		const struct frame *frame = &io->traffic.frames[io->next_frame];

		memcpy(rte_pktmbuf_append(mbufs[i], (uint16_t)frame->length), io->traffic.bytes + frame->offset, frame->length);
		io->next_frame = io->next_frame + 1 == io->traffic.count ? 0 : io->next_frame + 1;
	}
	return most;
}

/* Frames that go round and round where a port returns what is sent (net_ring, a loop-back cable). */
static void send_first(struct packet_io *io, const struct options *options, unsigned number)
{
	struct rte_mbuf *mbuf;
	uint32_t wanted = (uint32_t)options->tx_first;

	if (wanted == 0)
		return;
	io->traffic = traffic_generate((uint32_t)options->flows, (uint32_t)knob_integer(options, KNOB_PACKET_SIZE_B),
				       (uint64_t)options->seed + number);
	for (uint32_t i = 0; i < wanted; i++)
		if (receive_preloaded(io, &mbuf, 1) == 0 || rte_eth_tx_burst(io->ports[0], 0, &mbuf, 1) == 0)
			fail(EXIT_TESTBED, "the port's queue may be shorter, or --packet-buffers fewer",
			     "only %u of %u frames of --tx-first were sent", i, wanted);
}

static uint32_t captured_frames(const struct options *options)
{
	struct traffic traffic = { 0 };

	if (options->pcap) {
		traffic = pcap_read(options->pcap);
		traffic_release(&traffic);
	}
	return traffic.count;
}

struct packet_io *packet_io_open(const struct options *options, unsigned number)
{
	struct packet_io *io = allocate(1, sizeof(*io));
	uint32_t captured = captured_frames(options);
	char name[RTE_ETH_NAME_MAX_LEN];

	choose_ports(io, options, number);
	if (strcmp(options->replay, "once") == 0)
		io->limit = captured;
	if (io->port_count && options->tx_pcap && !options->pcap)
		fail(EXIT_USAGE, "use --vdev net_pcap0,rx_pcap=IN,tx_pcap=OUT", "--tx-pcap goes with --pcap, not with --vdev");
	create_pool(io, options, number, io->port_count ? captured : 0); /* net_pcap keeps every frame in a buffer of its own */
	if (io->port_count == 0)
		load_frames(io, options, number);
	for (unsigned i = 0; i < io->port_count; i++) {
		size_t used = strlen(io->source);

		start_port(io, options, io->ports[i]);
		rte_eth_dev_get_name_by_port(io->ports[i], name);
		snprintf(io->source + used, sizeof(io->source) - used, "%s%s", i ? "," : "", name);
	}
	if (io->port_count)
		send_first(io, options, number);
	return io;
}

void packet_io_close(struct packet_io *io)
{
	for (unsigned i = 0; i < io->port_count; i++) {
		rte_eth_dev_stop(io->ports[i]);
		rte_eth_dev_close(io->ports[i]);
	}
	if (io->capture && fclose(io->capture) != 0)
		fail(EXIT_TESTBED, "is the disk full?", "cannot finish the capture of sent packets");
	rte_mempool_free(io->pool);
	traffic_release(&io->traffic);
	free(io);
}

/* Ask the ports in turn until one has packets. */
static uint32_t receive_by_port(struct packet_io *io, struct rte_mbuf **mbufs, uint32_t most, uint16_t *port)
{
	uint32_t count = 0;

	for (unsigned tries = 0; count == 0 && tries < io->port_count; tries++) {
		*port = io->ports[io->turn];
		count = rte_eth_rx_burst(*port, 0, mbufs, (uint16_t)most);
		io->turn = io->turn + 1 == io->port_count ? 0 : io->turn + 1;
	}
	return count;
}

uint32_t packet_io_receive(struct packet_io *io, struct packet *packets, uint32_t most)
{
	struct rte_mbuf *mbufs[BURST_MOST];
	uint16_t port = 0;
	uint32_t count = io->port_count ? receive_by_port(io, mbufs, most, &port) : receive_preloaded(io, mbufs, most);

	for (uint32_t i = 0; i < count; i++)
		packets[i] = (struct packet){ .data = rte_pktmbuf_mtod(mbufs[i], uint8_t *),
					      .length = rte_pktmbuf_data_len(mbufs[i]), .handle = mbufs[i], .port = port };
	return count;
}

/* Frames without a port go to the capture, if any, and then back to the pool. */
static uint32_t send_preloaded(struct packet_io *io, struct rte_mbuf **mbufs, uint32_t count)
{
	for (uint32_t i = 0; io->capture && i < count; i++)
		pcap_write(io->capture, rte_pktmbuf_mtod(mbufs[i], uint8_t *), rte_pktmbuf_data_len(mbufs[i]));
	rte_pktmbuf_free_bulk(mbufs, count);
	return count;
}

static uint32_t send_by_port(const struct packet_io *io, struct rte_mbuf **mbufs, uint32_t count, uint16_t arrived)
{
	uint16_t port = io->port_count == 2 ? (uint16_t)(io->ports[0] == arrived ? io->ports[1] : io->ports[0]) : arrived;
	uint16_t sent = rte_eth_tx_burst(port, 0, mbufs, (uint16_t)count);

	if (sent < count)
		rte_pktmbuf_free_bulk(mbufs + sent, count - sent);
	return sent;
}

uint32_t packet_io_send(struct packet_io *io, struct packet *packets, uint32_t count)
{
	struct rte_mbuf *mbufs[BURST_MOST];
	uint32_t wanted = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (packets[i].verdict == VERDICT_SEND)
			mbufs[wanted++] = packets[i].handle;
		else
			rte_pktmbuf_free(packets[i].handle);
	}
	if (wanted == 0)
		return 0;
	return io->port_count ? send_by_port(io, mbufs, wanted, packets[0].port) : send_preloaded(io, mbufs, wanted);
}

uint64_t packet_io_missed(const struct packet_io *io)
{
	struct rte_eth_stats statistics;
	uint64_t missed = 0;

	for (unsigned i = 0; i < io->port_count; i++)
		if (rte_eth_stats_get(io->ports[i], &statistics) == 0)
			missed += statistics.imissed + statistics.rx_nombuf;
	return missed;
}

uint64_t packet_io_limit(const struct packet_io *io)
{
	return io->limit;
}

const char *packet_io_source(const struct packet_io *io)
{
	return io->source;
}
