/* Find the flow of every packet of a burst. */
#include "flow_burst.h"

/* Look up the packets that have a flow, all at once, and put the answers back in their places. */
static void find_known(struct flow_burst *burst, const struct flow_table *table, uint32_t count)
{
	struct flow_key keys[BURST_MOST];
	int32_t found[BURST_MOST];
	uint32_t wanted = 0;

	for (uint32_t i = 0; i < count; i++)
		if (burst->headers[i].ip)
			keys[wanted++] = burst->keys[i];
	flow_table_find(table, keys, found, wanted);
	burst->lookups = wanted;
	wanted = 0;
	for (uint32_t i = 0; i < count; i++)
		burst->positions[i] = burst->headers[i].ip ? found[wanted++] : FLOW_NONE;
}

void flow_burst_find(struct flow_burst *burst, struct flow_table *table, const struct packet *packets, uint32_t count)
{
	burst->no_room = burst->not_ipv4 = 0;
	for (uint32_t i = 0; i < count; i++) {
		burst->headers[i] = headers_find(&packets[i]);
		burst->added[i] = false;
		if (burst->headers[i].ip)
			burst->keys[i] = headers_flow(&burst->headers[i]);
		else
			burst->not_ipv4++;
	}
	find_known(burst, table, count);
	for (uint32_t i = 0; i < count; i++) {
		if (burst->positions[i] != FLOW_NONE || !burst->headers[i].ip)
			continue;
		burst->positions[i] = flow_table_add(table, &burst->keys[i]);
		burst->added[i] = burst->positions[i] != FLOW_NONE;
		burst->no_room += burst->positions[i] == FLOW_NONE;
	}
}
