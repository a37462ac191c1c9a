/*
 * Maglev load balancer (Eisenbud et al., NSDI 2016, section 3.4): a permutation per back-end fills the lookup table;
 * a connection table keeps a flow with its back-end. Forwarding rewrites the destination to 10.221.0.1 + back-end.
 */
#include "flow_burst.h"
#include "message.h"
#include "nf.h"
#include "random.h"

#include <stdlib.h>

#define TABLE_SIZE 65537u /* prime; the paper's small table */
#define BACKEND_FIRST 0x0add0001u /* 10.221.0.1 */
#define UNUSED UINT16_MAX

enum { COUNTER_CONNECTIONS, COUNTER_BALANCED, COUNTER_DROPPED, COUNTER_LARGEST, COUNTER_SMALLEST };

struct maglev {
	struct flow_table *table;
	uint16_t *backend_of_flow; /* by position in the table */
	uint16_t lookup[TABLE_SIZE];
	struct flow_burst burst;
};

/* Figure 3 of the paper: back-ends take turns, each claiming the next free place of its own permutation. */
static void populate(struct maglev *state, uint32_t backends)
{
	uint32_t *next = allocate(backends, sizeof(*next)), filled = 0;

	for (uint32_t i = 0; i < TABLE_SIZE; i++)
		state->lookup[i] = UNUSED;
	for (uint32_t backend = 0; filled < TABLE_SIZE; backend = (backend + 1) % backends) {
		uint64_t name = random_mix(BACKEND_FIRST + backend);
		uint32_t offset = (uint32_t)(name % TABLE_SIZE), skip = (uint32_t)((name >> 32) % (TABLE_SIZE - 1)) + 1, place;

		do
			place = (uint32_t)((offset + (uint64_t)next[backend]++ * skip) % TABLE_SIZE);
		while (state->lookup[place] != UNUSED);
		state->lookup[place] = (uint16_t)backend;
		filled++;
	}
	free(next);
}

/* How even the table is: the paper's measure is the largest over the smallest share. */
static void report_shares(struct nf_instance *self, const struct maglev *state, uint32_t backends)
{
	uint64_t *shares = allocate(backends, sizeof(*shares)), largest = 0, smallest = TABLE_SIZE;

	for (uint32_t i = 0; i < TABLE_SIZE; i++)
		shares[state->lookup[i]]++;
	for (uint32_t i = 0; i < backends; i++) {
		largest = shares[i] > largest ? shares[i] : largest;
		smallest = shares[i] < smallest ? shares[i] : smallest;
	}
	free(shares);
	self->counters[COUNTER_LARGEST].value = largest;
	self->counters[COUNTER_SMALLEST].value = smallest;
}

static void maglev_start(struct nf_instance *self)
{
	struct maglev *state = allocate(1, sizeof(*state));
	uint32_t backends = (uint32_t)self->options->backends;

	state->table = flow_table_create((uint32_t)self->options->flow_capacity, "maglev", self->number);
	state->backend_of_flow = allocate(flow_table_positions(state->table), sizeof(*state->backend_of_flow));
	populate(state, backends);
	self->state = state;
	self->counters[COUNTER_CONNECTIONS].name = "connections";
	self->counters[COUNTER_BALANCED].name = "balanced";
	self->counters[COUNTER_DROPPED].name = "not_ipv4";
	self->counters[COUNTER_LARGEST].name = "largest_share";
	self->counters[COUNTER_SMALLEST].name = "smallest_share";
	report_shares(self, state, backends);
}

static uint16_t hashed_backend(const struct maglev *state, const struct flow_key *key)
{
	uint64_t halves[2];

	memcpy(halves, key, sizeof(halves));
	return state->lookup[random_mix(halves[0] ^ random_mix(halves[1] + 1)) % TABLE_SIZE];
}

/* A full connection table costs nothing but memory of the flow: the hash still finds its back-end. */
static uint16_t choose(struct nf_instance *self, uint32_t index)
{
	struct maglev *state = self->state;
	int32_t position = state->burst.positions[index];
	uint16_t backend;

	if (position != FLOW_NONE && !state->burst.added[index])
		return state->backend_of_flow[position];
	backend = hashed_backend(state, &state->burst.keys[index]);
	if (position != FLOW_NONE) {
		state->backend_of_flow[position] = backend;
		counter_add(&self->counters[COUNTER_CONNECTIONS].value, 1);
	}
	return backend;
}

static void maglev_process(struct nf_instance *self, struct packet *packets, uint32_t count)
{
	struct maglev *state = self->state;

	flow_burst_find(&state->burst, state->table, packets, count);
	for (uint32_t i = 0; i < count; i++) {
		const struct headers *headers = &state->burst.headers[i];
		uint16_t backend;

		if (!headers->ip) {
			packets[i].verdict = VERDICT_DROP;
			counter_add(&self->counters[COUNTER_DROPPED].value, 1);
			continue;
		}
		backend = choose(self, i);
		headers_rewrite(headers, false, BACKEND_FIRST + backend, headers->transport ? load16(headers->transport + 2) : 0);
		ethernet_address(&packets[i], (uint16_t)(backend + 1));
		counter_add(&self->counters[COUNTER_BALANCED].value, 1);
	}
	counter_add(&self->accesses, state->burst.lookups);
}

static void maglev_stop(struct nf_instance *self)
{
	struct maglev *state = self->state;

	flow_table_release(state->table);
	free(state->backend_of_flow);
	free(state);
}

const struct nf nf_maglev = {
	.name = "maglev",
	.summary = "Maglev load balancer: consistent lookup table and connection table (rte_hash)",
	.start = maglev_start,
	.process = maglev_process,
	.stop = maglev_stop,
};
