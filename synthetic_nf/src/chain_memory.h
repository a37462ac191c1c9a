/*
 * What the processes of a run share: one anonymous mapping, made before they part, so that it has no name and is gone
 * with the last of them.
 */
#ifndef SLOMO_CHAIN_MEMORY_H
#define SLOMO_CHAIN_MEMORY_H

#include "chain_plan.h"
#include "chain_ring.h"
#include "chain_turns.h"
#include "histogram.h"

#include <sys/types.h>

#define SAMPLES 256 /* of a stage's cost; more than a window of 100 ms holds */
#define HEADROOM 128
#define BURST_LINES 256 /* buffers that a stage may hold in its hands, per hop */
#define BUFFER_TAIL 64 /* what a tunnel adds behind */
#define TUN_BYTES 1500 /* of an IP packet, at most */

/* A packet's buffer: its first line is about it, the bytes follow. */
struct chain_buffer {
	uint32_t length;
	uint32_t offset; /* of the first byte in `bytes` */
	uint32_t chain;
	uint64_t arrived_ticks;
	uint64_t queued_ticks; /* when it came into the ring that it waits in */
	uint64_t left_ticks;   /* when its chain was through with it */
	uint8_t bytes[] __attribute__((aligned(RING_LINE)));
};

/* A stage as part of one chain: what waits for it there. */
struct hop {
	struct chain_ring *ring; /* what it is to work on; with `shared` that of all hops of the stage */
	struct chain_ring *next; /* where that goes: the ring of the hop behind it, or the chain's exit */
	unsigned stage, chain, position;
	bool last;
	/* Written by who fills the ring: */
	uint64_t offered __attribute__((aligned(RING_LINE)));
	uint64_t lost; /* found the ring full, after work was done on them, or at the entry */
	/* Written by the stage: */
	uint64_t taken __attribute__((aligned(RING_LINE)));
	/* Written by the manager: */
	uint32_t held __attribute__((aligned(RING_LINE))); /* leave these packets where they are: something behind is full */
};

struct cost_sample {
	uint64_t at_ticks;
	uint64_t ticks_per_packet;
};

/* A stage, as the manager sees it. */
struct stage_state {
	uint32_t asleep __attribute__((aligned(RING_LINE))); /* the word that it waits on; cleared by who wakes it */
	uint32_t sample_wanted __attribute__((aligned(RING_LINE)));
	uint64_t served __attribute__((aligned(RING_LINE)));
	uint64_t refused; /* dropped by the network function itself */
	uint64_t sleeps;
	uint64_t samples_taken;
	struct cost_sample samples[SAMPLES];
	struct turn_counts turns;
	uint32_t ready;
	/* While it moves: the heir is ready, the old process is to leave, and has left. */
	uint32_t heir_ready, leave, left;
	uint64_t left_ticks, taken_over_ticks;
	uint64_t before_ns, before_voluntary, before_involuntary; /* of the processes that left */
	int scheduler_error; /* errno of what the kernel said to its scheduler */
	pid_t pid;
	struct chain_ring *returned; /* buffers that it drops */
	struct hop *hops[CHAINS_MOST];
	struct hop *of_chain[CHAINS_MOST]; /* the same, by chain */
	unsigned hop_count;
};

/* What a TCP chain's sender and receiver say of themselves. */
struct tcp_counts {
	uint64_t received_bytes;
	uint64_t retransmitted;
	uint64_t ecn;
	uint32_t listening;
};

struct chain_memory {
	const struct chain_plan *plan;
	volatile uint32_t stop;
	struct stage_state stages[STAGES_MOST];
	struct hop hops[CHAINS_MOST][HOPS_MOST];
	struct chain_ring *exits[CHAINS_MOST];
	struct tcp_counts tcp[CHAINS_MOST];
	size_t buffer_stride;
	uint32_t buffer_count;
	uint8_t *buffers;
	size_t mapped;
};

struct chain_memory *chain_memory_create(const struct chain_plan *plan);

static inline struct chain_buffer *chain_buffer_at(const struct chain_memory *memory, uint32_t number)
{
	return (struct chain_buffer *)(void *)(memory->buffers + (size_t)number * memory->buffer_stride);
}

#endif
