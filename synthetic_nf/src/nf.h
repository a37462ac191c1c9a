/* What a network function is: three functions and a few counters of its own. */
#ifndef SLOMO_NF_H
#define SLOMO_NF_H

#include "options.h"
#include "packet.h"

#include <stdbool.h>
#include <stdint.h>

#define SLOMO_NF_VERSION "0.1.0"
#ifdef SLOMO_DPDK
#define SLOMO_NF_BUILD "dpdk"
#else
#define SLOMO_NF_BUILD "portable"
#endif

#define NF_COUNTERS_MOST 6

struct nf_counter {
	const char *name;
	uint64_t value;
};

struct nf;

/* One running network function: touched by its worker's thread only, but for the counters, which others may read. */
struct nf_instance {
	const struct nf *nf;
	const struct options *options;
	unsigned number; /* 0 .. instances-1 */
	void *state;
	uint64_t accesses; /* data-structure accesses so far: cache lines (synthetic) or table look-ups (all others) */
	struct nf_counter counters[NF_COUNTERS_MOST]; /* ended by a NULL name */
	const char *data_pages;
	uint64_t data_bytes;
};

struct nf {
	const char *name;
	const char *summary;
	void (*start)(struct nf_instance *self);
	/* Work on `count` packets: change bytes, length and verdict of each. */
	void (*process)(struct nf_instance *self, struct packet *packets, uint32_t count);
	void (*stop)(struct nf_instance *self);
	bool needs_mbufs; /* works on packet->handle, and in the DPDK build only */
};

/* Add to a number that one thread writes and others read. */
static inline void counter_add(uint64_t *counter, uint64_t amount)
{
	__atomic_store_n(counter, *counter + amount, __ATOMIC_RELAXED);
}

static inline uint64_t counter_read(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/* The function of this name; ends the process (code 2) when there is none, or none in this build. */
const struct nf *nf_find(const char *name);
void nf_print_all(void);

extern const struct nf nf_synthetic, nf_l2fwd, nf_router, nf_firewall, nf_flowstats, nf_nat, nf_maglev, nf_dpi, nf_compute;
#ifdef SLOMO_DPDK
extern const struct nf nf_ipsec;
#endif

#endif
