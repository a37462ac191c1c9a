/*
 * Packets without DPDK: frames from a preloaded ring are copied into the next buffer, as DPDK's net_pcap does with
 * infinite_rx, so a function may rewrite them; buffers are used first in, first out.
 */
#include "packet_io.h"

#include "memory.h"
#include "message.h"
#include "pcap_file.h"

#include <stdlib.h>
#include <string.h>

#define HEADROOM 128u
#define LINE 64u

struct packet_io {
	struct traffic traffic;
	struct region buffers;
	uint32_t buffer_bytes, buffer_count;
	uint32_t next_buffer, next_frame;
	uint64_t limit;
	FILE *capture;
};

static uint32_t longest(const struct traffic *traffic)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < traffic->count; i++)
		most = traffic->frames[i].length > most ? traffic->frames[i].length : most;
	return most;
}

struct packet_io *packet_io_open(const struct options *options, unsigned number)
{
	struct packet_io *io = allocate(1, sizeof(*io));
	uint32_t burst = (uint32_t)knob_integer(options, KNOB_BURST);

	if (options->pcap)
		io->traffic = pcap_read(options->pcap);
	else
		io->traffic = traffic_generate((uint32_t)options->flows, (uint32_t)knob_integer(options, KNOB_PACKET_SIZE_B),
					       (uint64_t)options->seed + number);
	if (strcmp(options->replay, "once") == 0)
		io->limit = io->traffic.count;
	io->buffer_bytes = (HEADROOM + longest(&io->traffic) + LINE - 1) / LINE * LINE;
	io->buffer_count = (uint32_t)knob_integer(options, KNOB_PACKET_BUFFERS);
	if (io->buffer_count < burst)
		io->buffer_count = burst;
	io->buffers = region_take((size_t)io->buffer_bytes * io->buffer_count, "auto");
	if (options->tx_pcap)
		io->capture = pcap_create(options->tx_pcap);
	return io;
}

void packet_io_close(struct packet_io *io)
{
	if (io->capture && fclose(io->capture) != 0)
		fail(EXIT_TESTBED, "is the disk full?", "cannot finish the capture of sent packets");
	region_release(&io->buffers);
	traffic_release(&io->traffic);
	free(io);
}

uint32_t packet_io_receive(struct packet_io *io, struct packet *packets, uint32_t most)
{
	for (uint32_t i = 0; i < most; i++) {
		const struct frame *frame = &io->traffic.frames[io->next_frame];
		uint8_t *place = (uint8_t *)io->buffers.base + (size_t)io->next_buffer * io->buffer_bytes + HEADROOM;

		memcpy(place, io->traffic.bytes + frame->offset, frame->length);
		packets[i] = (struct packet){ .data = place, .length = frame->length };
		io->next_frame = io->next_frame + 1 == io->traffic.count ? 0 : io->next_frame + 1;
		io->next_buffer = io->next_buffer + 1 == io->buffer_count ? 0 : io->next_buffer + 1;
	}
	return most;
}

uint32_t packet_io_send(struct packet_io *io, struct packet *packets, uint32_t count)
{
	uint32_t sent = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (packets[i].verdict != VERDICT_SEND)
			continue;
		if (io->capture)
			pcap_write(io->capture, packets[i].data, packets[i].length);
		sent++;
	}
	return sent;
}

uint64_t packet_io_missed(const struct packet_io *io)
{
	(void)io;
	return 0;
}

uint64_t packet_io_limit(const struct packet_io *io)
{
	return io->limit;
}

const char *packet_io_source(const struct packet_io *io)
{
	(void)io;
	return "preloaded";
}
