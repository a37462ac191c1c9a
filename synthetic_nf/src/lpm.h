/* Longest-prefix match: rte_lpm in the DPDK build, the same DIR-24-8 scheme in plain C in the portable one. */
#ifndef SLOMO_LPM_H
#define SLOMO_LPM_H

#include <stdint.h>

#define LPM_NO_ROUTE UINT32_MAX

struct route {
	uint32_t prefix; /* host order */
	uint8_t length;  /* 0..32 */
	uint16_t next_hop;
};

struct lpm;

/* Build a table; `number` makes its name unique. Of equal prefixes the last one holds. */
struct lpm *lpm_create(const struct route *routes, uint32_t count, unsigned number);
void lpm_release(struct lpm *lpm);

/* Next hops of `count` addresses (host order), LPM_NO_ROUTE where none matches. */
void lpm_lookup(const struct lpm *lpm, const uint32_t *addresses, uint32_t *next_hops, uint32_t count);

#endif
