/*
 * The competitor's data structure and the loads and stores it makes: what puts pressure on caches and memory.
 *
 * Three patterns (SLOMO, SIGCOMM'20, section 4 has the first): independent random lines, a dependent chain, a stream.
 * The loads cannot be dropped: every value read goes into `checksum`, which is printed when the run ends, and a test
 * computes the same sum without this code.
 */
#ifndef SLOMO_ACCESS_PATTERNS_H
#define SLOMO_ACCESS_PATTERNS_H

#include "memory.h"

#include <stdint.h>

#define LINE_BYTES 64
#define STREAMS 8 /* a sequential reader advances in so many places at once */

/* One cache line. */
struct line {
	uint64_t value;   /* random_mix(seed + index): what reads add up */
	uint64_t next;    /* index of the next line of the chain */
	uint64_t written; /* how often it was written */
	uint64_t unused[5];
};

struct access_data {
	struct region region;
	struct line *lines;
	uint64_t count;  /* lines */
	uint64_t cursor; /* next line of a chain or stream */
	uint64_t random; /* state of the random addresses */
	uint64_t checksum;
};

struct access_audit {
	uint64_t lines_written; /* distinct lines that were written at least once */
	uint64_t writes_found;  /* sum of the lines' own counts */
};

/* Map `bytes` and give every line its value; `chained` also links all lines into one random cycle (Sattolo 1986). */
void access_data_create(struct access_data *data, uint64_t bytes, uint64_t seed, const char *pages, int chained);
void access_data_release(struct access_data *data);

void access_read_random(struct access_data *data, uint64_t reads);
void access_read_chain(struct access_data *data, uint64_t reads);
void access_read_sequential(struct access_data *data, uint64_t reads);
void access_write_random(struct access_data *data, uint64_t writes);
void access_write_chain(struct access_data *data, uint64_t writes);
void access_write_sequential(struct access_data *data, uint64_t writes);

/* Look at every line and say what was written. */
struct access_audit access_data_audit(const struct access_data *data);

#endif
