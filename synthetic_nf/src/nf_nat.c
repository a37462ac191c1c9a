/*
 * Source NAT (RFC 3022, address and port): inside flows leave from 192.0.2.1..8, a port each; what comes back to one of
 * these addresses goes to the inside host that owns the port.
 */
#include "flow_burst.h"
#include "message.h"
#include "nf.h"

#include <stdlib.h>

#define OUTSIDE_FIRST 0xc0000201u /* 192.0.2.1 */
#define OUTSIDE_ADDRESSES 8u
#define PORT_FIRST 1024u
#define PORTS (65536u - PORT_FIRST)
#define BINDINGS_MOST (OUTSIDE_ADDRESSES * PORTS)
#define NEXT_HOP 2

enum { COUNTER_MAPPINGS, COUNTER_OUTBOUND, COUNTER_INBOUND, COUNTER_DROPPED };

struct nat {
	struct flow_table *table;
	uint32_t *binding_of_flow;   /* by position in the table */
	struct flow_key *inside;     /* by binding: who is behind it */
	uint32_t bindings;
	struct flow_burst burst;
};

static void nat_start(struct nf_instance *self)
{
	struct nat *state = allocate(1, sizeof(*state));

	state->table = flow_table_create((uint32_t)self->options->flow_capacity, "nat", self->number);
	state->binding_of_flow = allocate(flow_table_positions(state->table), sizeof(*state->binding_of_flow));
	state->inside = allocate(BINDINGS_MOST, sizeof(*state->inside));
	self->state = state;
	self->counters[COUNTER_MAPPINGS].name = "mappings";
	self->counters[COUNTER_OUTBOUND].name = "outbound";
	self->counters[COUNTER_INBOUND].name = "inbound";
	self->counters[COUNTER_DROPPED].name = "untranslatable";
}

static void drop(struct nf_instance *self, struct packet *packet)
{
	packet->verdict = VERDICT_DROP;
	counter_add(&self->counters[COUNTER_DROPPED].value, 1);
}

/* Give a new flow the next free pair of outside address and port. */
static bool bind(struct nf_instance *self, uint32_t index)
{
	struct nat *state = self->state;

	if (state->bindings == BINDINGS_MOST)
		return false;
	state->inside[state->bindings] = state->burst.keys[index];
	state->binding_of_flow[state->burst.positions[index]] = state->bindings++;
	counter_add(&self->counters[COUNTER_MAPPINGS].value, 1);
	return true;
}

static void translate_outbound(struct nf_instance *self, struct packet *packet, uint32_t index)
{
	struct nat *state = self->state;
	uint32_t binding;

	if (state->burst.positions[index] == FLOW_NONE || (state->burst.added[index] && !bind(self, index))) {
		drop(self, packet);
		return;
	}
	binding = state->binding_of_flow[state->burst.positions[index]];
	headers_rewrite(&state->burst.headers[index], true, OUTSIDE_FIRST + binding / PORTS,
			(uint16_t)(PORT_FIRST + binding % PORTS));
	ethernet_address(packet, NEXT_HOP);
	counter_add(&self->counters[COUNTER_OUTBOUND].value, 1);
}

static void translate_inbound(struct nf_instance *self, struct packet *packet, const struct headers *headers,
			      uint32_t outside)
{
	struct nat *state = self->state;
	uint16_t port = load16(headers->transport + 2);
	uint32_t binding = outside * PORTS + port - PORT_FIRST;
	const struct flow_key *inside;

	if (port < PORT_FIRST || binding >= state->bindings) {
		drop(self, packet);
		return;
	}
	inside = &state->inside[binding];
	headers_rewrite(headers, false, load32((const uint8_t *)&inside->source), load16((const uint8_t *)&inside->source_port));
	ethernet_address(packet, NEXT_HOP);
	counter_add(&self->counters[COUNTER_INBOUND].value, 1);
}

static void nat_process(struct nf_instance *self, struct packet *packets, uint32_t count)
{
	struct nat *state = self->state;

	struct packet outbound[BURST_MOST];
	uint32_t indices[BURST_MOST], found = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct headers headers = headers_find(&packets[i]);
		uint32_t outside;

		if (!headers.transport) {
			drop(self, &packets[i]);
			continue;
		}
		outside = load32(headers.ip + 16) - OUTSIDE_FIRST;
		if (outside < OUTSIDE_ADDRESSES) {
			translate_inbound(self, &packets[i], &headers, outside);
		} else {
			indices[found] = i;
			outbound[found++] = packets[i];
		}
	}
	flow_burst_find(&state->burst, state->table, outbound, found);
	for (uint32_t i = 0; i < found; i++)
		translate_outbound(self, &packets[indices[i]], i);
	counter_add(&self->accesses, count);
}

static void nat_stop(struct nf_instance *self)
{
	struct nat *state = self->state;

	flow_table_release(state->table);
	free(state->binding_of_flow);
	free(state->inside);
	free(state);
}

const struct nf nf_nat = {
	.name = "nat",
	.summary = "source NAT with a port per flow (rte_hash), both directions",
	.start = nat_start,
	.process = nat_process,
	.stop = nat_stop,
};
