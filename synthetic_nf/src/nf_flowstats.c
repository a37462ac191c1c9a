/* Flow statistics: packets, bytes and the last time of every five-tuple, as a NetFlow exporter keeps them. */
#include "clock.h"
#include "flow_burst.h"
#include "message.h"
#include "nf.h"

#include <stdlib.h>

enum { COUNTER_FLOWS, COUNTER_BYTES, COUNTER_MOST, COUNTER_NO_ROOM, COUNTER_NOT_IP };

struct flow_record {
	uint64_t packets, bytes, first_ticks, last_ticks;
};

struct flowstats {
	struct flow_table *table;
	struct flow_record *records;
	struct flow_burst burst;
};

static void flowstats_start(struct nf_instance *self)
{
	struct flowstats *state = allocate(1, sizeof(*state));

	state->table = flow_table_create((uint32_t)self->options->flow_capacity, "flows", self->number);
	state->records = allocate(flow_table_positions(state->table), sizeof(*state->records));
	self->state = state;
	self->counters[COUNTER_FLOWS].name = "flows";
	self->counters[COUNTER_BYTES].name = "flow_bytes";
	self->counters[COUNTER_MOST].name = "largest_flow_packets";
	self->counters[COUNTER_NO_ROOM].name = "table_full";
	self->counters[COUNTER_NOT_IP].name = "not_ipv4";
}

static uint64_t account(struct flowstats *state, uint32_t index, uint64_t now)
{
	struct flow_record *record = &state->records[state->burst.positions[index]];

	if (record->packets == 0)
		record->first_ticks = now;
	record->packets++;
	record->bytes += state->burst.headers[index].ip_bytes;
	record->last_ticks = now;
	return record->packets;
}

static void flowstats_process(struct nf_instance *self, struct packet *packets, uint32_t count)
{
	struct flowstats *state = self->state;
	uint64_t now = clock_ticks(), largest = self->counters[COUNTER_MOST].value, added = 0, bytes = 0;

	flow_burst_find(&state->burst, state->table, packets, count);
	for (uint32_t i = 0; i < count; i++) {
		uint64_t flow_packets;

		if (state->burst.positions[i] == FLOW_NONE)
			continue;
		flow_packets = account(state, i, now);
		bytes += state->burst.headers[i].ip_bytes;
		added += state->burst.added[i];
		largest = flow_packets > largest ? flow_packets : largest;
	}
	counter_add(&self->counters[COUNTER_FLOWS].value, added);
	counter_add(&self->counters[COUNTER_BYTES].value, bytes);
	counter_add(&self->counters[COUNTER_MOST].value, largest - self->counters[COUNTER_MOST].value);
	counter_add(&self->counters[COUNTER_NO_ROOM].value, state->burst.no_room);
	counter_add(&self->counters[COUNTER_NOT_IP].value, state->burst.not_ipv4);
	counter_add(&self->accesses, state->burst.lookups);
}

static void flowstats_stop(struct nf_instance *self)
{
	struct flowstats *state = self->state;

	flow_table_release(state->table);
	free(state->records);
	free(state);
}

const struct nf nf_flowstats = {
	.name = "flowstats",
	.summary = "packets, bytes and times per five-tuple (rte_hash)",
	.start = flowstats_start,
	.process = flowstats_process,
	.stop = flowstats_stop,
};
