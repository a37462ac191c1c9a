/* Exact-match table of five-tuples: rte_hash (cuckoo) in the DPDK build, linear probing without it. */
#ifndef SLOMO_FLOW_TABLE_H
#define SLOMO_FLOW_TABLE_H

#include "headers.h"

#include <stdint.h>

#define FLOW_NONE (-1)

struct flow_table;

/* A table for `capacity` flows; `purpose` and `number` make its name. */
struct flow_table *flow_table_create(uint32_t capacity, const char *purpose, unsigned number);
void flow_table_release(struct flow_table *table);

/* Positions lie in 0 .. flow_table_positions()-1 and never move: they index the caller's own per-flow array. */
uint32_t flow_table_positions(const struct flow_table *table);

/* Position of each key, FLOW_NONE where it is not in the table. */
void flow_table_find(const struct flow_table *table, const struct flow_key *keys, int32_t *positions, uint32_t count);

/* Position of a key, which is added if it is new; FLOW_NONE when the table is full. */
int32_t flow_table_add(struct flow_table *table, const struct flow_key *key);

#endif
