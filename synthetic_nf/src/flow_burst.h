/* What the flow-based functions share: find the flow of every packet of a burst, adding new ones. */
#ifndef SLOMO_FLOW_BURST_H
#define SLOMO_FLOW_BURST_H

#include "flow_table.h"
#include "headers.h"
#include "packet.h"

#include <stdbool.h>

struct flow_burst {
	struct headers headers[BURST_MOST]; /* `ip` is NULL where there is no flow */
	struct flow_key keys[BURST_MOST];
	int32_t positions[BURST_MOST]; /* FLOW_NONE: no IPv4, or no room */
	bool added[BURST_MOST];
	uint32_t lookups, no_room, not_ipv4;
};

/* Fill `burst` for `count` packets; flows not found are added. */
void flow_burst_find(struct flow_burst *burst, struct flow_table *table, const struct packet *packets, uint32_t count);

#endif
