/* Where an instance's packets come from and go to: a DPDK port, or frames preloaded into memory. */
#ifndef SLOMO_PACKET_IO_H
#define SLOMO_PACKET_IO_H

#include "options.h"
#include "packet.h"

#include <stdint.h>

struct packet_io;

/* Called by the main thread, one after the other; `number` is the instance. */
struct packet_io *packet_io_open(const struct options *options, unsigned number);
void packet_io_close(struct packet_io *io);

/* Fetch up to `most` (<= BURST_MOST) packets. */
uint32_t packet_io_receive(struct packet_io *io, struct packet *packets, uint32_t most);

/* Send those whose verdict says so and give all buffers back; returns how many were sent. */
uint32_t packet_io_send(struct packet_io *io, struct packet *packets, uint32_t count);

/* Packets the port lost before we fetched them. */
uint64_t packet_io_missed(const struct packet_io *io);

/* Frames after which a capture that is replayed once is over; 0: never. */
uint64_t packet_io_limit(const struct packet_io *io);

/* "net_pcap0", "preloaded", ... */
const char *packet_io_source(const struct packet_io *io);

#endif
