/* Exact-match table without DPDK: open addressing, linear probing, at most half full. */
#include "flow_table.h"

#include "memory.h"
#include "message.h"
#include "random.h"

#include <stdlib.h>

struct slot {
	struct flow_key key;
	uint32_t used;
};

struct flow_table {
	struct region region;
	struct slot *slots;
	uint32_t mask;
	uint32_t capacity;
	uint32_t flows;
};

struct flow_table *flow_table_create(uint32_t capacity, const char *purpose, unsigned number)
{
	struct flow_table *table = allocate(1, sizeof(*table));
	uint32_t slots = 2;

	(void)purpose;
	(void)number;
	while (slots < 2 * (uint64_t)capacity)
		slots *= 2;
	table->region = region_take((uint64_t)slots * sizeof(struct slot), "auto");
	table->slots = table->region.base;
	table->mask = slots - 1;
	table->capacity = capacity;
	return table;
}

void flow_table_release(struct flow_table *table)
{
	region_release(&table->region);
	free(table);
}

uint32_t flow_table_positions(const struct flow_table *table)
{
	return table->mask + 1;
}

/* The slot that holds the key, or the free one where it belongs. */
static uint32_t probe(const struct flow_table *table, const struct flow_key *key)
{
	uint64_t halves[2];
	uint32_t slot;

	_Static_assert(sizeof(halves) == sizeof(*key), "a key is two words");
	memcpy(halves, key, sizeof(halves));
	slot = (uint32_t)random_mix(halves[0] ^ random_mix(halves[1])) & table->mask;
	while (table->slots[slot].used && memcmp(&table->slots[slot].key, key, sizeof(*key)) != 0)
		slot = (slot + 1) & table->mask;
	return slot;
}

void flow_table_find(const struct flow_table *table, const struct flow_key *keys, int32_t *positions, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t slot = probe(table, &keys[i]);

		positions[i] = table->slots[slot].used ? (int32_t)slot : FLOW_NONE;
	}
}

int32_t flow_table_add(struct flow_table *table, const struct flow_key *key)
{
	uint32_t slot = probe(table, key);

	if (!table->slots[slot].used) {
		if (table->flows == table->capacity)
			return FLOW_NONE;
		table->slots[slot] = (struct slot){ *key, 1 };
		table->flows++;
	}
	return (int32_t)slot;
}
