/* Longest-prefix match without DPDK: DIR-24-8 (Gupta, Lin, McKeown, INFOCOM 1998), one 64 MiB table of /24s. */
#include "lpm.h"

#include "memory.h"
#include "message.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_BITS 24
#define FIRST_SIZE (1u << FIRST_BITS)
#define GROUP_SIZE 256u
#define POINTS_TO_GROUP 0x80000000u
#define EMPTY 0u /* entries hold next hop + 1 */

struct lpm {
	struct region region;
	uint32_t *first;
	uint32_t *groups;
	uint32_t group_count;
};

struct ordered_route {
	struct route route;
	uint32_t order;
};

static int by_length(const void *left, const void *right)
{
	const struct ordered_route *a = left, *b = right;

	if (a->route.length != b->route.length)
		return a->route.length < b->route.length ? -1 : 1;
	return a->order < b->order ? -1 : 1;
}

/* Routes arrive from short to long, so that a longer one simply overwrites what it covers. */
static void insert(struct lpm *lpm, const struct route *route)
{
	uint32_t entry = (uint32_t)route->next_hop + 1, mask, slot, group;

	mask = route->length ? ~0u << (32 - route->length) : 0;
	slot = (route->prefix & mask) >> 8;
	if (route->length <= FIRST_BITS) {
		for (uint32_t i = 0; i < 1u << (FIRST_BITS - route->length); i++)
			lpm->first[slot + i] = entry;
		return;
	}
	if (!(lpm->first[slot] & POINTS_TO_GROUP)) {
		group = lpm->group_count++;
		for (uint32_t i = 0; i < GROUP_SIZE; i++)
			lpm->groups[group * GROUP_SIZE + i] = lpm->first[slot];
		lpm->first[slot] = POINTS_TO_GROUP | group;
	}
	group = lpm->first[slot] & ~POINTS_TO_GROUP;
	for (uint32_t i = 0; i < 1u << (32 - route->length); i++)
		lpm->groups[group * GROUP_SIZE + (route->prefix & mask & 255) + i] = entry;
}

struct lpm *lpm_create(const struct route *routes, uint32_t count, unsigned number)
{
	struct lpm *lpm = allocate(1, sizeof(*lpm));
	struct ordered_route *ordered = allocate(count, sizeof(*ordered));
	uint32_t longer = 0;

	(void)number;
	for (uint32_t i = 0; i < count; i++) {
		ordered[i] = (struct ordered_route){ routes[i], i };
		longer += routes[i].length > FIRST_BITS;
	}
	lpm->region = region_take(FIRST_SIZE * sizeof(uint32_t), "auto");
	lpm->first = lpm->region.base;
	lpm->groups = allocate(longer, GROUP_SIZE * sizeof(uint32_t));
	qsort(ordered, count, sizeof(*ordered), by_length);
	for (uint32_t i = 0; i < count; i++)
		insert(lpm, &ordered[i].route);
	free(ordered);
	return lpm;
}

void lpm_release(struct lpm *lpm)
{
	region_release(&lpm->region);
	free(lpm->groups);
	free(lpm);
}

void lpm_lookup(const struct lpm *lpm, const uint32_t *addresses, uint32_t *next_hops, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t entry = lpm->first[addresses[i] >> 8];

		if (entry & POINTS_TO_GROUP)
			entry = lpm->groups[(entry & ~POINTS_TO_GROUP) * GROUP_SIZE + (addresses[i] & 255)];
		next_hops[i] = entry == EMPTY ? LPM_NO_ROUTE : entry - 1;
	}
}
