/* Longest-prefix match by rte_lpm (DIR-24-8, Gupta et al. 1998); a default route is kept beside it, which rte_lpm lacks. */
#include "lpm.h"
#include "message.h"

#include <rte_errno.h>
#include <rte_lpm.h>
#include <stdio.h>
#include <stdlib.h>

struct lpm {
	struct rte_lpm *table;
	uint32_t otherwise; /* next hop of 0.0.0.0/0 */
};

/* A group of 256 entries for every /24 that has longer prefixes; an upper bound is enough. */
static uint32_t tbl8_groups(const struct route *routes, uint32_t count)
{
	uint32_t longer = 256;

	for (uint32_t i = 0; i < count; i++)
		longer += routes[i].length > 24;
	return longer;
}

struct lpm *lpm_create(const struct route *routes, uint32_t count, unsigned number)
{
	struct lpm *lpm = allocate(1, sizeof(*lpm));
	struct rte_lpm_config config = { .max_rules = count + 1, .number_tbl8s = tbl8_groups(routes, count) };
	char name[RTE_LPM_NAMESIZE];

	snprintf(name, sizeof(name), "routes%u", number);
	lpm->otherwise = LPM_NO_ROUTE;
	lpm->table = rte_lpm_create(name, SOCKET_ID_ANY, &config);
	if (!lpm->table)
		fail(EXIT_TESTBED, "it needs 70 MiB: raise --memory-mib", "cannot create the routing table: %s",
		     rte_strerror(rte_errno));
	for (uint32_t i = 0; i < count; i++) {
		if (routes[i].length == 0)
			lpm->otherwise = routes[i].next_hop;
		else if (rte_lpm_add(lpm->table, routes[i].prefix, routes[i].length, routes[i].next_hop) != 0)
			fail(EXIT_TESTBED, "use fewer routes", "rte_lpm refuses route %u of %u", i + 1, count);
	}
	return lpm;
}

void lpm_release(struct lpm *lpm)
{
	rte_lpm_free(lpm->table);
	free(lpm);
}

void lpm_lookup(const struct lpm *lpm, const uint32_t *addresses, uint32_t *next_hops, uint32_t count)
{
	rte_lpm_lookup_bulk(lpm->table, addresses, next_hops, count);
	for (uint32_t i = 0; i < count; i++)
		next_hops[i] = next_hops[i] & RTE_LPM_LOOKUP_SUCCESS ? next_hops[i] & 0xffffff : lpm->otherwise;
}
