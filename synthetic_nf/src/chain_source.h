/* Traffic of the chains: packets that are due come in, packets that are through give their buffers back. */
#ifndef SLOMO_CHAIN_SOURCE_H
#define SLOMO_CHAIN_SOURCE_H

#include "chain_marks.h"

struct chain_source;

/* What entered and left a chain so far. */
struct chain_counters {
	uint64_t offered;
	uint64_t refused;   /* at the entry, because of a mark: no work was done on them */
	uint64_t entry_lost; /* at the entry, because the first ring was full, or no buffer was left */
	uint64_t delivered, delivered_bytes;
	uint64_t marked; /* ECN */
};

struct chain_source *chain_source_create(struct chain_memory *memory);

/*
 * Let in what is due by now: of chains that the marks stop nothing, TCP packets of those that they mark with an ECN mark.
 * Then wake stages. Where chains share rings as in OpenNetVM, wake them, collect and look at the rings after each burst of
 * all chains: there the card's packets come mixed, and other threads do the rest meanwhile.
 */
void chain_source_offer(struct chain_source *source, uint64_t now_ticks, struct chain_marks *marks);

/* Fetch what is through, and what was dropped on its way. */
void chain_source_collect(struct chain_source *source);

const struct chain_counters *chain_source_counters(const struct chain_source *source, unsigned chain);
const struct histogram *chain_source_latency(const struct chain_source *source, unsigned chain);

/* End the processes of TCP chains. */
void chain_source_end(struct chain_source *source);

/* Begin to count the time from now: nothing was due before. */
void chain_source_start(struct chain_source *source, uint64_t now_ticks);

#endif
