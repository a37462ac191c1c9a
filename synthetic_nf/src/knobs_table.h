/* The knobs of the competitor. Generated from knobs.yaml by generate_knobs_table.py: do not edit. */
#ifndef SLOMO_KNOBS_TABLE_H
#define SLOMO_KNOBS_TABLE_H

#include <stddef.h>

enum knob_kind { KNOB_KIND_INTEGER, KNOB_KIND_REAL, KNOB_KIND_CHOICE };

struct knob_row {
	enum knob_kind kind;
	const char *name;
	const char *unit;
	const char *const *choices; /* NULL-terminated; NULL unless kind is choice */
	double least;
	double most;
	double initial; /* index into choices where kind is choice */
	const char *description;
};

enum knob {
	KNOB_DATA_SIZE_MIB,
	KNOB_READS_PER_PACKET,
	KNOB_WRITES_PER_PACKET,
	KNOB_ITERATIONS,
	KNOB_PATTERN,
	KNOB_PACKET_BUFFERS,
	KNOB_PACKET_SIZE_B,
	KNOB_BURST,
	KNOB_RATE_MPPS,
	KNOB_INSTANCES,
	KNOB_COUNT
};

enum pattern { PATTERN_RANDOM, PATTERN_CHAIN, PATTERN_SEQUENTIAL };
static const char *const PATTERN_WORDS[] = { "random", "chain", "sequential", NULL };

static const struct knob_row KNOB_TABLE[KNOB_COUNT] = {
	{ KNOB_KIND_REAL, "data_size_mib", "MiB", NULL, 0.0625, 16384, 4,
	  "Size of the data structure of one instance; every cache line of it is in use." },
	{ KNOB_KIND_INTEGER, "reads_per_packet", "reads/packet", NULL, 0, 1000000, 16,
	  "Cache lines read per packet and iteration." },
	{ KNOB_KIND_INTEGER, "writes_per_packet", "writes/packet", NULL, 0, 1000000, 0,
	  "Cache lines written (made dirty) per packet and iteration." },
	{ KNOB_KIND_INTEGER, "iterations", "iterations/packet", NULL, 1, 100000, 1,
	  "How often the reads and writes of a packet are repeated, at new addresses." },
	{ KNOB_KIND_CHOICE, "pattern", "", PATTERN_WORDS, 0, 2, 0,
	  "Order of the addresses: independent random lines, a dependent pointer chain through all lines, or a stream from line to line (the strongest pressure on memory bandwidth)." },
	{ KNOB_KIND_INTEGER, "packet_buffers", "buffers", NULL, 64, 1048576, 4096,
	  "Packet buffers that are recycled first in, first out; more than the DDIO ways hold leak to DRAM." },
	{ KNOB_KIND_INTEGER, "packet_size_b", "B", NULL, 60, 1514, 64,
	  "Size of a generated frame without its checksum; ignored where packets come from a capture or a port." },
	{ KNOB_KIND_INTEGER, "burst", "packets", NULL, 1, 256, 32,
	  "Packets fetched, worked on and sent together." },
	{ KNOB_KIND_REAL, "rate_mpps", "Mpps", NULL, 0, 1000, 0,
	  "Offered load of one instance; 0 means as fast as it can." },
	{ KNOB_KIND_INTEGER, "instances", "instances", NULL, 1, 64, 1,
	  "Competitors of this setting that run at once, each with its own data, buffers and core." },
};

#endif
