/*
 * What a run of chains consists of. Written by the library, a statement per line:
 *
 *   ring 2048                  places of a ring, a power of two
 *   buffer 2048                bytes of a packet buffer
 *   high 0.8 | low 0.6         marks, as shares of a ring
 *   wait_us 100                a ring presses only when its first packet waited longer
 *   shared 0|1                 a stage has one ring for all its chains, as in OpenNetVM, not one for each
 *   pressure 0|1               back-pressure to the entry of a chain
 *   ecn 0|1                    packets of TCP chains that find a long ring are marked, and TCP asks for it
 *   local 0|1                  a stage stops where the next ring is full, instead of dropping
 *   poll_us | sample_us | observe_ms | warm_up_ms | seconds
 *   observe_change 0.05        say nothing while no load moved by this share, for 100 ms at most
 *   manager CPU
 *   group PATH                 a control group to be made, and removed however the run ends
 *   stage NAME CPU SCHEDULER GROUP|- FLAGS...
 *   chain NAME MPPS FLOWS SIZES STAGE,STAGE,...
 *   when CHAIN FROM_MS TO_MS   it sends only then, since the first packet
 *   log STAGE BYTES BUFFER async|blocking DIRECTORY   the stage writes so many bytes per packet to a file without a name
 *   tcp CHAIN RTT_US           the kernel's TCP sends it, MPPS at most; its round trip outside the chain
 *   move STAGE CPU NODE|- MS   start the stage anew on a CPU, its memory on a node, and hand its rings over; after it is named
 *   live 0|1                   further `move` lines, in the order of their time, come by standard input while the chains run
 */
#ifndef SLOMO_CHAIN_PLAN_H
#define SLOMO_CHAIN_PLAN_H

#include "options.h"

#define STAGES_MOST 32
#define CHAINS_MOST 16
#define HOPS_MOST 8 /* stages of one chain */
#define GROUPS_MOST (STAGES_MOST + 2)
#define SIZES_MOST 8
#define MOVES_MOST STAGES_MOST
#define NODES_MOST 1024
#define PLAN_NAME_BYTES 32
#define TCP_FRAME_LEAST 590 /* 576 bytes of IP, which every host takes (RFC 791) */
#define PLAN_PATH_BYTES 256

struct plan_stage {
	char name[PLAN_NAME_BYTES];
	int cpu;
	char scheduler[PLAN_NAME_BYTES]; /* "normal", "batch" or "rr" */
	char group[PLAN_PATH_BYTES];     /* "" for none */
	uint32_t log_bytes, log_buffer;   /* written to storage per packet, 0 for nothing; at a time */
	bool log_blocking;
	char log_directory[PLAN_PATH_BYTES];
	struct options options;
};

struct plan_chain {
	char name[PLAN_NAME_BYTES];
	double rate_mpps;
	uint32_t flows;
	uint32_t sizes[SIZES_MOST];
	unsigned size_count;
	unsigned stages[HOPS_MOST];
	unsigned length;
	bool tcp;
	double rtt_us;
	double from_ms, to_ms;
};

struct plan_move {
	unsigned stage;
	int cpu, node; /* a node below 0: wherever the kernel puts it */
	double at_ms;  /* since the first packet */
};

struct chain_plan {
	uint32_t ring, buffer_bytes;
	double high, low, wait_us;
	double poll_us, sample_us, observe_ms, observe_change, warm_up_ms, seconds;
	bool shared, pressure, local, ecn, live;
	int manager_cpu;
	struct plan_stage stages[STAGES_MOST];
	unsigned stage_count;
	struct plan_chain chains[CHAINS_MOST];
	unsigned chain_count;
	char groups[GROUPS_MOST][PLAN_PATH_BYTES];
	unsigned group_count;
	struct plan_move moves[MOVES_MOST]; /* in the order of their time */
	unsigned move_count;
};

/* Read a plan, or the file behind '@'; ends the process (code 2) where it is wrong. */
struct chain_plan *chain_plan_read(const char *text);

/* Read one more line of a plan. */
void chain_plan_add(struct chain_plan *plan, char *line);

#endif
