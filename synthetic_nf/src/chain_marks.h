/* Back-pressure and wake-ups: which chains get no more packets, which stages hold back, whom to wake. */
#ifndef SLOMO_CHAIN_MARKS_H
#define SLOMO_CHAIN_MARKS_H

#include "chain_memory.h"

struct chain_marks {
	bool pressed[CHAINS_MOST];               /* the chain's entry drops */
	bool full[CHAINS_MOST][HOPS_MOST];       /* this ring is why */
	bool at_entry;                           /* the ring that chains share at the entry has marks, too */
	uint32_t high, low;                      /* packets */
	double mark_above;                       /* smoothed packets of a ring from which on ECN marks */
	double smoothed[CHAINS_MOST][HOPS_MOST];
	bool marking[CHAINS_MOST];               /* packets that come in are marked */
	uint64_t wait_ticks;
	uint64_t presses;                        /* how often a chain was stopped */
	uint64_t wakes;
	uint64_t looks;                          /* how often all rings were looked at */
};

struct chain_marks chain_marks_of(const struct chain_plan *plan);

/* Look at all rings, and set or clear the marks. */
void chain_marks_update(struct chain_marks *marks, struct chain_memory *memory, uint64_t now_ticks);

/* Whether the entry drops a chain's next packets: a ring further on is full, or the one that it shares at the entry. */
bool chain_marks_stop(struct chain_marks *marks, const struct hop *entry);

/* Look at the rings of TCP chains: whose packets are to be marked. */
void chain_marks_ecn(struct chain_marks *marks, const struct chain_memory *memory);

/* Wake every stage that sleeps and has something to do. */
void chain_marks_wake(struct chain_marks *marks, struct chain_memory *memory);

void chain_marks_wake_one(struct stage_state *stage);

/* Wake all, so that they see the end. */
void chain_marks_wake_all(struct chain_memory *memory);

#endif
