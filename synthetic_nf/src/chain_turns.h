/*
 * What a packet costs by the time since its stage got the core: caches are cold after a switch, and one run tells by how
 * much, whatever the machine does meanwhile. No clock is read for it that is not read anyway.
 */
#ifndef SLOMO_CHAIN_TURNS_H
#define SLOMO_CHAIN_TURNS_H

#include "nf.h"

#define TURN_BINS 12       /* below 16 us, then twice as long each */
#define TURN_FIRST_HZ 65536 /* 15.3 us */
#define TURN_LONGER 3      /* a burst that took so many times the usual was interrupted: others ran */
#define TURN_AVERAGE 64    /* bursts that the usual is an average of */

struct turn_counts {
	uint64_t packets[TURN_BINS], ticks[TURN_BINS];
};

struct turn_watch {
	uint64_t begun, last, usual; /* ticks; of a packet, times TURN_AVERAGE */
	uint64_t first;              /* ticks of the first bin */
};

/* The stage runs anew, having slept. */
static inline void turn_begin(struct turn_watch *watch, uint64_t now)
{
	watch->begun = watch->last = now;
}

/* A burst of `count` packets is done. */
static inline void turn_add(struct turn_watch *watch, struct turn_counts *counts, uint64_t now, uint32_t count)
{
	uint64_t took = now - watch->last, steps = (watch->last - watch->begun) / watch->first;
	unsigned bin = steps ? 64 - (unsigned)__builtin_clzll(steps) : 0;

	watch->last = now;
	if (watch->usual && took > TURN_LONGER * count * watch->usual / TURN_AVERAGE + watch->first) {
		watch->begun = now;
		return;
	}
	watch->usual += watch->usual ? took / count - watch->usual / TURN_AVERAGE : TURN_AVERAGE * took / count;
	bin = bin < TURN_BINS ? bin : TURN_BINS - 1;
	counter_add(&counts->packets[bin], count);
	counter_add(&counts->ticks[bin], took);
}

#endif
