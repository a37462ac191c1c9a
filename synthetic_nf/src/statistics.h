/* What the program says on stdout: one JSON object per line (ready, interval, end). */
#ifndef SLOMO_STATISTICS_H
#define SLOMO_STATISTICS_H

#include "worker.h"

/* Totals of a worker at one moment. */
struct snapshot {
	uint64_t nanoseconds;
	struct worker_counters counters;
	struct histogram latency;
	uint64_t accesses, missed, processor_ns;
	struct nf_counter own[NF_COUNTERS_MOST];
};

void snapshot_take(struct snapshot *snapshot, const struct worker *worker);

/* {"event":"ready",...}: what runs, with every knob. */
void statistics_ready(const struct worker *workers, unsigned count);

/* {"event":"interval"|"end",...}: the difference of two snapshots; the function's own counters are totals. */
void statistics_interval(const char *event, const struct worker *worker, const struct snapshot *begin,
			 const struct snapshot *before, const struct snapshot *now);

#endif
