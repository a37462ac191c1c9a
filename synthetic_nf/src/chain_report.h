/* What a run of chains says: a ready line, an observation every few milliseconds, the totals at the end. */
#ifndef SLOMO_CHAIN_REPORT_H
#define SLOMO_CHAIN_REPORT_H

#include "chain_marks.h"
#include "chain_source.h"

struct stage_totals {
	uint64_t offered, lost, served, refused, sleeps, samples, processor_ns, voluntary, involuntary;
	struct turn_counts turns;
};

struct chain_totals {
	struct chain_counters entry;
	struct tcp_counts tcp;
	uint64_t lost_behind; /* after the first stage worked on them */
	struct histogram latency;
};

/* Everything that is counted, at one moment. */
struct chain_snapshot {
	uint64_t nanoseconds, manager_ns, presses, wakes, looks;
	struct stage_totals stages[STAGES_MOST];
	struct chain_totals chains[CHAINS_MOST];
};

/* What was looked at last, and what was last said of it. */
struct chain_looks {
	double time_s, said_s;
	struct stage_totals totals[STAGES_MOST];
	double rates[STAGES_MOST]; /* arrivals per second, smoothed over 100 ms */
	double served[STAGES_MOST], busy[STAGES_MOST]; /* packets, and nanoseconds of the processor, per second */
	double said[STAGES_MOST];  /* loads: arrivals x cost */
};

void chain_snapshot_take(struct chain_snapshot *snapshot, const struct chain_memory *memory, const struct chain_source *source,
			 const struct chain_marks *marks);

void chain_report_ready(const struct chain_memory *memory, bool manager_first);
/* Print a look unless it says what the last one said: all loads within `observe_change` of theirs, for up to 100 ms. */
void chain_report_observation(struct chain_looks *looks, const struct chain_memory *memory, const struct chain_source *source,
			      const struct chain_marks *marks, double time_s);
void chain_report_end(const struct chain_memory *memory, const struct chain_snapshot *from, const struct chain_snapshot *to);

#endif
