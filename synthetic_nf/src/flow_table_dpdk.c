/* Exact-match table by rte_hash: cuckoo hashing, looked up in bulks with prefetches. */
#include "flow_table.h"
#include "message.h"

#include <rte_errno.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <stdio.h>
#include <stdlib.h>

struct flow_table {
	struct rte_hash *hash;
	uint32_t positions;
};

struct flow_table *flow_table_create(uint32_t capacity, const char *purpose, unsigned number)
{
	struct flow_table *table = allocate(1, sizeof(*table));
	char name[RTE_HASH_NAMESIZE];
	struct rte_hash_parameters parameters = { .name = name, .entries = capacity, .key_len = sizeof(struct flow_key),
						  .hash_func = rte_hash_crc, .socket_id = SOCKET_ID_ANY };

	snprintf(name, sizeof(name), "%s%u", purpose, number);
	table->hash = rte_hash_create(&parameters);
	if (!table->hash)
		fail(EXIT_TESTBED, "lower --flow-capacity or raise --memory-mib", "cannot create a table for %u flows: %s",
		     capacity, rte_strerror(rte_errno));
	table->positions = (uint32_t)rte_hash_max_key_id(table->hash) + 1;
	return table;
}

void flow_table_release(struct flow_table *table)
{
	rte_hash_free(table->hash);
	free(table);
}

uint32_t flow_table_positions(const struct flow_table *table)
{
	return table->positions;
}

void flow_table_find(const struct flow_table *table, const struct flow_key *keys, int32_t *positions, uint32_t count)
{
	const void *places[RTE_HASH_LOOKUP_BULK_MAX];

	for (uint32_t done = 0; done < count; done += RTE_HASH_LOOKUP_BULK_MAX) {
		uint32_t some = RTE_MIN(count - done, (uint32_t)RTE_HASH_LOOKUP_BULK_MAX);

		for (uint32_t i = 0; i < some; i++)
			places[i] = &keys[done + i];
		rte_hash_lookup_bulk(table->hash, places, some, positions + done);
		for (uint32_t i = 0; i < some; i++)
			if (positions[done + i] < 0)
				positions[done + i] = FLOW_NONE;
	}
}

int32_t flow_table_add(struct flow_table *table, const struct flow_key *key)
{
	int32_t position = rte_hash_add_key(table->hash, key);

	return position < 0 ? FLOW_NONE : position;
}
