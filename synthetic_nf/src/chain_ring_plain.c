/* The ring without DPDK: the same layout and the same order of loads and stores. */
#include "chain_ring.h"

#include <stdio.h>
#include <string.h>

size_t chain_ring_bytes(uint32_t size)
{
	size_t bytes = sizeof(struct chain_ring) + (size_t)size * sizeof(void *);

	return (bytes + RING_LINE - 1) / RING_LINE * RING_LINE;
}

struct chain_ring *chain_ring_place(void *memory, const char *name, uint32_t size)
{
	struct chain_ring *ring = memory;

	memset(ring, 0, sizeof(*ring));
	snprintf(ring->name, sizeof(ring->name), "%s", name);
	ring->size = size;
	ring->mask = size - 1;
	ring->capacity = size - 1;
	ring->producer.single = ring->consumer.single = 1;
	return ring;
}

uint32_t chain_ring_put(struct chain_ring *ring, void *const *entries, uint32_t count)
{
	void **places = (void **)(void *)(ring + 1);
	uint32_t head = ring->producer.head;
	uint32_t room = ring->capacity + __atomic_load_n(&ring->consumer.tail, __ATOMIC_ACQUIRE) - head;

	if (count > room)
		count = room;
	for (uint32_t i = 0; i < count; i++)
		places[(head + i) & ring->mask] = entries[i];
	ring->producer.head = head + count;
	__atomic_store_n(&ring->producer.tail, head + count, __ATOMIC_RELEASE);
	return count;
}

uint32_t chain_ring_take(struct chain_ring *ring, void **entries, uint32_t most)
{
	void *const *places = (void *const *)(const void *)(ring + 1);
	uint32_t head = ring->consumer.head;
	uint32_t waiting = __atomic_load_n(&ring->producer.tail, __ATOMIC_ACQUIRE) - head;

	if (most > waiting)
		most = waiting;
	for (uint32_t i = 0; i < most; i++)
		entries[i] = places[(head + i) & ring->mask];
	ring->consumer.head = head + most;
	__atomic_store_n(&ring->consumer.tail, head + most, __ATOMIC_RELEASE);
	return most;
}
